package killpoints

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/dedupe"
	"github.com/claimq/claimq/dedupe/postgres"
	"github.com/claimq/claimq/queue"
)

// planVariable holds the plan of a worker, as JSON.
const planVariable = "CLAIMQ_KILLPOINTS_PLAN"

// plan is what a worker is told.
type plan struct {
	Redis, Postgres string
	Prefix, Queue   string

	At   string // point to die at; "": none
	Pass int
	List bool // say which points there are
}

const (
	lease = time.Second
	// kinds of task: the effect in the transaction, and the effect at another
	// side that remembers keys.
	kindTx, kindStep = "tx", "step"
)

// schemaSQL has the effects. Nothing in it keeps a second one out, but the key
// that the other side of a step remembers.
const schemaSQL = `
create table effects (task text not null, fence bigint not null, kind text not null);
create table other_side (key text primary key, task text not null)`

func openQueue(name, prefix string, rdb, reads *redis.Client) (*queue.Queue, error) {
	return queue.New(queue.Config{
		Name: name, Prefix: prefix, Client: rdb, ReadClient: reads, Lease: lease,
		MaxInterruptions: 10_000, MaxFailures: 10_000,
	})
}

// victim is the worker. It returns the exit code, if it lives so long.
func victim(text string) int {
	if err := work(text); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		return 1
	}
	return 0
}

func work(text string) error {
	var p plan
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the one who started this process
		stop()
	}()
	r := &reaper{at: p.At, pass: p.Pass, list: p.List, seen: map[string]int{}}
	var clients [2]*redis.Client
	for i := range clients {
		opt, err := redis.ParseURL(p.Redis)
		if err != nil {
			return err
		}
		opt.MaxRetries, opt.ContextTimeoutEnabled = -1, true
		clients[i] = redis.NewClient(opt)
		defer clients[i].Close()
		clients[i].AddHook(redisHook{r})
	}
	q, err := openQueue(p.Queue, p.Prefix, clients[0], clients[1])
	if err != nil {
		return err
	}
	defer q.Close()
	config, err := pgxpool.ParseConfig(p.Postgres)
	if err != nil {
		return err
	}
	config.ConnConfig.Tracer = tracer{r}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := postgres.New(pool, postgres.Config{IdleTimeout: 2 * time.Second})
	if err != nil {
		return err
	}
	w, err := consumer.New(q, consumer.Config{
		Handler: handlers(r, pool, store, q.Name()), Concurrency: 3, Prefetch: 2,
		Block: 200 * time.Millisecond, RetryBase: 20 * time.Millisecond, RetryMax: 200 * time.Millisecond,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "up")
	return w.Run(ctx)
}

func handlers(r *reaper, pool *pgxpool.Pool, store *postgres.Store, queueName string) consumer.Handler {
	ledger := store.Ledger(queueName)
	var mux consumer.Mux
	consumer.HandleTask(&mux, kindTx, func(ctx context.Context, d consumer.Delivery) ([]byte, error) {
		r.reach("before handler")
		result, err := postgres.Tx(ctx, store, d.Lease, func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
			_, err := tx.Exec(ctx, "insert into effects (task, fence, kind) values ($1, $2, $3)", string(d.Lease.TaskID), int64(d.Lease.Fence), kindTx)
			return []byte("receipt of " + d.Lease.TaskID), err
		})
		r.reach("after handler")
		return result, err
	})
	consumer.HandleTask(&mux, kindStep, func(ctx context.Context, d consumer.Delivery) ([]byte, error) {
		r.reach("before handler")
		result, err := dedupe.Step(ctx, ledger, d.Lease, "charge", func(ctx context.Context, key dedupe.Key) ([]byte, error) {
			_, err := pool.Exec(ctx, "insert into other_side (key, task) values ($1, $2) on conflict (key) do nothing", key.String(), string(d.Lease.TaskID))
			return []byte("charge of " + d.Lease.TaskID), err
		})
		r.reach("after handler")
		return result, err
	})
	return &mux
}
