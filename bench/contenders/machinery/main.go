// Command machinery is RichardKnop/machinery: the go-redis broker, no result
// backend.
package main

import (
	"io"
	"log"

	"github.com/RichardKnop/machinery/v2"
	nullbackend "github.com/RichardKnop/machinery/v2/backends/null"
	redisbroker "github.com/RichardKnop/machinery/v2/brokers/redis"
	"github.com/RichardKnop/machinery/v2/config"
	eagerlock "github.com/RichardKnop/machinery/v2/locks/eager"
	mlog "github.com/RichardKnop/machinery/v2/log"
	"github.com/RichardKnop/machinery/v2/tasks"

	"github.com/claimq/claimq/bench/internal/contender"
)

type queue struct{ server *machinery.Server }

func main() {
	mlog.Set(log.New(io.Discard, "", 0))
	contender.Main(func(o contender.Options) (contender.Queue, error) {
		cfg := &config.Config{
			DefaultQueue: "jobs", ResultsExpireIn: 3600, NoUnixSignals: true,
			Redis: &config.RedisConfig{MaxIdle: 100, NormalTasksPollPeriod: 1000, DelayedTasksPollPeriod: 500},
		}
		broker := redisbroker.NewGR(cfg, []string{o.Addr}, 0)
		return &queue{machinery.NewServer(cfg, broker, nullbackend.New(), eagerlock.New())}, nil
	}, nil)
}

func (q *queue) Enqueue(id, payload string) error {
	_, err := q.server.SendTask(&tasks.Signature{UUID: id, Name: "task", Args: []tasks.Arg{{Type: "string", Value: payload}}})
	return err
}

func (q *queue) EnqueueBatch(_, _ []string) error { return contender.ErrNoBatch }

func (q *queue) Consume(handlers int, s *contender.Sink) error {
	err := q.server.RegisterTask("task", func(payload string) error {
		s.String(payload)
		return nil
	})
	if err != nil {
		return err
	}
	q.server.NewWorker("bench", handlers).LaunchAsync(make(chan error, 1))
	return nil
}
