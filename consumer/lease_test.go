package consumer_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/internal/faultredis"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/queue"
	"github.com/redis/go-redis/v9"
)

// proxied opens q through a proxy that the test can break.
func proxied(t *testing.T, q *queue.Queue) (*queue.Queue, *faultredis.Proxy) {
	t.Helper()
	s := redistest.Shared(t)
	proxy := faultredis.NewProxy(t, s.Addr())
	client := s.Client(func(o *redis.Options) { o.Addr = proxy.Addr() })
	return again(t, q, func(c *queue.Config) { c.Client = client }), proxy
}

// noRenewal is a queue whose renewals never come through.
type noRenewal struct{ consumer.Server }

func (noRenewal) Renew(_ context.Context, grants []queue.Grant) []queue.Renewal {
	out := make([]queue.Renewal, len(grants))
	for i := range out {
		out[i] = queue.Renewal{Grant: grants[i], Err: queue.ErrUnavailable}
	}
	return out
}

// A1: a task that takes many times its lease is started once, although two
// workers look for ended leases all the while.
func TestA1LongTaskStartsOnce(t *testing.T) {
	q := newQueue(t)
	runs := newLedger()
	handler := consumer.HandlerFunc(func(ctx context.Context, d consumer.Delivery) ([]byte, error) {
		defer runs.begin(d.Task.ID)()
		select {
		case <-time.After(6 * q.Config().Lease):
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	})
	var seen recorder
	for range 2 {
		run(t, q, consumer.Config{Handler: handler, Concurrency: 4, Observer: &seen})
	}
	enqueue(t, q, queue.Task{ID: "T1", Kind: "k"})
	eventuallyAt(t, q, "T1", queue.Done)
	if n := runs.of("T1"); n != 1 {
		t.Errorf("started %d times, want 1", n)
	}
	if lost, _ := seen.counts(); lost != 0 || seen.swept != 0 {
		t.Errorf("%d leases lost, %d entries reclaimed, want none", lost, seen.swept)
	}
	if seen.renewals.Grants < 10 {
		t.Errorf("%d renewals in six lease lengths, want one each third", seen.renewals.Grants)
	}
}

// A1, second part: a worker is cut off for good; its task starts on exactly
// one of two survivors, within the lease and one pass.
func TestA1CrashIsNoticed(t *testing.T) {
	q := newQueue(t)
	runs := newLedger()
	dead, proxy := proxied(t, q)
	began := make(chan struct{})
	run(t, dead, consumer.Config{AbortGrace: time.Millisecond, DrainTimeout: time.Millisecond,
		Handler: consumer.HandlerFunc(func(ctx context.Context, d consumer.Delivery) ([]byte, error) {
			close(began)
			<-ctx.Done()
			return nil, context.Cause(ctx)
		})})
	enqueue(t, q, queue.Task{ID: "T2", Kind: "k"})
	<-began
	for range 2 {
		run(t, q, consumer.Config{Handler: consumer.HandlerFunc(func(_ context.Context, d consumer.Delivery) ([]byte, error) {
			defer runs.begin(d.Task.ID)()
			return nil, nil
		})})
	}
	proxy.Refuse()
	proxy.Cut()
	gone := time.Now()
	eventuallyAt(t, q, "T2", queue.Done)
	if n := runs.of("T2"); n != 1 {
		t.Errorf("started %d times on the survivors, want 1", n)
	}
	after := runs.at["T2"][0].Sub(gone)
	t.Logf("running again after %v with a lease of %v", after, q.Config().Lease)
	if after > q.Config().Lease+time.Second {
		t.Errorf("running again after %v, want the lease and a second at most", after)
	}
	if info := inspect(t, q, "T2"); info.Failures != 0 {
		t.Errorf("the crash used up %d attempts", info.Failures)
	}
}

// A2: with renewals switched off, a worker alone never runs its own task a
// second time beside itself, and the task that nobody took still settles.
func TestA2NoSelfClaim(t *testing.T) {
	q := newQueue(t)
	runs := newLedger()
	var seen recorder
	var attempts atomic.Int64
	w := newWorker(t, q, consumer.Config{Concurrency: 4, Observer: &seen,
		Handler: consumer.HandlerFunc(func(_ context.Context, d consumer.Delivery) ([]byte, error) {
			defer runs.begin(d.Task.ID)()
			attempts.Store(int64(d.Lease.Attempt))
			<-time.After(4 * q.Config().Lease) // deaf to its context
			return nil, nil
		})})
	w.WrapServers(func(s consumer.Server) consumer.Server { return noRenewal{s} })
	start(t, w)
	enqueue(t, q, queue.Task{ID: "T1", Kind: "k"})
	eventuallyAt(t, q, "T1", queue.Done)
	if runs.most != 1 || runs.of("T1") != 1 || attempts.Load() != 1 {
		t.Errorf("%d runs at a time, %d starts, attempt %d, want 1 each", runs.most, runs.of("T1"), attempts.Load())
	}
	if seen.passes == 0 {
		t.Error("no pass looked while the lease was lost: the test proves nothing")
	}
	if seen.swept != 0 {
		t.Errorf("%d entries taken from itself, want none", seen.swept)
	}
	if lost, _ := seen.counts(); lost != 1 {
		t.Errorf("%d leases seen to lapse, want 1", lost)
	}
}

// A4: tasks that wait in a worker keep their lease and start once, and a task
// that lost its lease while it waited is dropped.
func TestA4HeldTasksAreRenewed(t *testing.T) {
	q := newQueue(t)
	runs := newLedger()
	var idle atomic.Int64
	handler := func(count *atomic.Int64) consumer.HandlerFunc {
		return func(_ context.Context, d consumer.Delivery) ([]byte, error) {
			defer runs.begin(d.Task.ID)()
			if count != nil {
				count.Add(1)
			}
			<-time.After(q.Config().Lease / 4)
			return nil, nil
		}
	}
	tasks := numbered("t", "k", 12)
	enqueue(t, q, tasks...)
	busy := run(t, q, consumer.Config{Handler: handler(nil), Concurrency: 1, Prefetch: 11})
	eventually(t, "the first worker holds what it may", func() bool { return busy.Status().Held > 5 })
	more := numbered("u", "k", 12)
	enqueue(t, q, more...)
	run(t, q, consumer.Config{Handler: handler(&idle), Concurrency: 1})
	eventually(t, "all done", func() bool { return unfinished(t, q) == 0 })
	runs.everyOnce(t, append(tasks, more...))
	if idle.Load() < 6 {
		t.Errorf("the second worker ran %d of 24", idle.Load())
	}
}

func TestA4HeldTaskThatLostItsLeaseIsDropped(t *testing.T) {
	q := newQueue(t)
	runs := newLedger()
	var seen recorder
	w := newWorker(t, q, consumer.Config{Concurrency: 1, Prefetch: 4, Observer: &seen, Grace: time.Minute,
		Handler: consumer.HandlerFunc(func(_ context.Context, d consumer.Delivery) ([]byte, error) {
			defer runs.begin(d.Task.ID)()
			<-time.After(3 * q.Config().Lease)
			return nil, nil
		})})
	w.WrapServers(func(s consumer.Server) consumer.Server { return noRenewal{s} })
	tasks := numbered("t", "k", 5)
	enqueue(t, q, tasks...)
	start(t, w)
	eventually(t, "four held", func() bool { return w.Status().Held == 4 })
	eventually(t, "all leases seen to lapse", func() bool { n, _ := seen.counts(); return n >= 5 })
	if n := runs.total(); n != 1 {
		t.Fatalf("%d tasks were started, want only the first", n)
	}
	run(t, q, consumer.Config{Handler: consumer.HandlerFunc(func(_ context.Context, d consumer.Delivery) ([]byte, error) {
		defer runs.begin(d.Task.ID)()
		return nil, nil
	})})
	eventually(t, "the rest runs elsewhere", func() bool { return runs.total() >= 5 })
	for _, task := range tasks[1:] {
		if i := inspect(t, q, task.ID); i.Interruptions != 0 {
			t.Errorf("task %s, never started there, counts %d interruptions", task.ID, i.Interruptions)
		}
	}
}

// A5: a worker that is cut off ends its handler's context, with the cause,
// before the lease ends; another takes over; the late outcome is refused.
func TestA5ContextEndsBeforeTheLease(t *testing.T) {
	for _, how := range []string{"refused", "hanging"} {
		t.Run(how, func(t *testing.T) {
			q := newQueue(t)
			var seen recorder
			far, proxy := proxied(t, q)
			type verdict struct {
				cause error
				at    time.Time
			}
			ended := make(chan verdict, 1)
			began := make(chan struct{})
			finish := make(chan struct{})
			var once sync.Once
			cut := run(t, far, consumer.Config{Observer: &seen, Grace: time.Minute,
				Handler: consumer.HandlerFunc(func(ctx context.Context, d consumer.Delivery) ([]byte, error) {
					once.Do(func() { close(began) })
					<-ctx.Done()
					ended <- verdict{context.Cause(ctx), time.Now()}
					<-finish
					return nil, nil // late
				})})
			t.Cleanup(sync.OnceFunc(func() { proxy.Heal() }))
			enqueue(t, q, queue.Task{ID: "T1", Kind: "k"})
			<-began
			if how == "refused" {
				proxy.Refuse()
				proxy.Cut()
			} else {
				proxy.BlackholeRequests()
			}
			at := time.Now()
			v := receive(t, "the context ended", ended)
			if !errors.Is(v.cause, queue.ErrLeaseLost) {
				t.Errorf("context ended with %v, want ErrLeaseLost", v.cause)
			}
			if took := v.at.Sub(at); took > q.Config().Lease {
				t.Errorf("context ended %v after the cut, later than a lease of %v", took, q.Config().Lease)
			}
			if i := inspect(t, q, "T1"); !i.LeaseEnds.After(v.at) && how == "refused" {
				t.Errorf("the lease had ended %v before the context", v.at.Sub(i.LeaseEnds))
			}
			other := newLedger()
			run(t, q, consumer.Config{Handler: consumer.HandlerFunc(func(_ context.Context, d consumer.Delivery) ([]byte, error) {
				defer other.begin(d.Task.ID)()
				return []byte("second"), nil
			})})
			eventuallyAt(t, q, "T1", queue.Done)
			proxy.Cut() // what was held back never arrives
			proxy.Heal()
			close(finish)
			eventually(t, "the late outcome was refused", func() bool { _, n := seen.counts(); return n == 1 })
			if other.total() != 1 {
				t.Errorf("started %d times elsewhere, want 1", other.total())
			}
			if i := inspect(t, q, "T1"); string(i.Result) != "second" {
				t.Errorf("result is %q: the late outcome changed it", i.Result)
			}
			if err := cut.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A6, K1: a task deleted while it runs ends the handler's context.
func TestDeletedTaskIsRevoked(t *testing.T) {
	q := newQueue(t)
	var seen recorder
	began, cause := make(chan struct{}), make(chan error, 1)
	run(t, q, consumer.Config{Observer: &seen, Handler: consumer.HandlerFunc(func(ctx context.Context, d consumer.Delivery) ([]byte, error) {
		close(began)
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return nil, nil
	})})
	enqueue(t, q, queue.Task{ID: "T1", Kind: "k"})
	<-began
	if m := q.Delete(t.Context(), []queue.TaskID{"T1"}); m[0].Err != nil {
		t.Fatal(m[0].Err)
	}
	if err := receive(t, "the context ended", cause); !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("context ended with %v", err)
	}
	eventually(t, "the outcome was dropped", func() bool { _, n := seen.counts(); return n == 1 })
	if p := placeOf(t, q, "T1"); p != queue.Unknown {
		t.Errorf("the deleted task is %s", p)
	}
}

// A grant of which a task was dropped unsettled is not ended by the settlement
// of its last neighbour: the server needs it to find the one that was dropped.
func TestDroppedTaskKeepsItsGrant(t *testing.T) {
	q := newQueue(t)
	bothStarted := make(chan struct{})
	var starts atomic.Int64
	dropped := make(chan struct{})
	w := newWorker(t, q, consumer.Config{Concurrency: 2, Handler: consumer.HandlerFunc(func(ctx context.Context, d consumer.Delivery) ([]byte, error) {
		if starts.Add(1) == 2 {
			close(bothStarted)
		}
		if d.Lease.Interruptions > 0 {
			return nil, nil
		}
		<-bothStarted
		<-ctx.Done() // the lease has lapsed
		if d.Task.ID == "T1" {
			defer close(dropped)
			return nil, context.Cause(ctx) // dropped
		}
		<-dropped
		return nil, nil // offered all the same
	})})
	var ends atomic.Int64
	w.WrapServers(func(s consumer.Server) consumer.Server { return endsSeen{noRenewal{s}, &ends} })
	enqueue(t, q, queue.Task{ID: "T1", Kind: "k"}, queue.Task{ID: "T2", Kind: "k"})
	start(t, w)
	eventuallyAt(t, q, "T1", queue.Done)
	eventuallyAt(t, q, "T2", queue.Done)
	if ends.Load() != 0 {
		t.Error("the grant was ended with a task of it unsettled")
	}
}

// endsSeen counts settlements of a first attempt that end their grant.
type endsSeen struct {
	consumer.Server
	ends *atomic.Int64
}

func (e endsSeen) Complete(ctx context.Context, s []queue.Settlement) []queue.Settled {
	for _, x := range s {
		if x.EndsGrant && x.Lease.Attempt == 1 {
			e.ends.Add(1)
		}
	}
	return e.Server.Complete(ctx, s)
}
