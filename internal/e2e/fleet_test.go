package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/claimq/claimq/internal/fleet"
	"github.com/claimq/claimq/queue"
)

// Three workers, one killed every two seconds and replaced, until all tasks are
// done: none lost, no request beyond the first that a kill does not account
// for, no two live holders at once, every orphan running again within its lease
// plus a second. `make fleet` runs it with 20,000 tasks.
func TestFleetOfKills(t *testing.T) {
	r := newRig(t, queue.Config{Partitions: 4})
	r.rec.Answers(func(fleet.Request) (int, <-chan struct{}) {
		over := make(chan struct{})
		time.AfterFunc(time.Duration(20+rand.IntN(40))*time.Millisecond, func() { close(over) })
		return 200, over
	})
	ids := make([]string, *fleetTasks)
	for i := range ids {
		ids[i] = fmt.Sprintf("task-%05d", i)
	}
	began := time.Now()
	live := []*fleet.Worker{r.start(), r.start(), r.start()}
	for _, w := range live {
		r.says(w, "worker started")
	}
	r.enqueue(ids...)

	kills := 0
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	over := time.NewTimer(15 * time.Minute)
	defer over.Stop()
	for r.stats().Unfinished() > 0 {
		select {
		case <-tick.C:
			live[kills%3].Kill()
			live[kills%3] = r.start()
			kills++
		case <-over.C:
			t.Fatalf("not done: %+v", r.stats())
		}
	}
	took := time.Since(began)
	for _, w := range live {
		r.says(w, "worker started")
		if code := terminate(t, w, 15*time.Second); code != 0 {
			t.Errorf("%s ended with %d", w.Name, code)
		}
	}
	account := r.account(ids)
	t.Logf("%d tasks in %.1f s, %d kills, %d requests, %d explained by a kill, worst recovery %v",
		len(ids), took.Seconds(), kills, r.rec.Count(), account.explained, account.worst)
	if kills == 0 {
		t.Error("nobody was killed: use more tasks")
	}
	if s := r.stats(); s.Dead != 0 {
		t.Errorf("%d dead letters, want none", s.Dead)
	}
	if account.worst > lease+time.Second {
		t.Errorf("worst recovery %v, want at most %v", account.worst, lease+time.Second)
	}
}

// accounting is what the requests say.
type accounting struct {
	explained int           // requests beyond a task's first, after a kill
	worst     time.Duration // from the kill to the next request
}

// settleTime is how long after its answer a task of a live worker is surely
// settled, on a loaded machine.
const settleTime = time.Second

// account checks every task: at least one request, done, and each further
// request follows one whose worker was killed while it had the task in hand.
func (r *rig) account(ids []string) accounting {
	r.t.Helper()
	var a accounting
	all := r.rec.ByTask()
	problems := 0
	complain := func(format string, args ...any) {
		if problems++; problems <= 10 {
			r.t.Errorf(format, args...)
		}
	}
	for _, id := range ids {
		runs := all[id]
		if len(runs) == 0 {
			complain("%s: no request: lost", id)
		}
		if p := r.place(id); p != queue.Done {
			complain("%s: %q, want done", id, p)
		}
		for i := 1; i < len(runs); i++ {
			prev, next := runs[i-1], runs[i]
			died := r.byName(prev.Worker).DiedAt()
			switch {
			case died.IsZero():
				complain("%s: run again on %s though %s lives: two live holders", id, next.Worker, prev.Worker)
			case next.At.Before(died):
				complain("%s: run again on %s before %s was killed: two live holders", id, next.Worker, prev.Worker)
			case !prev.Ended.IsZero() && died.Sub(prev.Ended) > settleTime:
				complain("%s: run again on %s, though %s had answered %v before it was killed: unexplained", id, next.Worker, prev.Worker, died.Sub(prev.Ended))
			case next.Fence <= prev.Fence:
				complain("%s: fence %d after %d", id, next.Fence, prev.Fence)
			default:
				a.explained++
				a.worst = max(a.worst, next.At.Sub(died))
			}
		}
	}
	return a
}

