package consumer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
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

// D7: the server is away for three lease lengths while twenty handlers
// finish. Their outcomes are kept, and settled when it is back.
func TestD7OutcomesAreKept(t *testing.T) {
	for _, how := range []string{"refused", "replies lost"} {
		t.Run(how, func(t *testing.T) {
			q := newQueue(t)
			far, proxy := proxied(t, q)
			runs := newLedger()
			finish := make(chan struct{})
			w := run(t, far, consumer.Config{Concurrency: 20, MaxUnsettled: 40, Grace: time.Minute,
				Handler: consumer.HandlerFunc(func(_ context.Context, d consumer.Delivery) ([]byte, error) {
					defer runs.begin(d.Task.ID)()
					<-finish
					return nil, nil
				})})
			tasks := numbered("t", "k", 20)
			enqueue(t, q, tasks...)
			eventually(t, "twenty run", func() bool { return runs.total() == 20 })
			if how == "refused" {
				proxy.Refuse()
				proxy.Cut()
			} else {
				proxy.BlackholeReplies()
			}
			close(finish)
			eventually(t, "twenty outcomes are kept", func() bool {
				s := w.Status()
				return s.Unsettled == 20 || how != "refused" && s.Busy == 0
			})
			away := time.Now()
			throughout(t, 3*q.Config().Lease, "no handler starts", func() bool { return runs.total() == 20 })
			if s := w.Status(); how == "refused" && (s.Ready || !s.Healthy) {
				t.Errorf("with the server away: ready %v, healthy %v: %v", s.Ready, s.Healthy, s.Reasons)
			}
			proxy.Heal()
			proxy.Cut()
			eventually(t, "all settled", func() bool { return unfinished(t, q) == 0 && w.Status().Unsettled == 0 })
			t.Logf("settled %v after the cut", time.Since(away))
			runs.everyOnce(t, tasks)
			for _, task := range tasks {
				if p := placeOf(t, q, task.ID); p != queue.Done {
					t.Errorf("task %s is %s", task.ID, p)
				}
			}
			eventually(t, "ready again", func() bool { return w.Status().Ready })
		})
	}
}

// D7: the outcomes kept are bounded: with as many as allowed nothing more
// starts, and everything runs once the server takes them.
func TestD7KeptOutcomesAreBounded(t *testing.T) {
	q := newQueue(t, func(c *queue.Config) { c.Lease = 5 * time.Second })
	runs := newLedger()
	var away atomic.Bool
	w := newWorker(t, q, consumer.Config{Concurrency: 4, Prefetch: 20, MaxUnsettled: 8,
		Handler: consumer.HandlerFunc(func(_ context.Context, d consumer.Delivery) ([]byte, error) {
			defer runs.begin(d.Task.ID)()
			return nil, nil
		})})
	w.WrapServers(func(s consumer.Server) consumer.Server { return &noSettle{s, &away} })
	away.Store(true)
	enqueue(t, q, numbered("t", "k", 60)...)
	start(t, w)
	eventually(t, "the bound is reached", func() bool { return w.Status().Unsettled >= 8 })
	throughout(t, 300*time.Millisecond, "bounded", func() bool { return w.Status().Unsettled < 8+4 && runs.total() < 8+4 })
	if w.Status().Ready {
		t.Error("ready although it takes nothing more")
	}
	away.Store(false)
	eventually(t, "all done", func() bool { return unfinished(t, q) == 0 })
	runs.everyOnce(t, numbered("t", "k", 60))
}

type noSettle struct {
	consumer.Server
	away *atomic.Bool
}

func (s *noSettle) Complete(ctx context.Context, in []queue.Settlement) []queue.Settled {
	if !s.away.Load() {
		return s.Server.Complete(ctx, in)
	}
	out := make([]queue.Settled, len(in))
	for i := range out {
		out[i] = queue.Settled{TaskID: in[i].Lease.TaskID, Err: queue.ErrUnavailable}
	}
	return out
}

