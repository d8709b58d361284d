package consumer_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/queue"
)

// G5: a queue of weight 3 gets three times the starts of one of weight 1 while
// both have tasks, and all of them when the other is empty.
func TestG5WeightedShare(t *testing.T) {
	q := newQueue(t)
	other := again(t, q, func(c *queue.Config) { c.Name = "other" })
	const n = 400
	enqueue(t, q, numbered("t", "k", n)...)
	enqueue(t, other, numbered("t", "k", n)...)
	var mu sync.Mutex
	starts := map[string]int{}
	var share float64
	w := run(t, q, consumer.Config{Weight: 3, More: []consumer.Weighted{{Queue: other, Weight: 1}}, Concurrency: 8,
		Handler: consumer.HandlerFunc(func(_ context.Context, d consumer.Delivery) ([]byte, error) {
			mu.Lock()
			defer mu.Unlock()
			starts[d.Lease.Queue]++
			if starts["q"]+starts["other"] == n/2 {
				share = float64(starts["q"]) / (n / 2)
			}
			return nil, nil
		})})
	eventually(t, "all done", func() bool { return unfinished(t, q)+unfinished(t, other) == 0 })
	t.Logf("share of the heavier queue: %.2f", share)
	if share < 0.65 || share > 0.85 {
		t.Errorf("the queue of weight 3 in 4 got %.2f of the starts", share)
	}
	if err := w.stop(); err != nil {
		t.Error(err)
	}
}

// A burst in one queue does not keep a rare task of the other waiting for the
// end of it.
func TestG5RareTaskIsNotStarved(t *testing.T) {
	q := newQueue(t)
	rare := again(t, q, func(c *queue.Config) { c.Name = "rare" })
	enqueue(t, q, numbered("t", "k", 2000)...)
	var common atomic.Int64
	before := make(chan int64, 1)
	w := run(t, q, consumer.Config{More: []consumer.Weighted{{Queue: rare}}, Concurrency: 4,
		Handler: consumer.HandlerFunc(func(_ context.Context, d consumer.Delivery) ([]byte, error) {
			if d.Lease.Queue == "rare" {
				before <- common.Load()
				return nil, nil
			}
			common.Add(1)
			<-time.After(time.Millisecond)
			return nil, nil
		})})
	eventually(t, "the burst is under way", func() bool { return common.Load() > 20 })
	at := common.Load()
	enqueue(t, rare, queue.Task{ID: "r", Kind: "k"})
	passed := <-before - at
	t.Logf("%d others were started before it", passed)
	if passed > 200 {
		t.Errorf("%d others were started before the rare task", passed)
	}
	w.Abort()
}

// At no moment has a worker more in hand than slots and prefetch.
func TestFetchNeverExceedsSlotsAndPrefetch(t *testing.T) {
	q := newQueue(t, func(c *queue.Config) { c.Partitions = 3 })
	enqueue(t, q, numbered("t", "k", 600)...)
	w := newWorker(t, q, consumer.Config{Concurrency: 5, Prefetch: 3, Handler: consumer.HandlerFunc(func(context.Context, consumer.Delivery) ([]byte, error) {
		<-time.After(time.Millisecond)
		return nil, nil
	})})
	var most, asked atomic.Int64
	w.WrapRead(func(next func(context.Context, queue.ReadRequest) ([]queue.Entry, error)) func(context.Context, queue.ReadRequest) ([]queue.Entry, error) {
		return func(ctx context.Context, r queue.ReadRequest) ([]queue.Entry, error) {
			n, limit := w.InHand() // what is asked for is counted already
			most.Store(max(most.Load(), int64(n)))
			asked.Store(max(asked.Load(), int64(r.Max)))
			if n > limit || r.Max > limit {
				t.Errorf("%d in hand, asking for %d, limit %d", n, r.Max, limit)
			}
			entries, err := next(ctx, r)
			if len(entries) > r.Max {
				t.Errorf("got %d entries, asked for %d", len(entries), r.Max)
			}
			return entries, err
		}
	})
	start(t, w)
	eventually(t, "all done", func() bool { return unfinished(t, q) == 0 })
	if most.Load() != 8 {
		t.Errorf("at most %d in hand, the limit of 8 was never reached: the test proves nothing", most.Load())
	}
}

// interrupt leaves a task with n interruptions.
func interrupt(t *testing.T, q *queue.Queue, id queue.TaskID, n int) {
	t.Helper()
	ctx := t.Context()
	enqueue(t, q, queue.Task{ID: id, Kind: "k"})
	entries, err := queue.Read(ctx, queue.ReadRequest{Queues: []*queue.Queue{q}, Consumer: "crashing", Max: 1})
	if err != nil || len(entries) != 1 {
		t.Fatalf("read %d entries, %v", len(entries), err)
	}
	for i := range n {
		b, err := q.Begin(ctx, queue.BeginRequest{Token: q.NewToken(), Entries: entries, Start: 1})
		if err != nil || len(b.Deliveries) != 1 {
			t.Fatalf("begin %d: %+v, %v", i, b, err)
		}
		if !b.Deliveries[0].Started {
			q.Start(ctx, []queue.Lease{b.Deliveries[0].Lease})
		}
		eventually(t, "the lease ended", func() bool { s, err := q.Stats(ctx); return err == nil && s.EndedGrants == 1 })
	}
}

