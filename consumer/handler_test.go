package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/queue"
)

// I1: whatever way a handler or its middleware breaks, the attempt is a
// failure with a stack, and slot and worker go on.
func TestI1Panics(t *testing.T) {
	q := newQueue(t)
	var seen recorder
	var mux consumer.Mux
	var caught atomic.Int64
	mux.Use(func(next consumer.Handler) consumer.Handler {
		return consumer.HandlerFunc(func(ctx context.Context, d consumer.Delivery) ([]byte, error) {
			r, err := next.HandleTask(ctx, d)
			if _, ok := errors.AsType[*consumer.PanicError](err); ok {
				caught.Add(1)
			}
			if d.Task.Kind == "middleware" {
				panic("in middleware")
			}
			return r, err
		})
	})
	boom := func(f func()) func(context.Context, consumer.Delivery) ([]byte, error) {
		return func(_ context.Context, d consumer.Delivery) ([]byte, error) {
			if d.Lease.Failures == 0 {
				f()
			}
			return []byte("fine"), nil
		}
	}
	consumer.HandleTask(&mux, "error", boom(func() { panic(errors.New("boom")) }))
	consumer.HandleTask(&mux, "string", boom(func() { panic("boom") }))
	consumer.HandleTask(&mux, "nil", boom(func() { panic(nil) }))
	consumer.HandleTask(&mux, "goexit", boom(runtime.Goexit))
	consumer.HandleTask(&mux, "middleware", boom(func() {}))
	w := run(t, q, consumer.Config{Handler: &mux, Concurrency: 1, Observer: hostile{&seen}, RetryBase: time.Millisecond, RetryMax: 5 * time.Millisecond})
	kinds := []string{"error", "string", "nil", "goexit", "middleware"}
	for _, k := range kinds {
		enqueue(t, q, queue.Task{ID: queue.TaskID(k), Kind: k})
	}
	for _, k := range kinds {
		id := queue.TaskID(k)
		eventually(t, k+" failed", func() bool { _, ok := seen.endOf(id); return ok })
		if k != "middleware" {
			eventuallyAt(t, q, id, queue.Done) // the second attempt succeeds
			continue
		}
		eventuallyAt(t, q, id, queue.Dead) // it never succeeds
		info := inspect(t, q, id)
		if !strings.Contains(info.LastError, "in middleware") || !strings.Contains(info.LastError, "goroutine") {
			t.Errorf("last error has no value or no stack: %q", info.LastError)
		}
	}
	seen.with(func() {
		panics := 0
		for _, e := range seen.ended {
			if e.Reason == consumer.FailedPanic && e.Outcome == queue.Retried {
				panics++
			}
		}
		if panics < len(kinds) {
			t.Errorf("%d attempts ended in a panic, want one for each of %d kinds: %+v", panics, len(kinds), seen.ended)
		}
	})
	if caught.Load() != 3 {
		t.Errorf("middleware saw %d panics as errors, want 3", caught.Load())
	}
	if s := w.Status(); s.Busy+s.Unsettled != 0 || !s.Healthy {
		t.Errorf("status after the panics: %+v", s)
	}
}

// hostile is an observer that panics after each event.
type hostile struct{ *recorder }

func (h hostile) Ended(e consumer.Ended) {
	h.recorder.Ended(e)
	panic("in the observer")
}