// I7: replies of the calls that a worker makes get lost, each in turn. Every
// task still runs once and is done.
func TestLostReplies(t *testing.T) {
	for _, name := range []string{"begin", "start", "complete", "turn", "xreadgroup"} {
		t.Run(name, func(t *testing.T) {
			client := redistest.Shared(t).Client()
			q := newQueue(t, func(c *queue.Config) { c.Client = client })
			runs := newLedger()
			w := newWorker(t, q, consumer.Config{Concurrency: 2, Prefetch: 2, Handler: consumer.HandlerFunc(func(_ context.Context, d consumer.Delivery) ([]byte, error) {
				if d.Lease.Attempt != 1 {
					t.Errorf("task %s: attempt %d, although nothing failed", d.Task.ID, d.Lease.Attempt)
				}
				defer runs.begin(d.Task.ID)()
				return nil, nil
			})})
			var lost atomic.Int64
			w.WrapServers(func(s consumer.Server) consumer.Server { return &forgetful{Server: s, name: name, lost: &lost} })
			w.WrapRead(func(next func(context.Context, queue.ReadRequest) ([]queue.Entry, error)) func(context.Context, queue.ReadRequest) ([]queue.Entry, error) {
				return func(ctx context.Context, r queue.ReadRequest) ([]queue.Entry, error) {
					entries, err := next(ctx, r)
					if name == "xreadgroup" && len(entries) > 0 && lost.Add(1) <= 2 {
						return nil, queue.ErrIndefinite
					}
					return entries, err
				}
			})
			tasks := numbered("t", "k", 20)
			enqueue(t, q, tasks...)
			first := w.Status().Consumer
			start(t, w)
			eventually(t, "all done", func() bool { return unfinished(t, q) == 0 })
			runs.everyOnce(t, tasks)
			if lost.Load() == 0 {
				t.Error("no reply was lost: the test proves nothing")
			}
			if changed := w.Status().Consumer != first; changed != (name == "xreadgroup") {
				t.Errorf("consumer name changed: %v", changed)
			}
		})
	}
}

// forgetful loses every third reply of one call.
type forgetful struct {
	consumer.Server
	name  string
	calls atomic.Int64
	lost  *atomic.Int64
}

func (f *forgetful) lose(name string) bool {
	if f.name != name || f.calls.Add(1)%3 != 1 {
		return false
	}
	f.lost.Add(1)
	return true
}

func (f *forgetful) Begin(ctx context.Context, r queue.BeginRequest) (queue.Batch, error) {
	b, err := f.Server.Begin(ctx, r)
	if f.lose("begin") {
		return queue.Batch{}, queue.ErrIndefinite
	}
	return b, err
}

func (f *forgetful) Start(ctx context.Context, l []queue.Lease) []error {
	errs := f.Server.Start(ctx, l)
	if f.lose("start") {
		return slices.Repeat([]error{queue.ErrIndefinite}, len(l))
	}
	return errs
}

func (f *forgetful) Complete(ctx context.Context, in []queue.Settlement) []queue.Settled {
	out := f.Server.Complete(ctx, in)
	if f.lose("complete") {
		for i := range out {
			out[i] = queue.Settled{TaskID: out[i].TaskID, Err: queue.ErrIndefinite}
		}
	}
	return out
}

func (f *forgetful) Turn(ctx context.Context, r queue.TurnRequest) []queue.Turn {
	turns := f.Server.Turn(ctx, r)
	if f.lose("turn") {
		for i := range turns {
			turns[i] = queue.Turn{Partition: i, Err: queue.ErrIndefinite}
		}
	}
	return turns
}

