package consumer_test

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/queue"
)

// A worker uses one connection for its reads, however many partitions there
// are, and at most one for each loop that calls the server.
func TestConnectionsAt64Partitions(t *testing.T) {
	const name, loops = "the-worker", 5
	const replaced = 2 // given up on a slow machine, and not yet closed by the server
	admin := redistest.Shared(t).Client()
	client := redistest.Shared(t).Client(func(o *redis.Options) { o.ClientName = name })
	q := newQueue(t, func(c *queue.Config) { c.Client, c.Partitions = client, 64 })
	run(t, q, consumer.Config{Concurrency: 64, Handler: consumer.HandlerFunc(func(context.Context, consumer.Delivery) ([]byte, error) {
		return nil, nil
	})})
	most := 0
	for round := range 20 {
		tasks := numbered(strings.Repeat("x", round+1), "k", 200)
		enqueueBy(t, admin, q, tasks)
		eventually(t, "the round is done", func() bool { return statsBy(t, admin, q).Unfinished() == 0 })
		list, err := admin.ClientList(context.Background()).Result()
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, strings.Count(list, " name="+name+" "))
	}
	t.Logf("%d connections at most", most)
	if most == 0 || most > 1+loops+replaced {
		t.Errorf("%d connections, want 1 to %d, and %d that are being replaced", most, 1+loops, replaced)
	}
}

// enqueueBy and statsBy use a client that is not the worker's.
func enqueueBy(t *testing.T, c *redis.Client, q *queue.Queue, tasks []queue.Task) {
	t.Helper()
	enqueue(t, again(t, q, func(cfg *queue.Config) { cfg.Client = c }), tasks...)
}

func statsBy(t *testing.T, c *redis.Client, q *queue.Queue) queue.Stats {
	t.Helper()
	return stats(t, again(t, q, func(cfg *queue.Config) { cfg.Client = c }))
}
