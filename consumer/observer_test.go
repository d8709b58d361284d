package consumer_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/queue"
)

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// TestEventsSayWhatMetricsNeed: the length of the lease, the trace that a task
// was sent in, though its headers are let go before it is settled, and why it
// became a dead letter, whoever said so.
func TestEventsSayWhatMetricsNeed(t *testing.T) {
	q := newQueue(t, func(c *queue.Config) {
		c.KindLeases = map[string]time.Duration{"slow": time.Minute}
		c.MaxFailures = 1
		c.NoHandlerAfter = time.Millisecond
	})
	wrong := errors.New("wrong")
	var mux consumer.Mux
	ok := func(context.Context, consumer.Delivery) ([]byte, error) { return nil, nil }
	consumer.HandleTask(&mux, "slow", ok)
	consumer.HandleTask(&mux, "fails", func(context.Context, consumer.Delivery) ([]byte, error) { return nil, wrong })
	consumer.HandleTask(&mux, "late", ok)
	consumer.HandleTask(&mux, "rejects", func(context.Context, consumer.Delivery) ([]byte, error) {
		return nil, consumer.DeadLetter(wrong)
	})
	headers := map[string]string{"traceparent": traceparent}
	enqueue(t, q,
		queue.Task{ID: "slow", Kind: "slow", Headers: headers},
		queue.Task{ID: "fails", Kind: "fails"},
		queue.Task{ID: "rejects", Kind: "rejects"},
		queue.Task{ID: "late", Kind: "late", Headers: headers, Deadline: time.Now().Add(-time.Hour)},
		queue.Task{ID: "unknown", Kind: "unknown"},
	)
	seen := &recorder{}
	run(t, q, consumer.Config{Handler: &mux, Observer: seen})
	for _, want := range []struct {
		id     queue.TaskID
		lease  time.Duration
		trace  string
		reason queue.DeadReason
		ran    bool
	}{
		{"slow", time.Minute, traceparent, "", true},
		{"fails", q.Config().Lease, "", queue.DeadFailures, true},
		{"rejects", q.Config().Lease, "", queue.DeadRejected, true},
		{"late", q.Config().Lease, traceparent, queue.DeadDeadline, false},
		{"unknown", q.Config().Lease, "", queue.DeadNoHandler, false},
	} {
		var e consumer.Ended
		eventually(t, string(want.id)+" ended", func() (ok bool) {
			e, ok = seen.endOf(want.id)
			return ok && (e.Outcome == queue.Completed || e.Outcome == queue.DeadLettered)
		})
		if e.Lease != want.lease || e.TraceParent != want.trace || e.DeadReason != want.reason || e.Ran != want.ran {
			t.Errorf("%s: %+v", want.id, e)
		}
		if e.Attempt != 1 {
			t.Errorf("%s: attempt %d", want.id, e.Attempt)
		}
	}
}

// startedRecorder keeps what it is told of starts.
type startedRecorder struct {
	consumer.NopObserver
	started chan consumer.Started
}

func (r startedRecorder) Started(e consumer.Started) { r.started <- e }

// TestStatusOldestLease: the age of the oldest lease is that of one that is
// held; it goes when the task does.
func TestStatusOldestLease(t *testing.T) {
	q := newQueue(t)
	release := map[queue.TaskID]chan struct{}{"first": make(chan struct{}), "second": make(chan struct{})}
	seen := startedRecorder{started: make(chan consumer.Started, 2)}
	w := newWorker(t, q, consumer.Config{Observer: seen, Handler: consumer.HandlerFunc(
		func(ctx context.Context, d consumer.Delivery) ([]byte, error) {
			select {
			case <-release[d.Task.ID]:
			case <-ctx.Done():
			}
			return nil, nil
		})})
	for _, l := range w.Status().Loops {
		if !l.Beat.IsZero() {
			t.Errorf("loop %s has moved before Run: %v", l.Name, l.Beat)
		}
	}
	r := start(t, w)
	if s := r.Status(); !s.OldestLease.IsZero() {
		t.Errorf("nothing is held, and the oldest lease is of %v", s.OldestLease)
	}
	before := time.Now()
	enqueue(t, q, queue.Task{ID: "first", Kind: "k", Headers: map[string]string{"traceparent": traceparent}})
	if e := receive(t, "start of the first", seen.started); e.TraceParent != traceparent {
		t.Errorf("started: %+v", e)
	}
	between := time.Now()
	first := r.Status().OldestLease
	if first.Before(before) || first.After(between) {
		t.Errorf("the first lease is of %v, not between %v and %v", first, before, between)
	}
	enqueue(t, q, queue.Task{ID: "second", Kind: "k"})
	receive(t, "start of the second", seen.started)
	// Renewing makes a lease no younger.
	throughout(t, time.Second, "the first is the oldest", func() bool { return r.Status().OldestLease.Equal(first) })
	close(release["first"])
	eventually(t, "the second is the oldest", func() bool { o := r.Status().OldestLease; return !o.IsZero() && o.After(between) })
	close(release["second"])
	eventually(t, "none is held", func() bool { return r.Status().OldestLease.IsZero() })
}