// D6: no error that a read can be answered with ends the loop.
func TestD6UnusualErrors(t *testing.T) {
	q := newQueue(t)
	hook := faultredis.New(q.Config().Client.(*redis.Client))
	q = again(t, q, func(c *queue.Config) { c.ReadClient = c.Client })
	runs := newLedger()
	w := run(t, q, consumer.Config{Handler: consumer.HandlerFunc(func(_ context.Context, d consumer.Delivery) ([]byte, error) {
		defer runs.begin(d.Task.ID)()
		return nil, nil
	})})
	reads := faultredis.Command("xreadgroup")
	for i, text := range []string{
		"UNBLOCKED the stream key no longer exists", "LOADING Redis is loading", "BUSY running a script",
		"CLUSTERDOWN Hash slot not served", "MASTERDOWN Link down", "TRYAGAIN Multiple keys", "OOM command not allowed",
		"NOAUTH Authentication required.", "WRONGPASS invalid", "WRONGTYPE Operation against", "ERR NOGROUP No such key", "",
	} {
		fault := faultredis.ReplyError(reads, text)
		if text == "" {
			fault = faultredis.FailBefore(reads)
		}
		injected := hook.Inject(fault.Once())
		eventually(t, text+" was answered", func() bool { return injected.Fired() == 1 })
		id := queue.TaskID(fmt.Sprintf("t%d", i))
		enqueue(t, q, queue.Task{ID: id, Kind: "k"})
		eventuallyAt(t, q, id, queue.Done)
	}
	// An error that stays is told, without a flood, and heals.
	stays := hook.Inject(faultredis.ReplyError(reads, "NOAUTH Authentication required."))
	eventually(t, "not ready", func() bool {
		s := w.Status()
		return !s.Ready && s.Healthy && strings.Contains(fmt.Sprint(s.Reasons), "NOAUTH")
	})
	stays.Remove()
	eventually(t, "ready again", func() bool { return w.Status().Ready })
}

// C1: the group and the stream vanish while workers run. They heal without a
// restart, and without a flood of log lines or calls.
func TestC1GroupVanishes(t *testing.T) {
	q := newQueue(t)
	rdb := q.Config().Client
	var logs lockedBuffer
	runs := newLedger()
	var seen recorder
	run(t, q, consumer.Config{Logger: slog.New(slog.NewTextHandler(&logs, nil)), Observer: &seen,
		Handler: consumer.HandlerFunc(func(_ context.Context, d consumer.Delivery) ([]byte, error) {
			defer runs.begin(d.Task.ID)()
			return nil, nil
		})})
	enqueue(t, q, queue.Task{ID: "before", Kind: "k"})
	eventuallyAt(t, q, "before", queue.Done)
	if err := rdb.Del(t.Context(), q.StreamKey(0)).Err(); err != nil {
		t.Fatal(err)
	}
	enqueue(t, q, queue.Task{ID: "after", Kind: "k"})
	eventuallyAt(t, q, "after", queue.Done)
	// Worse: the group is destroyed again and again.
	end := time.Now().Add(1500 * time.Millisecond)
	throughout(t, time.Until(end), "destroying the group", func() bool {
		rdb.XGroupDestroy(context.Background(), q.StreamKey(0), queue.Group)
		return true
	})
	enqueue(t, q, queue.Task{ID: "last", Kind: "k"})
	eventuallyAt(t, q, "last", queue.Done)
	if n := strings.Count(logs.String(), "server call failed"); n > 8 {
		t.Errorf("%d log lines about it in two seconds", n)
	}
	seen.with(func() {
		if n := len(seen.errors); n == 0 || n > 60 {
			t.Errorf("%d failed calls", n)
		}
	})
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// One queue of two is broken: the other goes on.
func TestBrokenQueueDoesNotHoldUpOthers(t *testing.T) {
	q := newQueue(t)
	bad := again(t, q, func(c *queue.Config) { c.Name = "bad" })
	rdb := q.Config().Client
	runs := newLedger()
	w := run(t, q, consumer.Config{More: []consumer.Weighted{{Queue: bad}},
		Handler: consumer.HandlerFunc(func(_ context.Context, d consumer.Delivery) ([]byte, error) {
			defer runs.begin(d.Task.ID)()
			return nil, nil
		})})
	rdb.Del(t.Context(), bad.StreamKey(0))
	rdb.Set(t.Context(), bad.StreamKey(0), "not a stream", 0)
	eventually(t, "not ready", func() bool { return !w.Status().Ready })
	tasks := numbered("t", "k", 50)
	began := time.Now()
	for _, task := range tasks {
		enqueue(t, q, task)
		eventuallyAt(t, q, task.ID, queue.Done)
	}
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("50 tasks one by one took %v beside a broken queue", d)
	}
	rdb.Del(t.Context(), bad.StreamKey(0))
	enqueue(t, bad, queue.Task{ID: "healed", Kind: "k"})
	eventuallyAt(t, bad, "healed", queue.Done)
	eventually(t, "ready again", func() bool { return w.Status().Ready })
}

