package postgres_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/dedupe/postgres"
	"github.com/claimq/claimq/internal/pgtest"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/queue"
)

// fleet is a queue, a database and workers between them.
type fleet struct {
	t      *testing.T
	prefix string
	q      *queue.Queue
	pool   *pgxpool.Pool
	store  *postgres.Store
	ends   *ended
}

func newFleet(t *testing.T, client *redis.Client) *fleet {
	t.Helper()
	f := &fleet{t: t, prefix: redistest.Prefix(t), pool: pgtest.Shared(t).Pool(t), ends: &ended{}}
	f.store = newStore(t, f.pool, postgres.Config{Ended: f.ends.add})
	f.q = f.on(client)
	if err := f.q.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f
}

const shortLease = time.Second

// on is the queue as another client sees it.
func (f *fleet) on(client *redis.Client) *queue.Queue {
	f.t.Helper()
	q, err := queue.New(queue.Config{Name: "billing", Prefix: f.prefix, Client: client, Lease: shortLease, MaxInterruptions: 1000, MaxFailures: 1000})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = q.Close() })
	return q
}

// pays is a handler whose effect is in the transaction.
func (f *fleet) pays() consumer.HandlerFunc {
	return func(ctx context.Context, d consumer.Delivery) ([]byte, error) {
		receipt, err := postgres.Tx(ctx, f.store, d.Lease, effect(d.Lease))
		return []byte(receipt), err
	}
}

// work runs a worker until stop is called, or the test ends.
func (f *fleet) work(q *queue.Queue, h consumer.HandlerFunc) (stop func()) {
	f.t.Helper()
	w, err := consumer.New(q, consumer.Config{
		Handler: h, Concurrency: 8, Block: 100 * time.Millisecond, DrainTimeout: 5 * time.Second,
		RetryBase: 20 * time.Millisecond, RetryMax: 200 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = w.Run(ctx) })
	stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
	f.t.Cleanup(stop)
	return stop
}

// add enqueues tasks; those that are known already are left alone.
func (f *fleet) add(q *queue.Queue, ids ...string) (added int) {
	f.t.Helper()
	for _, id := range ids {
		r := q.Enqueue(f.t.Context(), q.NewToken(), []queue.Task{{ID: queue.TaskID(id), Kind: "invoice.send"}})[0]
		if r.Err != nil {
			f.t.Fatalf("%s: %v", id, r.Err)
		}
		if r.Added {
			added++
		}
	}
	return added
}

// finished waits until nothing is left to do.
func (f *fleet) finished(q *queue.Queue) {
	f.t.Helper()
	eventually(f.t, "everything finished", func() bool {
		s, err := q.Stats(context.Background())
		return err == nil && s.Unfinished() == 0
	})
}

// once checks that each task has had its effect exactly once.
func (f *fleet) once(ids ...string) {
	f.t.Helper()
	for _, id := range ids {
		if n := effects(f.t, f.pool, id); n != 1 {
			f.t.Errorf("%s: %d effects", id, n)
		}
	}
}

// take leases the one task there is, as soon as nobody else holds it.
func (f *fleet) take() queue.Lease {
	f.t.Helper()
	var got queue.Lease
	eventually(f.t, "the task is there to be taken", func() bool {
		ctx := f.t.Context()
		entries, err := queue.Read(ctx, queue.ReadRequest{Queues: []*queue.Queue{f.q}, Consumer: "c", Max: 1})
		if err == nil && len(entries) == 0 {
			var r queue.Reclaimed
			r, err = f.q.Reclaim(ctx, queue.ReclaimRequest{Consumer: "c", Max: 1})
			entries = r.Entries
		}
		if err != nil || len(entries) == 0 {
			return false
		}
		batch, err := f.q.Begin(ctx, queue.BeginRequest{Token: f.q.NewToken(), Entries: entries, Start: 1})
		if err != nil || len(batch.Deliveries) != 1 {
			return false
		}
		got = batch.Deliveries[0].Lease
		return true
	})
	return got
}
