package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/claimq/claimq/dedupe"
	"github.com/claimq/claimq/dedupe/postgres"
	"github.com/claimq/claimq/internal/config"
	"github.com/claimq/claimq/queue"
)

// sweepEvery is how often a worker looks for steps that are old enough to go.
const sweepEvery = time.Minute

// database keeps recorded steps, where POSTGRES_URL is set.
type database struct {
	pool  *pgxpool.Pool
	store *postgres.Store
}

// openDatabase does not connect yet. It returns nil when no database is named.
func openDatabase(ctx context.Context, cfg config.Worker) (*database, error) {
	pc := cfg.Postgres.PoolConfig(4)
	if pc == nil {
		return nil, nil
	}
	// A step takes a connection for a moment, before and after its call.
	pc.MaxConns = max(pc.MaxConns, int32(min(cfg.Run.Concurrency, 20)))
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, err
	}
	store, err := postgres.New(pool, postgres.Config{Schema: cfg.Postgres.Schema, Retention: cfg.Postgres.Retention})
	if err != nil {
		pool.Close()
		return nil, inSettings(err)
	}
	return &database{pool, store}, nil
}

// inSettings names the variable in place of the field.
func inSettings(err error) error {
	f, ok := errors.AsType[*queue.FieldError](err)
	if !ok {
		return err
	}
	name, ok := map[string]string{"Schema": "POSTGRES_SCHEMA", "Retention": "POSTGRES_RETENTION"}[f.Field]
	if !ok {
		return err
	}
	return &queue.FieldError{Field: name, Remedy: f.Remedy, Kind: f.Kind}
}

// useDatabase opens the configured database, if any, and looks at it.
func useDatabase(s std, cfg config.Worker, log *slog.Logger) (*database, int) {
	db, err := openDatabase(context.Background(), cfg)
	if err != nil {
		sayProblems(s, "run", err)
		return nil, exitUsage
	}
	if code := db.lookAt(log); code != exitOK {
		db.close()
		return nil, code
	}
	return db, exitOK
}

func (d *database) close() {
	if d != nil {
		d.pool.Close()
	}
}

// ledger is where steps are kept: in the database, or else beside the tasks.
func (d *database) ledger(list []*queue.Queue) dedupe.Ledger {
	if d == nil {
		return ledgers(list)
	}
	return storeLedger{ledgers(list), d.store}
}

// lookAt refuses a database without the tables. One that is away is waited for:
// until it is back, tasks fail and are tried again.
func (d *database) lookAt(log *slog.Logger) int {
	if d == nil {
		return exitOK
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	switch err := d.store.Check(ctx); {
	case errors.Is(err, postgres.ErrSchema):
		log.Error("the database cannot keep recorded steps", "error", err)
		return exitUsage
	case err != nil:
		log.Warn("the database does not answer; tasks are tried again until it does", "error", err)
	}
	return exitOK
}

// sweep removes old steps now and then until stop is called.
func (d *database) sweep(log *slog.Logger) (stop func()) {
	if d == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(sweepEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				d.sweepOnce(ctx, log)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func (d *database) sweepOnce(ctx context.Context, log *slog.Logger) {
	total := 0
	for more := true; more && ctx.Err() == nil; {
		var removed int
		var err error
		if removed, more, err = d.store.Sweep(ctx); err != nil {
			if ctx.Err() == nil {
				log.Warn("old steps could not be removed", "error", err)
			}
			return
		}
		total += removed
	}
	if total > 0 {
		log.Debug("old steps removed", "rows", total)
	}
}

// storeLedger keeps the steps of all queues' tasks in one database.
type storeLedger struct {
	ledgers
	store *postgres.Store
}

func (s storeLedger) Intend(ctx context.Context, l queue.Lease, step string, key dedupe.Key, call queue.Token) (queue.Step, error) {
	return s.store.Ledger(l.Queue).Intend(ctx, l, step, key, call)
}

func (s storeLedger) Record(ctx context.Context, l queue.Lease, step string, state queue.StepState, result []byte) (queue.Step, error) {
	return s.store.Ledger(l.Queue).Record(ctx, l, step, state, result)
}

// Steps answers for the first queue that knows the task.
func (s storeLedger) Steps(ctx context.Context, id queue.TaskID) ([]queue.Step, error) {
	err := fmt.Errorf("%w: %s", queue.ErrNotFound, id)
	for _, q := range s.ledgers {
		var steps []queue.Step
		if steps, err = s.store.Ledger(q.Name()).Steps(ctx, id); !errors.Is(err, queue.ErrNotFound) {
			return steps, err
		}
	}
	return nil, err
}

// database looks at the database, where one is named.
func (c *checkup) database(ctx context.Context, cfg config.Worker) {
	db, err := openDatabase(ctx, cfg)
	if err != nil {
		c.settings(err)
		return
	}
	if db == nil {
		return
	}
	defer db.close()
	c.Database = cfg.Postgres.URL.String()
	switch err := db.store.Check(ctx); {
	case errors.Is(err, postgres.ErrSchema):
		c.fatal(exitUsage, problem{Where: "database", What: "tables are missing or out of date", Detail: err.Error(), Remedy: "run worker migrate"})
	case err != nil:
		c.fatal(exitFailed, problem{Where: "database", What: "cannot be asked", Detail: err.Error(),
			Remedy: "see that it runs and that POSTGRES_URL has the right address, name, user and password"})
	}
}