// A queue made with other settings is told at start.
func TestMismatchEndsRun(t *testing.T) {
	q := newQueue(t)
	cfg := q.Config()
	cfg.Partitions, cfg.ReadClient = 3, nil
	other, err := queue.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	w := run(t, other, consumer.Config{Handler: consumer.HandlerFunc(nil)})
	if err := w.wait(); !errors.Is(err, queue.ErrMismatch) {
		t.Errorf("Run returned %v, want ErrMismatch", err)
	}
}

// E3: a pool of ten and twelve queues, all but one empty: the blocked read
// keeps no renewal and no settle waiting.
func TestE3PoolOfTenTwelveQueues(t *testing.T) {
	client := redistest.Shared(t).Client(func(o *redis.Options) { o.PoolSize = 10; o.PoolTimeout = 100 * time.Millisecond })
	q := newQueue(t, func(c *queue.Config) { c.Client = client })
	var more []consumer.Weighted
	for i := range 11 {
		more = append(more, consumer.Weighted{Queue: again(t, q, func(c *queue.Config) { c.Name = fmt.Sprintf("q%d", i) })})
	}
	runs := newLedger()
	var seen recorder
	w := run(t, q, consumer.Config{More: more, Observer: &seen, Block: 2 * time.Second,
		Handler: consumer.HandlerFunc(func(ctx context.Context, d consumer.Delivery) ([]byte, error) {
			defer runs.begin(d.Task.ID)()
			select {
			case <-time.After(5 * q.Config().Lease):
				return nil, nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		})})
	enqueue(t, q, queue.Task{ID: "T1", Kind: "k"})
	eventuallyAt(t, q, "T1", queue.Done)
	lost, _ := seen.counts()
	if runs.of("T1") != 1 || lost != 0 || seen.renewals.Failed != 0 || len(seen.errors) != 0 {
		t.Errorf("%d starts, %d leases lost, %d renewals failed, errors %v", runs.of("T1"), lost, seen.renewals.Failed, seen.errors)
	}
	for _, m := range more {
		enqueue(t, m.Queue, queue.Task{ID: "each", Kind: "k"})
	}
	for _, m := range more {
		eventuallyAt(t, m.Queue, "each", queue.Done)
	}
	if err := w.stop(); err != nil {
		t.Error(err)
	}
}

// E2: a worker stops within its block time, and what a read that was under way
// still brought is handed back, never left pending.
func TestE2StopWhileBlocked(t *testing.T) {
	const block = 300 * time.Millisecond
	q := newQueue(t, func(c *queue.Config) { c.Lease = 20 * time.Second })
	for i := range 8 {
		comes := i%2 == 1
		w := newWorker(t, q, consumer.Config{Block: block, HousekeepingEvery: 10 * time.Second, Handler: consumer.HandlerFunc(func(context.Context, consumer.Delivery) ([]byte, error) {
			return nil, nil
		})})
		blocked := make(chan struct{})
		var once sync.Once
		w.WrapRead(func(next func(context.Context, queue.ReadRequest) ([]queue.Entry, error)) func(context.Context, queue.ReadRequest) ([]queue.Entry, error) {
			return func(ctx context.Context, r queue.ReadRequest) ([]queue.Entry, error) {
				if r.Block != block {
					t.Errorf("block time %v, want %v", r.Block, block)
				}
				once.Do(func() { close(blocked) })
				return next(ctx, r)
			}
		})
		r := start(t, w)
		<-blocked
		began := time.Now()
		r.cancel()
		eventually(t, "draining", func() bool { return w.Status().State == consumer.StateDraining })
		id := queue.TaskID(fmt.Sprintf("t%d", i))
		if comes {
			enqueue(t, q, queue.Task{ID: id, Kind: "k"})
		}
		if err := r.wait(); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d > block+time.Second {
			t.Errorf("stopped after %v", d)
		}
		if p := placeOf(t, q, id); comes && p != queue.Waiting {
			t.Errorf("the task that came while stopping is %s", p)
		}
		if s, err := q.Stats(t.Context()); err != nil || s.Pending != 0 {
			t.Errorf("%d pending, %v", s.Pending, err)
		}
		if comes {
			q.Delete(t.Context(), []queue.TaskID{id})
		}
	}
}
