// Command river is riverqueue/river on PostgreSQL: COPY for batches, a fetch
// every millisecond at most in place of every 100 ms. The server is set up by
// the driver: no fsync, no synchronous commit, as the Redis servers write
// nothing to disk either.
package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/claimq/claimq/bench/internal/contender"
)

type job struct {
	P string `json:"p"`
}

func (job) Kind() string { return "task" }

type worker struct {
	river.WorkerDefaults[job]
	s *contender.Sink
}

func (w *worker) Work(_ context.Context, j *river.Job[job]) error {
	w.s.String(j.Args.P)
	return nil
}

type queue struct {
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
}

func main() {
	contender.Main(open, map[string]contender.Mode{"prepare": prepare})
}

func connect(o contender.Options) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(o.Addr)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = 30
	return pgxpool.NewWithConfig(context.Background(), cfg)
}

func open(o contender.Options) (contender.Queue, error) {
	pool, err := connect(o)
	if err != nil {
		return nil, err
	}
	// A client that inserts tells workers no more often than it would fetch itself.
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{FetchCooldown: time.Millisecond})
	return &queue{pool, client}, err
}

// prepare makes the tables where they are missing and empties them.
func prepare(o contender.Options, start func()) (contender.Result, error) {
	ctx := context.Background()
	pool, err := connect(o)
	if err != nil {
		return contender.Result{}, err
	}
	defer pool.Close()
	start()
	m, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return contender.Result{}, err
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return contender.Result{}, err
	}
	for _, sql := range []string{"truncate river_job, river_leader", "vacuum analyze river_job", "checkpoint"} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return contender.Result{}, err
		}
	}
	return contender.Result{}, nil
}

func (q *queue) Enqueue(_, payload string) error {
	_, err := q.client.Insert(context.Background(), job{payload}, nil)
	return err
}

func (q *queue) EnqueueBatch(ids, payloads []string) error {
	jobs := make([]river.InsertManyParams, len(ids))
	for i := range ids {
		jobs[i].Args = job{payloads[i]}
	}
	_, err := q.client.InsertManyFast(context.Background(), jobs)
	return err
}

func (q *queue) Consume(handlers int, s *contender.Sink) error {
	workers := river.NewWorkers()
	river.AddWorker(workers, &worker{s: s})
	client, err := river.NewClient(riverpgxv5.New(q.pool), &river.Config{
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: handlers}},
		Workers:       workers,
		FetchCooldown: time.Millisecond,
		Logger:        slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	return client.Start(context.Background())
}
