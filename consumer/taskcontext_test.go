package consumer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/queue"
)

type valueKey struct{}

func newTaskContext() *taskContext {
	return &taskContext{values: context.WithValue(context.Background(), valueKey{}, "value"), deadline: time.Now().Add(time.Hour)}
}

// TestTaskContext: it ends once, with what the first end said, and so do those
// that are derived from it, before and after.
func TestTaskContext(t *testing.T) {
	for _, c := range []struct{ err, cause, want error }{
		{context.Canceled, queue.ErrLeaseLost, queue.ErrLeaseLost},
		{context.Canceled, ErrDraining, ErrDraining},
		{context.DeadlineExceeded, ErrTaskTimeout, ErrTaskTimeout},
		{context.Canceled, nil, context.Canceled},
	} {
		ctx := newTaskContext()
		derive := func() map[string]context.Context {
			canceled, cancel := context.WithCancel(ctx)
			t.Cleanup(cancel)
			timed, cancel := context.WithTimeout(context.WithValue(ctx, t, 1), time.Minute)
			t.Cleanup(cancel)
			long, cancel := context.WithTimeout(ctx, 2*time.Hour)
			t.Cleanup(cancel)
			caused, end := context.WithCancelCause(canceled)
			t.Cleanup(func() { end(nil) })
			return map[string]context.Context{"itself": ctx, "canceled": canceled, "timed": timed, "long": long, "caused": caused}
		}
		all := derive()
		for name, d := range all {
			if d.Err() != nil || context.Cause(d) != nil || isClosed(d.Done()) || d.Value(valueKey{}) != "value" {
				t.Errorf("%s: has ended: %v, %v", name, d.Err(), context.Cause(d))
			}
		}
		if at, ok := all["long"].Deadline(); !ok || !at.Equal(ctx.deadline) {
			t.Errorf("deadline %v of a longer one, want %v", at, ctx.deadline)
		}
		ctx.end(c.err, c.cause)
		ctx.end(context.Canceled, errors.New("a later cause"))
		for when, all := range map[string]map[string]context.Context{"before": all, "after": derive()} {
			for name, d := range all {
				<-d.Done()
				if d.Err() != c.err || context.Cause(d) != c.want || d.Value(valueKey{}) != "value" {
					t.Errorf("%s, derived %s: %v, %v, want %v, %v", name, when, d.Err(), context.Cause(d), c.err, c.want)
				}
			}
		}
		if free := context.WithoutCancel(ctx); free.Err() != nil || context.Cause(free) != nil || free.Value(valueKey{}) != "value" {
			t.Errorf("without cancel: %v, %v", free.Err(), context.Cause(free))
		}
	}
}

// Contexts that are derived from it cost no goroutine, and leave nothing behind
// when they end before it.
func TestTaskContextDerivedCostNoGoroutine(t *testing.T) {
	ctx := newTaskContext()
	before := runtime.NumGoroutine()
	var cancels []context.CancelFunc
	for range 1000 {
		_, cancel := context.WithCancel(ctx)
		cancels = append(cancels, cancel)
	}
	if n := runtime.NumGoroutine() - before; n > 100 {
		t.Errorf("%d goroutines for 1000 contexts", n)
	}
	for _, cancel := range cancels {
		cancel()
	}
	if len(ctx.after) != 0 {
		t.Errorf("%d are left behind", len(ctx.after))
	}
}

func TestTaskContextAfterFunc(t *testing.T) {
	ctx := newTaskContext()
	ran := make(chan string, 4)
	stop := context.AfterFunc(ctx, func() { ran <- "stopped" })
	if !stop() || stop() {
		t.Error("stop says that it was too late, or does so twice")
	}
	for _, how := range []func(func()) func() bool{ctx.AfterFunc, func(f func()) func() bool { return context.AfterFunc(ctx, f) }} {
		late := how(func() { ran <- "before" })
		defer func() {
			if late() {
				t.Error("stop says that it was in time")
			}
		}()
	}
	ctx.end(context.Canceled, ErrDraining)
	if ctx.AfterFunc(func() { ran <- "after" })() {
		t.Error("what is asked for after the end can be stopped")
	}
	seen := map[string]int{}
	for range 3 {
		seen[<-ran]++
	}
	if seen["before"] != 2 || seen["after"] != 1 {
		t.Errorf("called: %v", seen)
	}
}

// TestTimeoutsAreExact: a handler's context ends when its timeout is over and
// not when the watch loop happens to look, whatever runs beside it.
func TestTimeoutsAreExact(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // never connected
	t.Cleanup(func() { client.Close() })
	q, err := queue.New(queue.Config{Name: "q", Client: client, ReadClient: client})
	if err != nil {
		t.Fatal(err)
	}
	timeouts := []time.Duration{10 * time.Minute, 1700 * time.Millisecond, 3 * time.Millisecond, 250 * time.Millisecond, 20 * time.Second, time.Millisecond}
	synctest.Test(t, func(t *testing.T) {
		a := &answering{tasks: make(chan queue.Task, 100), add: accepts}
		var mu sync.Mutex
		took := map[string]time.Duration{}
		var mux Mux
		for i, d := range timeouts {
			HandleTask(&mux, fmt.Sprint("k", i), func(ctx context.Context, d Delivery) ([]byte, error) {
				began := time.Now()
				<-ctx.Done()
				mu.Lock()
				defer mu.Unlock()
				took[d.Task.Kind] = time.Since(began)
				if ctx.Err() != context.DeadlineExceeded || context.Cause(ctx) != ErrTaskTimeout {
					t.Errorf("%v, %v", ctx.Err(), context.Cause(ctx))
				}
				return nil, nil
			}, KindConfig{Timeout: d})
		}
		w, err := New(q, Config{Handler: &mux})
		if err != nil {
			t.Fatal(err)
		}
		w.sources[0].server, w.read = a, a.read
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		for i := range timeouts {
			time.Sleep(77 * time.Millisecond)
			a.tasks <- queue.Task{ID: queue.TaskID(fmt.Sprint(i)), Kind: fmt.Sprint("k", i)}
		}
		time.Sleep(30 * time.Second)
		mu.Lock()
		for i, want := range timeouts[1:] {
			if got := took[fmt.Sprint("k", i+1)]; got != want {
				t.Errorf("a timeout of %v came after %v", want, got)
			}
		}
		mu.Unlock()
		time.Sleep(10 * time.Minute)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
