// Command watermill is ThreeDotsLabs/watermill-redisstream: one consumer group
// and a subscriber for each handler, as a subscription runs one task at a time.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/bench/internal/contender"
)

type queue struct {
	addr string
	pub  *redisstream.Publisher
}

func main() {
	contender.Main(func(o contender.Options) (contender.Queue, error) {
		client := redis.NewClient(&redis.Options{Addr: o.Addr, PoolSize: o.Callers + 16})
		pub, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: client}, watermill.NopLogger{})
		return &queue{o.Addr, pub}, err
	}, nil)
}

func (q *queue) Enqueue(id, payload string) error {
	return q.pub.Publish("jobs", message.NewMessage(id, []byte(payload)))
}

func (q *queue) EnqueueBatch(ids, payloads []string) error {
	messages := make([]*message.Message, len(ids))
	for i := range ids {
		messages[i] = message.NewMessage(ids[i], []byte(payloads[i]))
	}
	return q.pub.Publish("jobs", messages...)
}

func (q *queue) Consume(handlers int, s *contender.Sink) error {
	client := redis.NewClient(&redis.Options{Addr: q.addr, PoolSize: 3*handlers + 16})
	for i := range handlers {
		sub, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
			Client: client, ConsumerGroup: "bench", Consumer: fmt.Sprintf("c%d-%d", os.Getpid(), i),
			DisableIndefiniteInitialBlock: true,
		}, watermill.NopLogger{})
		if err != nil {
			return err
		}
		messages, err := sub.Subscribe(context.Background(), "jobs")
		if err != nil {
			return err
		}
		go func() {
			for m := range messages {
				s.Bytes(m.Payload)
				m.Ack()
			}
		}()
	}
	return nil
}
