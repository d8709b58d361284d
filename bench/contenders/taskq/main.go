// Command taskq is vmihailenco/taskq: 100 tasks reserved at once, 200 fetched
// ahead, a name for each task against duplicates.
package main

import (
	"context"
	"io"
	"log"

	"github.com/go-redis/redis/v8"
	"github.com/vmihailenco/taskq/v3"
	"github.com/vmihailenco/taskq/v3/redisq"

	"github.com/claimq/claimq/bench/internal/contender"
)

type queue struct {
	q    taskq.Queue
	task *taskq.Task
	sink *contender.Sink // set before the first task is consumed
}

func main() {
	log.SetOutput(io.Discard)
	contender.Main(func(o contender.Options) (contender.Queue, error) {
		client := redis.NewClient(&redis.Options{Addr: o.Addr, PoolSize: o.Callers + o.Handlers + 16})
		q := &queue{}
		q.task = taskq.RegisterTask(&taskq.TaskOptions{Name: "task", Handler: func(payload string) error {
			q.sink.String(payload)
			return nil
		}})
		q.q = redisq.NewFactory().RegisterQueue(&taskq.QueueOptions{
			Name: "jobs", Redis: client, MinNumWorker: int32(o.Handlers), MaxNumWorker: int32(o.Handlers),
			ReservationSize: 100, BufferSize: 200,
		})
		return q, client.Ping(context.Background()).Err()
	}, nil)
}

func (q *queue) Enqueue(id, payload string) error {
	m := q.task.WithArgs(context.Background(), payload)
	m.Name = id
	return q.q.Add(m)
}

func (q *queue) EnqueueBatch(_, _ []string) error { return contender.ErrNoBatch }

func (q *queue) Consume(_ int, s *contender.Sink) error {
	q.sink = s
	return q.q.Consumer().Start(context.Background())
}
