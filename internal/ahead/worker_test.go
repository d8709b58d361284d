package ahead

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/queue"
)

const (
	placeVariable = "CLAIMQ_AHEAD" // "<address> <prefix>": the test binary is a worker
	lease         = time.Second
	slots         = 4
)

func newQueue(c *redis.Client, prefix string) (*queue.Queue, error) {
	return queue.New(queue.Config{Name: "q", Client: c, Prefix: prefix, Partitions: 2, Lease: lease, MaxInterruptions: 10})
}

// work is a worker process whose handler writes down that it ran, and when, and
// does nothing else. It drains on SIGTERM, and when its standard input ends, as it
// does with the test.
func work(place string) error {
	addr, prefix, _ := strings.Cut(place, " ")
	q, err := newQueue(redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true, PoolSize: 8}), prefix)
	if err != nil {
		return err
	}
	w, err := consumer.New(q, consumer.Config{
		Concurrency: slots, HousekeepingEvery: 100 * time.Millisecond, Block: 200 * time.Millisecond,
		Handler: consumer.HandlerFunc(func(_ context.Context, d consumer.Delivery) ([]byte, error) {
			// One write to a pipe: it is there or not, whatever becomes of the process.
			_, err := fmt.Fprintf(os.Stdout, "%d %d %d %s\n", time.Now().UnixMicro(), d.Lease.Attempt, d.Lease.Fence, d.Task.ID)
			return nil, err
		}),
	})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctx, end := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		end()
	}()
	if err := w.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
