package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/queue"
	"github.com/redis/go-redis/v9"
)

// L2: each loop, frozen, makes the worker unhealthy in the stated time, and
// the probe itself never hangs. An idle worker stays healthy.
func TestL2FrozenLoop(t *testing.T) {
	for _, loop := range []string{"fetch", "dispatch", "renew", "watch", "settle", "housekeeping"} {
		t.Run(loop, func(t *testing.T) {
			const after = 400 * time.Millisecond
			q := newQueue(t)
			w := newWorker(t, q, consumer.Config{UnhealthyAfter: after, Handler: consumer.HandlerFunc(func(context.Context, consumer.Delivery) ([]byte, error) { return nil, nil })})
			freeze, thaw := make(chan struct{}), make(chan struct{})
			w.OnBeat(func(l string) {
				select {
				case <-freeze:
					if l == loop {
						<-thaw
					}
				default:
				}
			})
			start(t, w)
			t.Cleanup(sync.OnceFunc(func() { close(thaw) }))
			eventually(t, "ready", func() bool { return w.Status().Ready })
			throughout(t, 2*after, "idle and healthy", func() bool { s := w.Status(); return s.Healthy && s.Ready })
			close(freeze)
			frozen := time.Now()
			eventually(t, "unhealthy", func() bool { return !w.Status().Healthy })
			if d := time.Since(frozen); d > after+5*time.Second { // the machine may be busy
				t.Errorf("unhealthy only after %v", d)
			}
			if s := w.Status(); s.Ready || !strings.Contains(fmt.Sprint(s.Reasons), loop) {
				t.Errorf("reasons: %v", s.Reasons)
			}
		})
	}
}

// L2: a worker whose settle loop hangs does not keep its tasks from others.
func TestL2StalledWorkerStopsRenewing(t *testing.T) {
	q := newQueue(t)
	w := newWorker(t, q, consumer.Config{UnhealthyAfter: 300 * time.Millisecond, Handler: consumer.HandlerFunc(func(ctx context.Context, _ consumer.Delivery) ([]byte, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	})})
	freeze, thaw := make(chan struct{}), make(chan struct{})
	w.OnBeat(func(l string) {
		select {
		case <-freeze:
			if l == "settle" {
				<-thaw
			}
		default:
		}
	})
	start(t, w)
	t.Cleanup(sync.OnceFunc(func() { close(thaw) }))
	enqueue(t, q, queue.Task{ID: "T1", Kind: "k"})
	eventually(t, "runs", func() bool { return w.Status().Busy == 1 })
	run(t, q, consumer.Config{Handler: consumer.HandlerFunc(func(context.Context, consumer.Delivery) ([]byte, error) { return nil, nil })})
	throughout(t, 3*q.Config().Lease, "renewed while healthy", func() bool { return placeOf(t, q, "T1") == queue.Pending })
	close(freeze)
	eventuallyAt(t, q, "T1", queue.Done)
}

func TestConfigProblemsAreReportedTogether(t *testing.T) {
	q := newQueue(t)
	var mux consumer.Mux
	consumer.Handle[string](&mux, "a", nil)
	consumer.HandleTask(&mux, "", func(context.Context, consumer.Delivery) ([]byte, error) { return nil, nil })
	for range 2 {
		consumer.HandleTask(&mux, "twice", func(context.Context, consumer.Delivery) ([]byte, error) { return nil, nil })
	}
	mux.Use(nil)
	far := redistest.Shared(t).Client(func(o *redis.Options) { o.DB = 0 })
	_, err := consumer.New(q, consumer.Config{
		Handler: &mux, Concurrency: -1, Prefetch: -2, Consumer: "no spaces", Block: 500 * time.Microsecond,
		UnhealthyAfter: time.Nanosecond, RetryBase: time.Hour, RetryMax: time.Second, Weight: -1, Timeout: -1,
		More: []consumer.Weighted{{}, {Queue: q}, {Queue: again(t, q, func(c *queue.Config) { c.Name, c.Client = "o", far }), Weight: -1}},
	})
	if !errors.Is(err, queue.ErrInvalidConfig) {
		t.Fatalf("error %v", err)
	}
	for _, field := range []string{
		`kind "a"`, `kind ""`, `kind "twice"`, "middleware", "Concurrency", "Prefetch", "Consumer", "Block", "UnhealthyAfter",
		"RetryMax", "Weight", "Timeout", "More[0].Queue", "named twice", "More[2].Weight", "another client",
	} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("nothing is said of %s in:\n%v", field, err)
		}
	}
	if _, err := consumer.New(nil, consumer.Config{}); !errors.Is(err, queue.ErrInvalidConfig) {
		t.Errorf("New without anything: %v", err)
	}
	// E2: block times that would block for ever or spin.
	for _, block := range []time.Duration{5000, -1, 500 * time.Microsecond, time.Minute} {
		if _, err := consumer.New(q, consumer.Config{Block: block, Handler: consumer.HandlerFunc(nil), UnhealthyAfter: time.Hour}); err == nil {
			t.Errorf("Block %v was accepted", block)
		}
	}
}

// B3: no two workers share a consumer name, however long and equal its given
// part is.
func TestB3ConsumerNamesDiffer(t *testing.T) {
	q := newQueue(t)
	names := map[string]bool{}
	for range 100 {
		w, err := consumer.New(q, consumer.Config{Consumer: strings.Repeat("x", 64), Handler: consumer.HandlerFunc(nil)})
		if err != nil {
			t.Fatal(err)
		}
		names[w.Status().Consumer] = true
	}
	if len(names) != 100 {
		t.Errorf("%d names for 100 workers", len(names))
	}
}
