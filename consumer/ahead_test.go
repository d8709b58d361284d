package consumer_test

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/queue"
)

// counting counts calls of a worker, and what it asked for in them.
type counting struct {
	consumer.Server
	starts atomic.Int64 // calls of Start
	most   atomic.Int64 // tasks put on record as started by one Begin
}

func (c *counting) Start(ctx context.Context, l []queue.Lease) []error {
	c.starts.Add(1)
	return c.Server.Start(ctx, l)
}

func (c *counting) Begin(ctx context.Context, r queue.BeginRequest) (queue.Batch, error) {
	c.most.Store(max(c.most.Load(), int64(r.Start)))
	return c.Server.Begin(ctx, r)
}

// slowdown is a handler that takes no time until it is told to.
type slowdown struct {
	*ledger
	after   int64 // runs that take no time
	n       atomic.Int64
	release chan struct{} // closed: the slow ones return
}

func (s *slowdown) HandleTask(_ context.Context, d consumer.Delivery) ([]byte, error) {
	defer s.begin(d.Task.ID)()
	if s.n.Add(1) > s.after {
		<-s.release
	}
	return nil, nil
}

// Quick handlers are given tasks ahead, with next to no call more. When they turn slow,
// those that wait for their turn are handed back, at no cost to the tasks, and
// no more are taken than there are slots.
func TestAheadFollowsHandlerTimes(t *testing.T) {
	q := newQueue(t, func(c *queue.Config) { c.Lease = 2 * time.Second })
	const slots, quick = 4, 2000
	h := &slowdown{ledger: newLedger(), after: quick, release: make(chan struct{})}
	calls := &counting{}
	w := newWorker(t, q, consumer.Config{Concurrency: slots, Handler: h})
	w.WrapServers(func(s consumer.Server) consumer.Server { calls.Server = s; return calls })
	tasks := numbered("t", "k", quick+500)
	enqueue(t, q, tasks...)
	start(t, w)
	eventually(t, "handlers are slow", func() bool { return h.n.Load() == quick+slots })
	eventually(t, "nothing waits for them", func() bool { return w.Status().Held == 0 && stats(t, q).Pending == slots })
	if n := calls.most.Load(); n <= slots {
		t.Errorf("%d tasks begun at once: nothing was fetched ahead, the test proves nothing", n)
	}
	// On a busy machine handlers look slow for a moment, and what was read is held.
	if n := calls.starts.Load(); n > quick/10 {
		t.Errorf("%d calls to start tasks, want next to none", n)
	}
	throughout(t, 300*time.Millisecond, "no more in hand than slots", func() bool { n, _ := w.InHand(); return n <= slots })
	peer := newLedger()
	run(t, q, consumer.Config{Handler: consumer.HandlerFunc(func(_ context.Context, d consumer.Delivery) ([]byte, error) {
		if d.Lease.Attempt != 1 {
			t.Errorf("task %s: attempt %d, although it was handed back before its first", d.Task.ID, d.Lease.Attempt)
		}
		defer peer.begin(d.Task.ID)()
		return nil, nil
	})})
	eventually(t, "another worker runs them", func() bool { return unfinished(t, q) == slots })
	close(h.release)
	eventually(t, "all done", func() bool { return unfinished(t, q) == 0 })
	for _, task := range tasks {
		if n := h.of(task.ID) + peer.of(task.ID); n != 1 {
			t.Errorf("task %s ran %d times", task.ID, n)
		}
	}
}

// late is a server at which handlers have turned slow before a Begin is sent: it
// may start no more than there are slots, and the others are held.
type late struct {
	consumer.Server
	slots int
}

func (l late) Begin(ctx context.Context, r queue.BeginRequest) (queue.Batch, error) {
	r.Start = min(r.Start, l.slots)
	return l.Server.Begin(ctx, r)
}

// Tasks that were fetched ahead, and held because handlers had turned slow before
// they were begun, do not wait for slow handlers either.
func TestAheadAndHeldIsHandedBack(t *testing.T) {
	q := newQueue(t, func(c *queue.Config) { c.Lease = 2 * time.Second })
	const slots, quick = 4, 2000
	h := &slowdown{ledger: newLedger(), after: quick, release: make(chan struct{})}
	w := newWorker(t, q, consumer.Config{Concurrency: slots, Handler: h})
	var most atomic.Int64
	w.WrapServers(func(s consumer.Server) consumer.Server { return late{s, slots} })
	enqueue(t, q, numbered("t", "k", quick+500)...)
	start(t, w)
	eventually(t, "handlers are slow", func() bool {
		most.Store(max(most.Load(), int64(w.Status().Held)))
		return h.n.Load() == quick+slots
	})
	eventually(t, "nothing waits for them", func() bool { return w.Status().Held == 0 && stats(t, q).Pending == slots })
	if most.Load() == 0 {
		t.Error("nothing was held, the test proves nothing")
	}
	close(h.release)
	eventually(t, "all done", func() bool { return unfinished(t, q) == 0 })
}