// G1: a task that was interrupted twice runs alone.
func TestG1TroubledTaskRunsAlone(t *testing.T) {
	q := newQueue(t, func(c *queue.Config) { c.Lease = 200 * time.Millisecond })
	interrupt(t, q, "poison", 2)
	q = again(t, q, func(c *queue.Config) { c.Lease = time.Second })
	runs := newLedger()
	alone := make(chan struct{})
	w := run(t, q, consumer.Config{Concurrency: 4, Prefetch: 4, Handler: consumer.HandlerFunc(func(_ context.Context, d consumer.Delivery) ([]byte, error) {
		if d.Task.ID == "poison" {
			if n := runs.active(); n != 0 {
				t.Errorf("%d others ran when it started", n)
			}
			if d.Lease.Attempt != 3 || d.Lease.Interruptions != 2 {
				t.Errorf("attempt %d with %d interruptions", d.Lease.Attempt, d.Lease.Interruptions)
			}
			defer runs.begin(d.Task.ID)()
			close(alone)
			<-time.After(300 * time.Millisecond)
			if n := runs.active(); n != 1 {
				t.Errorf("%d others ran beside it", n-1)
			}
			return nil, nil
		}
		defer runs.begin(d.Task.ID)()
		<-time.After(2 * time.Millisecond)
		return nil, nil
	})})
	tasks := numbered("t", "k", 300)
	enqueue(t, q, tasks...)
	<-alone
	eventuallyAt(t, q, "poison", queue.Done)
	eventually(t, "all done", func() bool { return unfinished(t, q) == 0 })
	runs.everyOnce(t, append(tasks, queue.Task{ID: "poison"}))
	if err := w.stop(); err != nil {
		t.Error(err)
	}
}

// A troubled task that gets no turn to run alone is handed back after a lease
// length, and the worker goes on.
func TestG1TroubledTaskDoesNotBlockTheWorker(t *testing.T) {
	q := newQueue(t, func(c *queue.Config) { c.Lease = 300 * time.Millisecond })
	interrupt(t, q, "poison", 2)
	runs := newLedger()
	var seen recorder
	release := make(chan struct{})
	w := newWorker(t, q, consumer.Config{Concurrency: 2, Observer: &seen, Handler: consumer.HandlerFunc(func(_ context.Context, d consumer.Delivery) ([]byte, error) {
		defer runs.begin(d.Task.ID)()
		if d.Task.ID == "long" {
			<-release
		}
		return nil, nil
	})})
	w.WrapServers(func(s consumer.Server) consumer.Server {
		return &lateReclaim{s, func() bool { return runs.of("long") == 1 }}
	})
	enqueue(t, q, queue.Task{ID: "long", Kind: "k"})
	start(t, w)
	eventually(t, "handed back unstarted", func() bool { e, ok := seen.endOf("poison"); return ok && e.Outcome == queue.Released && !e.Ran })
	enqueue(t, q, queue.Task{ID: "next", Kind: "k"})
	eventuallyAt(t, q, "next", queue.Done)
	if runs.of("poison") != 0 {
		t.Error("it ran beside another")
	}
	close(release)
	eventuallyAt(t, q, "poison", queue.Done)
	if runs.of("poison") != 1 || runs.of("long") != 1 {
		t.Errorf("%d and %d starts", runs.of("poison"), runs.of("long"))
	}
}

// lateReclaim finds nothing until ready says so.
type lateReclaim struct {
	consumer.Server
	ready func() bool
}

func (s *lateReclaim) Reclaim(ctx context.Context, r queue.ReclaimRequest) (queue.Reclaimed, error) {
	if !s.ready() {
		return queue.Reclaimed{}, nil
	}
	return s.Server.Reclaim(ctx, r)
}

// G1: at the bound of interruptions the task is a dead letter, not a run.
func TestG1InterruptionsExhausted(t *testing.T) {
	q := newQueue(t, func(c *queue.Config) { c.Lease = 200 * time.Millisecond; c.MaxInterruptions = 2 })
	interrupt(t, q, "poison", 2)
	runs := newLedger()
	run(t, q, consumer.Config{Handler: consumer.HandlerFunc(func(_ context.Context, d consumer.Delivery) ([]byte, error) {
		defer runs.begin(d.Task.ID)()
		return nil, nil
	})})
	eventuallyAt(t, q, "poison", queue.Dead)
	if i := inspect(t, q, "poison"); i.Reason != queue.DeadInterruptions || runs.total() != 0 {
		t.Errorf("reason %q, %d runs", i.Reason, runs.total())
	}
}

