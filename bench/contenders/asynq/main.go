// Command asynq is hibiken/asynq: task IDs against duplicates, no retention,
// and an empty queue looked at every 5 ms in place of every second.
package main

import (
	"context"
	"time"

	"github.com/hibiken/asynq"

	"github.com/claimq/claimq/bench/internal/contender"
)

type queue struct {
	addr   string
	client *asynq.Client
}

func main() {
	contender.Main(func(o contender.Options) (contender.Queue, error) {
		q := &queue{o.Addr, asynq.NewClient(asynq.RedisClientOpt{Addr: o.Addr, PoolSize: o.Callers + 16})}
		return q, q.client.Ping()
	}, nil)
}

func (q *queue) Enqueue(id, payload string) error {
	_, err := q.client.Enqueue(asynq.NewTask("task", []byte(payload)), asynq.TaskID(id))
	return err
}

func (q *queue) EnqueueBatch(_, _ []string) error { return contender.ErrNoBatch }

func (q *queue) Consume(handlers int, s *contender.Sink) error {
	server := asynq.NewServer(
		asynq.RedisClientOpt{Addr: q.addr, PoolSize: handlers + 16},
		asynq.Config{Concurrency: handlers, LogLevel: asynq.FatalLevel, TaskCheckInterval: 5 * time.Millisecond},
	)
	return server.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		s.Bytes(t.Payload())
		return nil
	}))
}