// A worker that drains starts none of the tasks that wait for their turn, and
// hands them back at once.
func TestAheadIsHandedBackAtDrain(t *testing.T) {
	q := newQueue(t, func(c *queue.Config) { c.Lease = 30 * time.Second }) // so that nothing is handed back before
	const slots, quick = 2, 2000
	h := &slowdown{ledger: newLedger(), after: quick, release: make(chan struct{})}
	enqueue(t, q, numbered("t", "k", quick+500)...)
	w := run(t, q, consumer.Config{Concurrency: slots, Handler: h})
	eventually(t, "tasks wait for their turn", func() bool { return h.n.Load() == quick+slots && w.Status().Held > 0 })
	w.cancel()
	eventually(t, "they are handed back", func() bool { return w.Status().Held == 0 && stats(t, q).Pending == slots })
	close(h.release)
	if err := w.wait(); err != nil {
		t.Errorf("Run: %v", err)
	}
	if n := h.total(); n != quick+slots {
		t.Errorf("%d handlers ran, want the %d that had begun", n, quick+slots)
	}
	if s := stats(t, q); s.Pending != 0 || s.Waiting != 500-slots {
		t.Errorf("%+v, want %d waiting", s, 500-slots)
	}
}

// mortal is a worker's way to the server until the worker dies.
type mortal struct {
	consumer.Server
	dead *atomic.Bool
}

func (m *mortal) Begin(ctx context.Context, r queue.BeginRequest) (queue.Batch, error) {
	if m.dead.Load() {
		return queue.Batch{}, queue.ErrUnavailable
	}
	return m.Server.Begin(ctx, r)
}

func (m *mortal) Renew(ctx context.Context, g []queue.Grant) []queue.Renewal {
	if m.dead.Load() {
		out := make([]queue.Renewal, len(g))
		for i := range out {
			out[i].Err = queue.ErrUnavailable
		}
		return out
	}
	return m.Server.Renew(ctx, g)
}

func (m *mortal) Turn(ctx context.Context, r queue.TurnRequest) []queue.Turn {
	if m.dead.Load() {
		return []queue.Turn{{Err: queue.ErrUnavailable}}
	}
	return m.Server.Turn(ctx, r)
}

func (m *mortal) settle(in []queue.Settlement, f func([]queue.Settlement) []queue.Settled) []queue.Settled {
	if !m.dead.Load() {
		return f(in)
	}
	out := make([]queue.Settled, len(in))
	for i := range out {
		out[i] = queue.Settled{TaskID: in[i].Lease.TaskID, Err: queue.ErrUnavailable}
	}
	return out
}

func (m *mortal) Complete(ctx context.Context, in []queue.Settlement) []queue.Settled {
	return m.settle(in, func(in []queue.Settlement) []queue.Settled { return m.Server.Complete(ctx, in) })
}

func (m *mortal) Retry(ctx context.Context, in []queue.Settlement) []queue.Settled {
	return m.settle(in, func(in []queue.Settlement) []queue.Settled { return m.Server.Retry(ctx, in) })
}

func (m *mortal) Release(ctx context.Context, in []queue.Settlement) []queue.Settled {
	return m.settle(in, func(in []queue.Settlement) []queue.Settled { return m.Server.Release(ctx, in) })
}

func (m *mortal) DeadLetter(ctx context.Context, in []queue.Settlement) []queue.Settled {
	return m.settle(in, func(in []queue.Settlement) []queue.Settled { return m.Server.DeadLetter(ctx, in) })
}

// life is a worker that the killer ends.
type life struct {
	t     *testing.T
	w     *consumer.Worker
	least int // tasks that wait for their turn when it first does
	dead  atomic.Bool
	died  chan struct{}
	mu    sync.Mutex
	began map[queue.TaskID]int // attempts whose handlers began
}

func (l *life) HandleTask(ctx context.Context, d consumer.Delivery) ([]byte, error) {
	l.mu.Lock()
	for d.Task.ID == "killer" && d.Lease.Attempt == 1 && l.w.Status().Held <= l.least {
		l.mu.Unlock() // until there are neighbours to take along
		runtime.Gosched()
		l.mu.Lock()
	}
	if !l.dead.Load() {
		l.began[d.Task.ID] = d.Lease.Attempt
		if d.Task.ID != "killer" {
			l.mu.Unlock()
			return nil, nil
		}
		l.dead.Store(true)
		close(l.died)
	}
	l.mu.Unlock()
	<-ctx.Done() // there is no process any more
	return nil, context.Cause(ctx)
}

