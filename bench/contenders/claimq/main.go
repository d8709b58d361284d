// Command claimq is the queue of this repository: default leases, retention
// and checks.
//
// Variant "bare" is the same code with safety left out: what the scripts would
// do is done with plain stream commands, see bare.go.
package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/bench/internal/contender"
	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/queue"
)

const kind = "task"

type contestant struct {
	rdb *redis.Client
	q   *queue.Queue
	p   *producer.Producer
}

func main() {
	contender.Main(open, map[string]contender.Mode{
		"cycle": cycle, "idle": idle, "renew": renew, "growth": growth, "promote": promote,
	})
}

func open(o contender.Options) (contender.Queue, error) {
	c, err := connect(o)
	return c, err
}

func connect(o contender.Options) (*contestant, error) {
	rdb := redis.NewClient(&redis.Options{Addr: o.Addr, PoolSize: o.Callers + 16})
	if o.Variant == "bare" {
		rdb.AddHook(newBare(rdb))
	}
	cfg := queue.Config{Name: "jobs", Client: rdb, Partitions: max(1, o.Partitions)}
	if o.Pending > 0 {
		cfg.KindLeases = map[string]time.Duration{heldKind: heldLease}
	}
	q, err := queue.New(cfg)
	if err != nil {
		return nil, err
	}
	policy := producer.Config{}
	if o.Batch > 1 { // single tasks gather as they do by default
		policy.Batch = min(o.Batch, queue.MaxBatch)
	}
	p, err := producer.New(q, policy)
	if err != nil {
		return nil, err
	}
	return &contestant{rdb, q, p}, q.Ensure(context.Background())
}

func task(id, payload string) queue.Task {
	return queue.Task{ID: queue.TaskID(id), Kind: kind, Payload: []byte(payload)}
}

func (c *contestant) Enqueue(id, payload string) error {
	_, err := c.p.Enqueue(context.Background(), task(id, payload))
	return err
}

func (c *contestant) EnqueueBatch(ids, payloads []string) error {
	tasks := make([]queue.Task, len(ids))
	for i := range ids {
		tasks[i] = task(ids[i], payloads[i])
	}
	_, err := c.p.EnqueueMany(context.Background(), tasks)
	return err
}

func (c *contestant) Consume(handlers int, s *contender.Sink) error {
	w, err := c.worker(handlers, func(_ context.Context, d consumer.Delivery) ([]byte, error) {
		s.Bytes(d.Task.Payload)
		return nil, nil
	})
	if err != nil {
		return err
	}
	go func() { _ = w.Run(context.Background()) }() // to the end of the process
	return nil
}

func (c *contestant) worker(handlers int, h consumer.HandlerFunc) (*consumer.Worker, error) {
	// A worker that has something to say has not run undisturbed.
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	var mux consumer.Mux
	consumer.HandleTask(&mux, kind, h)
	return consumer.New(c.q, consumer.Config{Handler: &mux, Concurrency: handlers, Logger: logger})
}
