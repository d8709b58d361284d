package consumer_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/queue"
)

// fill enqueues n tasks of a usual size, of which the first has number from.
func fill(tb testing.TB, q *queue.Queue, from, n int) {
	tb.Helper()
	payload := []byte(strings.Repeat("x", 256))
	for n > 0 {
		ts := make([]queue.Task, min(n, 100))
		for i := range ts {
			ts[i] = queue.Task{ID: queue.TaskID(fmt.Sprintf("01890a5d-ac96-774b-bcce-b302%08d", from+i)), Kind: "webhook.push", Payload: payload}
		}
		for _, r := range q.Enqueue(context.Background(), q.NewToken(), ts) {
			if !r.Added {
				tb.Fatalf("%+v", r)
			}
		}
		from, n = from+len(ts), n-len(ts)
	}
}

func costQueue(tb testing.TB) *queue.Queue {
	tb.Helper()
	q, err := queue.New(queue.Config{Name: "q", Prefix: redistest.Prefix(tb), Client: redistest.Shared(tb).Client()})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { q.Close() })
	if err := q.Ensure(context.Background()); err != nil {
		tb.Fatal(err)
	}
	return q
}

// drainer ends a worker when as many tasks have ended as were left.
type drainer struct {
	consumer.NopObserver
	left atomic.Int64
	stop context.CancelFunc
}

func (d *drainer) Ended(consumer.Ended) {
	if d.left.Add(-1) == 0 {
		d.stop()
	}
}

// drainAll runs n tasks in a worker whose handlers do nothing.
func drainAll(tb testing.TB, q *queue.Queue, handlers, n int) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	d := &drainer{stop: cancel}
	d.left.Store(int64(n))
	w, err := consumer.New(q, consumer.Config{Concurrency: handlers, Observer: d,
		Handler: consumer.HandlerFunc(func(context.Context, consumer.Delivery) ([]byte, error) { return nil, nil })})
	if err != nil {
		tb.Fatal(err)
	}
	if err := w.Run(ctx); err != nil {
		tb.Fatal(err)
	}
}

// BenchmarkDrain takes one task through a worker: read, lease, run, settle.
func BenchmarkDrain(b *testing.B) {
	for _, handlers := range []int{16, 64} {
		b.Run(fmt.Sprintf("handlers=%d", handlers), func(b *testing.B) {
			q := costQueue(b)
			fill(b, q, 0, b.N)
			b.ReportAllocs()
			b.ResetTimer()
			drainAll(b, q, handlers, b.N)
		})
	}
}

// Allocations for each task that does nothing, from the read to the settled
// outcome, all that the client and the worker's loops do included.
func TestAllocationsOfADrain(t *testing.T) {
	const n, limit = 6400, 4
	q := costQueue(t)
	fill(t, q, 0, 640)
	drainAll(t, q, 64, 640) // connections are made and scripts are known
	fill(t, q, 1000, n)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	drainAll(t, q, 64, n)
	runtime.ReadMemStats(&after)
	got := float64(after.Mallocs-before.Mallocs) / n
	t.Logf("%.1f allocations and %.0f bytes for each task", got, float64(after.TotalAlloc-before.TotalAlloc)/n)
	if got > limit {
		t.Errorf("%.1f allocations for each task, want at most %d", got, limit)
	}
}