func newLife(t *testing.T, q *queue.Queue, slots int) *life {
	l := &life{t: t, least: 4 * slots, died: make(chan struct{}), began: map[queue.TaskID]int{}}
	l.w = newWorker(t, q, consumer.Config{Concurrency: slots, AbortGrace: time.Millisecond, Handler: l})
	l.w.WrapServers(func(s consumer.Server) consumer.Server { return &mortal{s, &l.dead} })
	l.w.WrapRead(func(next func(context.Context, queue.ReadRequest) ([]queue.Entry, error)) func(context.Context, queue.ReadRequest) ([]queue.Entry, error) {
		return func(ctx context.Context, r queue.ReadRequest) ([]queue.Entry, error) {
			if l.dead.Load() {
				return nil, queue.ErrUnavailable
			}
			return next(ctx, r)
		}
	})
	return l
}

// waiting are the tasks on record as started whose handlers have not begun, and
// by which grant.
func (l *life) waiting(q *queue.Queue, ids []queue.Task) map[queue.TaskID]queue.Token {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := map[queue.TaskID]queue.Token{}
	for _, task := range ids {
		if info := inspect(l.t, q, task.ID); info.Place == queue.Pending && info.Started && l.began[task.ID] == 0 {
			w[task.ID] = info.Token
		}
	}
	return w
}

// G1: a task that kills each worker that runs it, among tasks that were fetched
// ahead. Waiting for a turn costs each of them one interruption, once; they all
// finish, and the killer alone becomes a dead letter.
func TestG1KillerAmongTasksFetchedAhead(t *testing.T) {
	const bound, slots = 3, 4
	q := newQueue(t, func(c *queue.Config) { c.MaxInterruptions = bound })
	ids := numbered("good", "k", 3000)
	enqueue(t, q, slices.Insert(slices.Clone(ids), 1000, queue.Task{ID: "killer", Kind: "k"})...)
	var first map[queue.TaskID]queue.Token
	for n := range bound {
		l := newLife(t, q, slots)
		start(t, l.w)
		receive(t, "the worker is killed", l.died)
		waiting := l.waiting(q, ids)
		l.w.Abort()
		t.Logf("life %d: %d tasks waited for their turn", n, len(waiting))
		if n == 0 {
			first = waiting
		}
		again := 0
		for id, token := range waiting {
			if was, ok := first[id]; ok && was != token {
				again++
			}
		}
		if again > slots { // one that has a slot may be a moment late too
			t.Errorf("life %d: %d tasks waited for their turn again", n, again)
		}
	}
	if len(first) <= 2*slots {
		t.Errorf("only %d tasks waited for their turn in the first life: the test proves nothing", len(first))
	}
	last := newLife(t, q, slots)
	start(t, last.w)
	eventually(t, "all done", func() bool { return unfinished(t, q) == 0 })
	if s := stats(t, q); s.Dead != 1 || placeOf(t, q, "killer") != queue.Dead {
		t.Errorf("%d dead letters, want the killer alone", s.Dead)
	}
	for _, task := range ids {
		if p := placeOf(t, q, task.ID); p != queue.Done {
			t.Errorf("%s is %s", task.ID, p)
		}
		if n := last.began[task.ID]; n > 3 {
			t.Errorf("%s: attempt %d, want 3 at most", task.ID, n)
		}
	}
}

// runtime.Goexit in a handler ends the goroutine that would have run the next.
// The task whose turn it is runs all the same.
func TestI1GoexitLeavesTheTurnToTheNext(t *testing.T) {
	q := newQueue(t)
	runs := newLedger()
	run(t, q, consumer.Config{Concurrency: 1, RetryBase: time.Millisecond,
		Handler: consumer.HandlerFunc(func(_ context.Context, d consumer.Delivery) ([]byte, error) {
			defer runs.begin(d.Task.ID)()
			if d.Task.Kind == "exits" && d.Lease.Attempt == 1 {
				runtime.Goexit()
			}
			return nil, nil
		})})
	tasks := numbered("t", "k", 1500)
	for i := 1000; i < len(tasks); i += 3 {
		tasks[i].Kind = "exits"
	}
	enqueue(t, q, tasks...)
	eventually(t, "all done", func() bool { return unfinished(t, q) == 0 })
	for _, task := range tasks {
		want := 1
		if task.Kind == "exits" {
			want = 2
		}
		if n := runs.of(task.ID); n != want {
			t.Errorf("task %s, %s, ran %d times, want %d", task.ID, task.Kind, n, want)
		}
	}
	if runs.most != 1 {
		t.Errorf("%d runs of a task at once", runs.most)
	}
}
