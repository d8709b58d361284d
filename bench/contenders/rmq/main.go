// Command rmq is adjust/rmq: 1,000 tasks fetched ahead, an empty queue looked
// at every 10 ms, and the cleaner that its README shows, once a second. It has
// no task IDs.
package main

import (
	"time"

	"github.com/adjust/rmq/v5"

	"github.com/claimq/claimq/bench/internal/contender"
)

type queue struct {
	conn rmq.Connection
	q    rmq.Queue
}

func main() {
	contender.Main(func(o contender.Options) (contender.Queue, error) {
		conn, err := rmq.OpenConnection("bench", "tcp", o.Addr, 0, nil)
		if err != nil {
			return nil, err
		}
		q, err := conn.OpenQueue("jobs")
		return &queue{conn, q}, err
	}, nil)
}

func (q *queue) Enqueue(_, payload string) error         { return q.q.Publish(payload) }
func (q *queue) EnqueueBatch(_, payloads []string) error { return q.q.Publish(payloads...) }

func (q *queue) Consume(handlers int, s *contender.Sink) error {
	if err := q.q.StartConsuming(1000, 10*time.Millisecond); err != nil {
		return err
	}
	for range handlers {
		_, err := q.q.AddConsumerFunc("bench", func(d rmq.Delivery) {
			s.String(d.Payload())
			_ = d.Ack() // it repeats failed ones by itself
		})
		if err != nil {
			return err
		}
	}
	go func() {
		cleaner := rmq.NewCleaner(q.conn)
		for range time.Tick(time.Second) {
			_, _ = cleaner.Clean()
		}
	}()
	return nil
}
