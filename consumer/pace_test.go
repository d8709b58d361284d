package consumer

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/queue"
)

// TestPace: how much is fetched ahead follows from how long handlers take, by
// what is slow among them.
func TestPace(t *testing.T) {
	quick := func(p *pace, n int, d time.Duration) {
		for range n {
			p.ran(d)
		}
	}
	p := newPace()
	if n := p.ahead(64); n != 0 {
		t.Errorf("%d ahead while nothing is known, want none", n)
	}
	quick(&p, 100, time.Millisecond)
	if n := p.ahead(64); n != 0 {
		t.Errorf("%d ahead after 100 quick runs, want none yet", n)
	}
	quick(&p, 2000, time.Millisecond)
	for slots, want := range map[int]int{1: 4, 4: 19, 16: 79, 1000: maxAhead} {
		if n := p.ahead(slots); n < want || n > want+1 {
			t.Errorf("handlers of 1 ms, %d slots: %d ahead, want about %d", slots, n, want)
		}
	}
	p.ran(time.Second)
	if n := p.ahead(1000); n != 0 {
		t.Errorf("%d ahead after a slow run, want none", n)
	}
	for range 50 {
		quick(&p, 99, 0)
		p.ran(50 * time.Millisecond)
		if n := p.ahead(1000); n != 0 {
			t.Fatalf("%d ahead where one run in a hundred is slow, want none", n)
		}
	}
	quick(&p, 5000, 0)
	if n := p.ahead(1); n != maxAhead {
		t.Errorf("%d ahead where handlers take no time, want %d", n, maxAhead)
	}
	p.sized(1 << 20)
	if n := p.ahead(64); n != maxAheadBytes>>20 {
		t.Errorf("%d ahead with payloads of 1 MiB, want %d", n, maxAheadBytes>>20)
	}
	for range 5000 {
		p.sized(100)
	}
	if n := p.ahead(64); n != maxAhead {
		t.Errorf("%d ahead with small payloads, want %d", n, maxAhead)
	}
	for range maxAhead {
		p.waited(2*aheadWait, 64)
	}
	if n := p.ahead(64); n < maxAhead/4 || n > maxAhead/2 {
		t.Errorf("%d ahead after a batch had to wait too long for its turn, want about a third of %d", n, maxAhead)
	}
	for range 10 * maxAhead {
		p.waited(2*aheadWait, 64)
	}
	if n := p.ahead(64); n != 0 {
		t.Errorf("%d ahead while tasks wait too long for their turn, want none", n)
	}
	quick(&p, 5000, time.Millisecond)
	p.ran(4 * time.Millisecond)
	if n := p.ahead(4); n < 15 || n > 20 {
		t.Errorf("%d ahead after one run of 4 ms among those of 1 ms, want hardly less than 19", n)
	}
	quick(&p, 5000, 0)
	p.stalled()
	if n := p.ahead(64); n != 0 {
		t.Errorf("%d ahead after tasks waited in vain, want none", n)
	}
}