// G1: a task that kills its worker ends in the dead letters and takes none of
// its prefetched neighbours along.
func TestG1KillerTask(t *testing.T) {
	const prefetch, bound = 100, 3
	r := newRig(t, queue.Config{MaxInterruptions: bound})
	doomed := make(chan string, 1000)
	r.rec.Answers(func(q fleet.Request) (int, <-chan struct{}) {
		if q.Task == "killer" {
			doomed <- q.Worker
			return 200, make(chan struct{}) // never
		}
		return 200, nil
	})
	var ids []string
	for i := range 100 {
		ids = append(ids, fmt.Sprintf("good-%03d", i))
	}
	mixed := slices.Insert(slices.Clone(ids), 10, "killer")
	env := fmt.Sprintf("WORKER_PREFETCH=%d", prefetch)
	r.start(env)
	r.enqueue(mixed...)
	limit := time.After(90 * time.Second)
	for r.stats().Unfinished() > 0 {
		select {
		case name := <-doomed: // its supervisor starts it again
			r.byName(name).Kill()
			r.start(env)
		case <-time.After(20 * time.Millisecond):
		case <-limit:
			t.Fatalf("not done: %+v", r.stats())
		}
	}
	for _, id := range ids {
		info, err := r.q.Inspect(bg, queue.TaskID(id))
		if err != nil || info.Place != queue.Done {
			t.Errorf("%s: %+v, %v; want done", id, info, err)
		}
	}
	r.account(ids)
	info, err := r.q.Inspect(bg, "killer")
	if err != nil || info.Place != queue.Dead || info.Reason != queue.DeadInterruptions || info.Interruptions != bound {
		t.Errorf("killer: %+v, %v; want a dead letter after %d interruptions", info, err, bound)
	}
	if n := len(r.rec.Of("killer")); n != bound {
		t.Errorf("the killer ran %d times, want %d", n, bound)
	}
	if s := r.stats(); s.Dead != 1 {
		t.Errorf("%d dead letters, want the killer alone", s.Dead)
	}
}

// I4: SIGTERM. Work in progress finishes and settles, what was not started is
// handed back at once, what takes too long is cancelled and comes back, and the
// process ends before its grace is over.
func TestI4Terminate(t *testing.T) {
	r := newRig(t, queue.Config{})
	shortDone := make(chan struct{})
	r.rec.Answers(func(q fleet.Request) (int, <-chan struct{}) {
		switch {
		case q.Worker != "w1":
			return 200, nil
		case q.Task[0] == 's':
			return 200, shortDone
		case q.Task[0] == 'l':
			return 200, make(chan struct{})
		}
		return 200, nil
	})
	a := r.start("WORKER_CONCURRENCY=7", "WORKER_PREFETCH=20", "WORKER_DRAIN_TIMEOUT=3s")
	r.says(a, "worker started")
	running := []string{"s1", "s2", "s3", "s4", "s5", "l1", "l2"}
	r.enqueue(running...)
	r.eventually("seven running", func() bool { return r.rec.Count() == len(running) })
	var held []string
	for i := range 20 {
		held = append(held, fmt.Sprintf("held-%02d", i))
	}
	r.enqueue(held...)
	r.eventually("twenty held", func() bool { s := r.stats(); return s.Pending == 27 && s.Waiting == 0 })

	b := r.start()
	r.says(b, "worker started")
	signalled := time.Now()
	a.Signal(t, syscall.SIGTERM)
	r.within(2*time.Second, "the held ones run on the peer", func() bool { return r.rec.Count() == len(running)+len(held) })
	handedBack := time.Since(signalled)
	close(shortDone)
	r.within(10*time.Second, "the worker ended", func() bool {
		select {
		case <-a.Exited:
			return true
		default:
			return false
		}
	})
	ended := time.Since(signalled)
	if code := a.ExitCode(); code != 0 {
		t.Errorf("ended with %d, want 0\n%s", code, a.Log)
	}
	r.finished()
	t.Logf("all twenty had run elsewhere %v after the signal, the worker ended after %v", handedBack, ended)
	for _, id := range append(held, running...) {
		want := 1
		if id[0] == 'l' {
			want = 2 // cancelled here, finished there
		}
		if runs := r.rec.Of(id); len(runs) != want {
			t.Errorf("%s: %d runs, want %d", id, len(runs), want)
		}
		if info, err := r.q.Inspect(bg, queue.TaskID(id)); err != nil || info.Place != queue.Done || info.Failures != 0 {
			t.Errorf("%s: %+v, %v; want done without a failure", id, info, err)
		}
	}
}