// Outcomes a handler may return, on the server.
func TestOutcomes(t *testing.T) {
	q := newQueue(t, func(c *queue.Config) { c.MaxFailures = 2 })
	var seen recorder
	type invoice struct{ Number int }
	var mux consumer.Mux
	consumer.Handle(&mux, "typed", func(_ context.Context, l queue.Lease, in invoice) error {
		if in.Number != 4821 || l.Fence == 0 {
			return consumer.DeadLetter(errors.New("wrong"))
		}
		return nil
	})
	consumer.HandleTask(&mux, "reject", func(context.Context, consumer.Delivery) ([]byte, error) {
		return nil, consumer.DeadLetter(errors.New("card declined"))
	})
	consumer.HandleTask(&mux, "later", func(context.Context, consumer.Delivery) ([]byte, error) {
		return nil, consumer.RetryAfter(time.Hour, errors.New("limit"))
	})
	consumer.HandleTask(&mux, "back", func(context.Context, consumer.Delivery) ([]byte, error) {
		return nil, consumer.Release(nil)
	})
	consumer.HandleTask(&mux, "fails", func(context.Context, consumer.Delivery) ([]byte, error) {
		return nil, errors.New("always")
	})
	run(t, q, consumer.Config{Handler: &mux, Observer: &seen, RetryBase: time.Millisecond, RetryMax: 10 * time.Millisecond})
	good, err := queue.NewTask("typed", invoice{4821})
	if err != nil {
		t.Fatal(err)
	}
	good.ID = "good"
	enqueue(t, q, good,
		queue.Task{ID: "garbled", Kind: "typed", Payload: []byte(`{"Number": "secret"}`)},
		queue.Task{ID: "reject", Kind: "reject"}, queue.Task{ID: "later", Kind: "later"},
		queue.Task{ID: "back", Kind: "back"}, queue.Task{ID: "fails", Kind: "fails"},
		queue.Task{ID: "unknown", Kind: "unknown"},
		queue.Task{ID: "expired", Kind: "typed", Deadline: time.Now().Add(-time.Second)},
	)
	eventuallyAt(t, q, "good", queue.Done)
	for id, want := range map[queue.TaskID]queue.DeadReason{
		"garbled": queue.DeadRejected, "reject": queue.DeadRejected, "fails": queue.DeadFailures, "expired": queue.DeadDeadline,
	} {
		eventuallyAt(t, q, id, queue.Dead)
		i := inspect(t, q, id)
		if i.Reason != want || strings.Contains(i.LastError, "secret") {
			t.Errorf("task %s: reason %q, want %q; last error %q", id, i.Reason, want, i.LastError)
		}
		eventually(t, "told", func() bool {
			e, ok := seen.endOf(id)
			return ok && e.Outcome == queue.DeadLettered && e.DeadReason == want
		})
	}
	for id, failures := range map[queue.TaskID]int{"later": 1, "unknown": 0} {
		eventuallyAt(t, q, id, queue.Scheduled)
		i := inspect(t, q, id)
		if i.Failures != failures {
			t.Errorf("task %s has %d failures, want %d", id, i.Failures, failures)
		}
		if id == "later" && time.Until(i.Due) < 59*time.Minute {
			t.Errorf("due in %v", time.Until(i.Due))
		}
	}
	eventually(t, "handed back", func() bool { e, ok := seen.endOf("back"); return ok && e.Outcome == queue.Released && e.Ran })
	if i := inspect(t, q, "back"); i.Failures != 0 {
		t.Errorf("a release counted %d failures", i.Failures)
	}
	if e, _ := seen.endOf("unknown"); e.Reason != consumer.FailedNoHandler || e.Ran {
		t.Errorf("unknown kind: %+v", e)
	}
	if e, _ := seen.endOf("garbled"); e.Reason != consumer.FailedDecode {
		t.Errorf("garbled payload: %+v", e)
	}
}

// Scheduled tasks are promoted by the worker.
func TestPromote(t *testing.T) {
	q := newQueue(t)
	var seen recorder
	run(t, q, consumer.Config{Observer: &seen, Handler: consumer.HandlerFunc(func(context.Context, consumer.Delivery) ([]byte, error) { return nil, nil })})
	tasks := numbered("t", "k", 250)
	for i := range tasks {
		tasks[i].Delay = 200 * time.Millisecond
	}
	enqueue(t, q, tasks...)
	eventually(t, "all done", func() bool { return unfinished(t, q) == 0 })
	eventually(t, "all counted", func() bool { n := 0; seen.with(func() { n = seen.promoted }); return n == 250 })
}
