package consumer_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/queue"
)

// What workers measured is with the queue once they have stopped: every attempt
// that ran, also those that failed, panicked or were cut off.
func TestHandlerTimesReachTheServer(t *testing.T) {
	q := newQueue(t, func(c *queue.Config) { c.Partitions = 3 })
	const cutOff = 300 * time.Millisecond
	for round := range 2 {
		w := run(t, q, consumer.Config{Timeout: cutOff, RetryBase: time.Hour, RetryMax: time.Hour,
			Handler: consumer.HandlerFunc(func(ctx context.Context, d consumer.Delivery) ([]byte, error) {
				switch d.Task.Kind {
				case "fails":
					return nil, errors.New("no")
				case "panics":
					panic("no")
				case "hangs":
					<-ctx.Done()
					return nil, context.Cause(ctx)
				}
				return nil, nil
			})})
		prefix := string(rune('a' + round))
		for _, kind := range []string{"works", "fails", "panics", "hangs"} {
			enqueue(t, q, numbered(prefix+kind, kind, 5)...)
		}
		eventually(t, "all have run", func() bool {
			s := stats(t, q)
			return s.Waiting+s.Pending == 0 && s.Scheduled == int64(15*(round+1))
		})
		if err := w.stop(); err != nil {
			t.Fatal(err)
		}
		times, err := q.Times(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range []string{"works", "fails", "panics", "hangs"} {
			if h := times[kind]; h.Runs() != int64(5*(round+1)) {
				t.Errorf("%d runs of kind %q, want %d", h.Runs(), kind, 5*(round+1))
			}
		}
		if h := times["hangs"]; len(times) != 4 || h.Quantile(.5) < cutOff*2/3 {
			t.Errorf("%d kinds; half of those that hang took %v, want about %v", len(times), h.Quantile(.5), cutOff)
		}
	}
}