// I2: two handlers of three that ignore their contexts for ever. Their slots
// go to others, their tasks run elsewhere with a higher fence while their
// neighbour keeps its lease, and what they return late changes nothing.
func TestI2StuckHandlers(t *testing.T) {
	// Long enough that a loaded machine does not keep the neighbour's lease
	// from being renewed, which would rightly start it again.
	q := newQueue(t, func(c *queue.Config) { c.Lease = 1500 * time.Millisecond })
	var seen recorder
	release := make(chan struct{})
	fences := make(chan queue.Fence, 2)
	var neighbour atomic.Int64
	goOn := make(chan struct{})
	var mux consumer.Mux
	consumer.HandleTask(&mux, "stuck", func(_ context.Context, d consumer.Delivery) ([]byte, error) {
		fences <- d.Lease.Fence
		<-release
		return []byte("late"), nil
	}, consumer.KindConfig{Timeout: 50 * time.Millisecond})
	consumer.HandleTask(&mux, "long", func(ctx context.Context, d consumer.Delivery) ([]byte, error) {
		neighbour.Add(1)
		select {
		case <-goOn:
			return []byte("long"), nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	})
	consumer.HandleTask(&mux, "good", func(context.Context, consumer.Delivery) ([]byte, error) { return nil, nil })
	stuck := []queue.Task{{ID: "s1", Kind: "stuck"}, {ID: "s2", Kind: "stuck"}}
	enqueue(t, q, append(stuck, queue.Task{ID: "long", Kind: "long"})...)
	w := run(t, q, consumer.Config{Handler: &mux, Concurrency: 3, Grace: 50 * time.Millisecond, Observer: &seen})
	old := []queue.Fence{<-fences, <-fences}
	eventually(t, "two are stuck", func() bool { return w.Status().Stuck == 2 })
	if s := w.Status(); !s.Healthy {
		t.Errorf("unhealthy with two stuck of three allowed: %v", s.Reasons)
	}
	enqueue(t, q, numbered("good", "good", 10)...)
	for _, task := range numbered("good", "good", 10) {
		eventuallyAt(t, q, task.ID, queue.Done)
	}
	elsewhere := make(chan queue.Fence, 2)
	var second consumer.Mux
	consumer.HandleTask(&second, "stuck", func(_ context.Context, d consumer.Delivery) ([]byte, error) {
		elsewhere <- d.Lease.Fence
		return []byte("in time"), nil
	})
	run(t, q, consumer.Config{Handler: &second})
	for range old {
		if f := receive(t, "started elsewhere", elsewhere); f <= max(old[0], old[1]) {
			t.Errorf("fence %d elsewhere is not above %v", f, old)
		}
	}
	for _, task := range stuck {
		eventuallyAt(t, q, task.ID, queue.Done)
	}
	if p := placeOf(t, q, "long"); p != queue.Pending {
		t.Errorf("the neighbour, still running, is %s", p)
	}
	close(goOn)
	close(release)
	eventually(t, "the late returns were dropped", func() bool {
		n := 0
		seen.with(func() {
			for _, r := range seen.refused {
				if r.Late && r.Kind == "stuck" {
					n++
				}
			}
		})
		return n == 2
	})
	eventuallyAt(t, q, "long", queue.Done)
	if neighbour.Load() != 1 {
		t.Errorf("the neighbour was started %d times: it lost its lease with them", neighbour.Load())
	}
	for _, task := range stuck {
		if i := inspect(t, q, task.ID); string(i.Result) != "in time" {
			t.Errorf("task %s has result %q", task.ID, i.Result)
		}
	}
	eventually(t, "nothing is stuck any more", func() bool { return w.Status().Stuck == 0 && seen.stuck == 0 })
}

// I2, alone: the only worker there is does not start its stuck task beside
// itself, however often it finds it, and runs it again when the first returns.
func TestI2NoSecondRunBesideTheFirst(t *testing.T) {
	q := newQueue(t)
	runs := newLedger()
	var seen recorder
	release := make(chan struct{})
	w := run(t, q, consumer.Config{Concurrency: 2, Timeout: 50 * time.Millisecond, Grace: 50 * time.Millisecond, Observer: &seen,
		Handler: consumer.HandlerFunc(func(_ context.Context, d consumer.Delivery) ([]byte, error) {
			defer runs.begin(d.Task.ID)()
			if d.Lease.Interruptions == 0 {
				<-release
			}
			return nil, nil
		})})
	enqueue(t, q, queue.Task{ID: "T1", Kind: "k"})
	eventually(t, "stuck", func() bool { return w.Status().Stuck == 1 })
	eventually(t, "three passes over the ended lease", func() bool {
		ended := stats(t, q).EndedGrants > 0
		n := 0
		seen.with(func() { n = seen.passes })
		return ended && n >= 3
	})
	if runs.of("T1") != 1 {
		t.Errorf("%d starts while the first goes on", runs.of("T1"))
	}
	close(release)
	eventuallyAt(t, q, "T1", queue.Done)
	if runs.of("T1") != 2 || runs.most != 1 {
		t.Errorf("%d starts, %d at a time, want 2 and 1", runs.of("T1"), runs.most)
	}
}

// I2, policy: with more stuck handlers than allowed the worker says so and
// fetches nothing more.
func TestI2TooManyStuck(t *testing.T) {
	q := newQueue(t)
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	w := run(t, q, consumer.Config{Concurrency: 2, MaxStuck: 1, Timeout: 30 * time.Millisecond, Grace: 30 * time.Millisecond,
		Handler: consumer.HandlerFunc(func(context.Context, consumer.Delivery) ([]byte, error) {
			<-release
			return nil, nil
		})})
	enqueue(t, q, numbered("s", "k", 2)...)
	eventually(t, "two are stuck", func() bool { return w.Status().Stuck == 2 })
	if s := w.Status(); s.Healthy || s.Ready || len(s.Reasons) == 0 {
		t.Errorf("two stuck where one is allowed: %+v", s)
	}
	enqueue(t, q, queue.Task{ID: "good", Kind: "k"})
	throughout(t, 300*time.Millisecond, "the next task is not fetched", func() bool {
		return placeOf(t, q, "good") == queue.Waiting
	})
}

// I3: an outcome is settled although the handler's context has ended, for
// whatever reason.
func TestI3SettleOutlivesTheContext(t *testing.T) {
	for _, how := range []string{"timeout", "drain", "abort"} {
		t.Run(how, func(t *testing.T) {
			q := newQueue(t)
			began := make(chan struct{})
			cfg := consumer.Config{Grace: time.Minute, DrainTimeout: 50 * time.Millisecond,
				Handler: consumer.HandlerFunc(func(ctx context.Context, d consumer.Delivery) ([]byte, error) {
					close(began)
					<-ctx.Done()
					return fmt.Append(nil, context.Cause(ctx)), nil
				})}
			if how == "timeout" {
				cfg.Timeout = 50 * time.Millisecond
			}
			w := run(t, q, cfg)
			enqueue(t, q, queue.Task{ID: "T1", Kind: "k"})
			<-began
			want := consumer.ErrDraining
			switch how {
			case "timeout":
				want = consumer.ErrTaskTimeout
				eventuallyAt(t, q, "T1", queue.Done)
			case "drain":
				w.cancel()
			case "abort":
				w.Abort()
			}
			if how != "timeout" {
				if err := w.wait(); err != nil {
					t.Error(err)
				}
			}
			if i := inspect(t, q, "T1"); i.Place != queue.Done || string(i.Result) != want.Error() {
				t.Errorf("task is %s with result %q, want done with %q", i.Place, i.Result, want)
			}
		})
	}
}

// I4: at the end of its context a worker fetches nothing more, lets what can
// finish finish, hands back at once what it only holds, and hands back what it
// had to stop, without a failure.
func TestI4Drain(t *testing.T) {
	q := newQueue(t)
	var mux consumer.Mux
	began := make(chan string, 7)
	short := make(chan struct{})
	consumer.HandleTask(&mux, "short", func(context.Context, consumer.Delivery) ([]byte, error) {
		began <- "short"
		<-short
		return nil, nil
	})
	consumer.HandleTask(&mux, "long", func(ctx context.Context, _ consumer.Delivery) ([]byte, error) {
		began <- "long"
		<-ctx.Done()
		return nil, context.Cause(ctx)
	})
	enqueue(t, q, append(numbered("short", "short", 5), numbered("long", "long", 2)...)...)
	const drainTimeout = time.Second
	w := run(t, q, consumer.Config{Handler: &mux, Concurrency: 7, Prefetch: 20, DrainTimeout: drainTimeout})
	for range 7 {
		<-began
	}
	held := numbered("held", "short", 20)
	enqueue(t, q, held...)
	eventually(t, "twenty held", func() bool { return w.Status().Held == 20 })

	peerRan := newLedger()
	var peerMux consumer.Mux
	peerMux.Default(func(_ context.Context, d consumer.Delivery) ([]byte, error) {
		defer peerRan.begin(d.Task.ID)()
		return nil, nil
	})
	run(t, q, consumer.Config{Handler: &peerMux, Concurrency: 20})
	w.cancel()
	signal := time.Now()
	eventually(t, "draining", func() bool { return w.Status().State == consumer.StateDraining })
	late := numbered("late", "short", 5)
	enqueue(t, q, late...)
	eventually(t, "the peer ran what was held", func() bool { return peerRan.total() >= 25 })
	t.Logf("handed over after %v", time.Since(signal))
	if d := time.Since(signal); d > 2*time.Second {
		t.Errorf("the peer ran what was held only after %v", d)
	}
	peerRan.everyOnce(t, append(held, late...))
	close(short)
	if err := w.wait(); err != nil {
		t.Errorf("Run: %v", err)
	}
	if d := time.Since(signal); d < drainTimeout || d > drainTimeout+2*time.Second {
		t.Errorf("Run returned after %v", d)
	}
	for _, task := range numbered("short", "short", 5) {
		if p := placeOf(t, q, task.ID); p != queue.Done || peerRan.of(task.ID) != 0 {
			t.Errorf("task %s is %s", task.ID, p)
		}
	}
	for _, task := range numbered("long", "long", 2) {
		eventuallyAt(t, q, task.ID, queue.Done) // on the peer
		if peerRan.of(task.ID) != 1 {
			t.Errorf("task %s ran %d times on the peer", task.ID, peerRan.of(task.ID))
		}
	}
	if s := w.Status(); s.State != consumer.StateStopped || s.Busy+s.Held+s.Unsettled != 0 {
		t.Errorf("status after Run: %+v", s)
	}
}

// I4: a handler that does not stop is named, and Run returns.
func TestI4Abandoned(t *testing.T) {
	q := newQueue(t)
	began, release := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(release) })
	w := run(t, q, consumer.Config{DrainTimeout: 30 * time.Millisecond, AbortGrace: 30 * time.Millisecond,
		Handler: consumer.HandlerFunc(func(context.Context, consumer.Delivery) ([]byte, error) {
			close(began)
			<-release
			return nil, nil
		})})
	enqueue(t, q, queue.Task{ID: "deaf", Kind: "k"})
	<-began
	a, ok := errors.AsType[*consumer.AbandonedError](w.stop())
	if !ok || len(a.Running) != 1 || a.Running[0] != "deaf" {
		t.Errorf("Run returned %v", w.err)
	}
	if err := w.Run(t.Context()); err == nil {
		t.Error("a second Run was accepted")
	}
}