// waiting makes a worker of one slot, which is taken, and a task on record as
// started that waits for its turn. Its queue is never called.
func waiting(t *testing.T, task queue.Task) (*Worker, *item) {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:0"})
	t.Cleanup(func() { rdb.Close() })
	q, err := queue.New(queue.Config{Name: "q", Client: rdb, Lease: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	w, err := New(q, Config{Concurrency: 1, Handler: HandlerFunc(func(context.Context, Delivery) ([]byte, error) {
		return nil, errors.New("a handler was called")
	})})
	if err != nil {
		t.Fatal(err)
	}
	w.hand.slots.busy = 1
	w.hand.slots.reserved, w.hand.slots.promised = 1, 1
	task.ID, task.Kind = "t", "k"
	now := time.Now()
	w.accept(w.sources[0], queue.Batch{ServerNow: now, Deliveries: []queue.Delivery{{
		Task: task, Started: true, Lease: queue.Lease{
			TaskID: "t", Kind: "k", EntryID: "1-1", Attempt: 1,
			Grant: queue.Grant{Token: "aaaaaaaaaaaaAA", Length: time.Second}, TrustedUntil: now.Add(800 * time.Millisecond),
		},
	}}}, 1, 1, SourceNew)
	if s := w.hand.slots; s.ready != 1 || s.reserved != 0 || w.Status().Held != 1 {
		t.Fatalf("it does not wait for its turn: %+v", s)
	}
	return w, w.hand.ready[0]
}

// TestWaitingForATurn: what befalls a task that was fetched ahead before its
// turn comes. In no case does its handler begin.
func TestWaitingForATurn(t *testing.T) {
	end := func(w *Worker, at time.Time) { // of the handler in the slot
		w.hand.slots.busy = 0
		if next, _ := w.take(at); next != nil {
			t.Error("its handler began")
		}
	}
	gone := func(t *testing.T, it *item) {
		t.Helper()
		if it.phase != phaseGone || !it.lost {
			t.Errorf("phase %d, lost: %v; want it dropped", it.phase, it.lost)
		}
	}
	settled := func(t *testing.T, it *item, v verb) {
		t.Helper()
		if it.phase != phaseSettling || it.verdict.verb != v || it.ran {
			t.Errorf("phase %d, %+v", it.phase, it.verdict)
		}
	}
	now := time.Now()
	for name, tt := range map[string]struct {
		task  queue.Task
		event func(w *Worker, it *item)
		want  func(*testing.T, *item)
	}{
		"its lease lapses": {event: func(w *Worker, _ *item) { w.look(now.Add(time.Second)) }, want: gone},
		"its lease has lapsed when its turn comes": {
			event: func(w *Worker, _ *item) { end(w, now.Add(time.Second)) }, want: gone,
		},
		"its lease is lost": {event: func(w *Worker, it *item) {
			w.renewed(it.src, []*grant{it.grant}, []queue.Renewal{{Err: queue.ErrLeaseLost}}, 0)
		}, want: gone},
		"it is deleted": {event: func(w *Worker, it *item) {
			w.renewed(it.src, []*grant{it.grant}, []queue.Renewal{{TrustedUntil: now.Add(time.Second), Revoked: []queue.TaskID{"t"}}}, 0)
		}, want: gone},
		"its deadline passes": {
			task:  queue.Task{Deadline: now.Add(100 * time.Millisecond)},
			event: func(w *Worker, _ *item) { end(w, now.Add(200*time.Millisecond)) },
			want:  func(t *testing.T, it *item) { settled(t, it, verbDeadLetter) },
		},
		"it waits too long": {
			event: func(w *Worker, _ *item) { w.pick(now.Add(100 * time.Millisecond)) },
			want:  func(t *testing.T, it *item) { settled(t, it, verbRelease) },
		},
		"the worker drains": {
			event: func(w *Worker, _ *item) { w.beginDrain(); end(w, now); w.pick(now) },
			want:  func(t *testing.T, it *item) { settled(t, it, verbRelease) },
		},
		"no slot is vacant": {
			event: func(w *Worker, _ *item) { w.take(now) },
			want: func(t *testing.T, it *item) {
				if it.phase != phaseReady {
					t.Errorf("phase %d", it.phase)
				}
			},
		},
		"its outcome could not be kept": {
			event: func(w *Worker, _ *item) { w.cfg.MaxUnsettled = 0; end(w, now) },
			want: func(t *testing.T, it *item) {
				if it.phase != phaseReady {
					t.Errorf("phase %d", it.phase)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, it := waiting(t, tt.task)
			tt.event(w, it)
			tt.want(t, it)
			if s := w.hand.slots; it.phase != phaseReady && (s.ready != 0 || len(w.hand.ready) != 0) {
				t.Errorf("it still waits: %+v", s)
			}
		})
	}
	t.Run("its turn comes", func(t *testing.T) {
		w, it := waiting(t, queue.Task{})
		w.hand.slots.busy = 0
		next, losses := w.take(now.Add(10 * time.Millisecond))
		if next != it || len(losses) > 0 || it.phase != phaseRunning || !it.ctx.deadline.Equal(now.Add(10*time.Millisecond+w.cfg.Timeout)) {
			t.Errorf("%+v", it)
		}
	})
}

// TestNothingAheadByConfig: a queue that gives tasks too few interruptions gets
// nothing ahead, nor does a worker that is told not to.
func TestNothingAheadByConfig(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:0"})
	t.Cleanup(func() { rdb.Close() })
	for _, tt := range []struct{ prefetch, interruptions, want int }{
		{0, 0, maxAhead}, {0, 3, maxAhead}, {0, 2, 0}, {0, 1, 0}, {3, 0, 0}, {NoPrefetch, 0, 0},
	} {
		q, err := queue.New(queue.Config{Name: "q", Client: rdb, MaxInterruptions: tt.interruptions})
		if err != nil {
			t.Fatal(err)
		}
		w, err := New(q, Config{Prefetch: tt.prefetch, Handler: HandlerFunc(nil)})
		if err != nil {
			t.Fatal(err)
		}
		w.hand.pace.slow = 0
		if n := w.ahead(); n != tt.want {
			t.Errorf("%+v: %d ahead", tt, n)
		}
		q.Close()
	}
}

// TestNothingAhead: when nothing is fetched ahead, however quick handlers are.
func TestNothingAhead(t *testing.T) {
	for name, spoil := range map[string]func(w *Worker){
		"a held task waits for a slot": func(w *Worker) { w.hand.slots.held = 1 },
		"ended leases wait for a slot": func(w *Worker) { w.hand.owing = true },
		"the worker drains":            func(w *Worker) { w.beginDrain() },
		"a task that was interrupted before is in hand": func(w *Worker) {
			it := newItem(w.sources[0], &queue.Delivery{Lease: queue.Lease{TaskID: "x", Interruptions: 1}}, SourceNew)
			w.hand.add(it)
			w.hand.remove(it)
			if w.ahead() == 0 {
				t.Error("nothing ahead although it has left")
			}
			w.hand.add(it)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := waiting(t, queue.Task{})
			w.hand.pace.slow = 0
			if n := w.ahead(); n != maxAhead {
				t.Fatalf("%d ahead before, want %d", n, maxAhead)
			}
			spoil(w)
			if n := w.ahead(); n != 0 {
				t.Errorf("%d ahead", n)
			}
		})
	}
}
