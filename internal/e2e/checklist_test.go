package e2e

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/internal/fleet"
	"github.com/claimq/claimq/queue"
)

// The checklist that every user of such a queue should run.

// A worker is killed in mid-handler: the task runs again, elsewhere, within
// its lease plus a second (I9), with a greater fence and the same key (B5, G1).
func TestB5KilledInMidHandler(t *testing.T) {
	r := newRig(t, queue.Config{})
	a, b := r.start(), r.start()
	r.rec.Answers(func(q fleet.Request) (int, <-chan struct{}) {
		if q.Attempt == 1 {
			return 200, make(chan struct{}) // never: its worker is killed
		}
		return 200, nil
	})
	r.enqueue("t1")
	r.eventually("t1 started", func() bool { return len(r.rec.Of("t1")) == 1 })
	first := r.rec.Of("t1")[0]
	victim, other := a, b
	if first.Worker == b.Name {
		victim, other = b, a
	}
	victim.Kill()
	killed := time.Now()
	r.finished()
	runs := r.rec.Of("t1")
	if len(runs) != 2 || runs[1].Worker != other.Name {
		t.Fatalf("runs: %+v, want one on each worker", runs)
	}
	if late := runs[1].At.Sub(killed); late > lease+time.Second {
		t.Errorf("running again after %v, want at most %v", late, lease+time.Second)
	}
	if runs[1].Fence <= first.Fence || runs[1].Key != first.Key || runs[1].Attempt != 2 {
		t.Errorf("second run %+v after %+v: want a greater fence, the same key, attempt 2", runs[1], first)
	}
	info, err := r.q.Inspect(bg, "t1")
	if err != nil || info.Place != queue.Done || string(info.Result) != "ext-t1" {
		t.Errorf("inspect: %+v, %v", info, err)
	}
	if s := info.Steps; len(s) != 1 || s[0].State != queue.StepDone || string(s[0].Result) != "ext-t1" || s[0].Calls != 2 {
		t.Errorf("steps: %+v, want one, done, called twice", s)
	}
}

// A worker is frozen past its lease and wakes: what it held runs elsewhere, and
// its late settle changes nothing (A3, whether the answer it finds is good or bad).
func TestA3FrozenPastItsLease(t *testing.T) {
	for _, status := range []int{200, 500, 410} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			r := newRig(t, queue.Config{})
			release, second := make(chan struct{}), make(chan struct{})
			r.rec.Answers(func(q fleet.Request) (int, <-chan struct{}) {
				switch {
				case q.Task != "t1":
					return 200, nil
				case q.Attempt == 1:
					return status, release
				}
				return 200, second
			})
			a := r.start()
			r.enqueue("t1")
			r.eventually("t1 started", func() bool { return len(r.rec.Of("t1")) == 1 })
			b := r.start()
			a.Signal(t, syscall.SIGSTOP)
			r.eventually("t1 taken over", func() bool { return len(r.rec.Of("t1")) == 2 })
			// The first answer waits for the sleeper while the second run goes on.
			close(release)
			a.Signal(t, syscall.SIGCONT)
			r.eventually("the sleeper has heard its answer", func() bool { return r.rec.Of("t1")[0].Status != 0 })
			r.enqueue("t2") // proof that it is at work again, whoever runs it
			if p := r.place("t1"); p != queue.Pending {
				t.Errorf("t1 is %q while its holder runs it, want pending", p)
			}
			close(second)
			r.finished()
			if runs := r.rec.Of("t1"); len(runs) != 2 || runs[1].Worker != b.Name || runs[1].Fence <= runs[0].Fence {
				t.Errorf("runs of t1: %+v", runs)
			}
			info, err := r.q.Inspect(bg, "t1")
			if err != nil || info.Place != queue.Done || info.Failures != 0 {
				t.Errorf("inspect: %+v, %v", info, err)
			}
			if s := r.stats(); s.Dead != 0 {
				t.Errorf("%d dead letters, want none", s.Dead)
			}
			if code := terminate(t, a, 10*time.Second); code != 0 {
				t.Errorf("the sleeper ended with %d\n%s", code, a.Log)
			}
		})
	}
}

// Two idle workers and one task: one run (A1). It outlives its lease four times.
func TestA1LongTaskRunsOnce(t *testing.T) {
	r := newRig(t, queue.Config{})
	over := make(chan struct{})
	timer := time.AfterFunc(4*lease, func() { close(over) })
	defer timer.Stop()
	r.rec.Answers(func(fleet.Request) (int, <-chan struct{}) { return 200, over })
	r.start()
	r.start()
	r.enqueue("t1")
	r.finished()
	if runs := r.rec.Of("t1"); len(runs) != 1 {
		t.Errorf("%d runs, want 1: %+v", len(runs), runs)
	}
}

// The same task enqueued again after success, the same entry added twice by
// hand, and a second run over everything: nothing happens twice, and a second
// fleet finds nothing to do (I5).
func TestSecondRunDoesNothing(t *testing.T) {
	r := newRig(t, queue.Config{Partitions: 2})
	a := r.start()
	ids := []string{"t1", "t2", "t3"}
	r.enqueue(ids...)
	r.eventually("three done", func() bool {
		return r.place("t1") == queue.Done && r.place("t2") == queue.Done && r.place("t3") == queue.Done
	})
	for _, receipt := range r.enqueue(ids...) {
		if !receipt.Duplicate || receipt.Place != queue.Done {
			t.Errorf("enqueued again: %+v, want a duplicate of a done task", receipt)
		}
	}
	byHand := func(id string) {
		t.Helper()
		err := r.rdb.XAdd(bg, &redis.XAddArgs{
			Stream: r.q.StreamKey(r.q.PartitionOf(queue.TaskID(id))), Values: []string{"id", id, "kind", "job", "payload", "x"},
		}).Err()
		if err != nil {
			t.Fatal(err)
		}
	}
	byHand("t1") // a copy of a done task
	byHand("t4")
	byHand("t4") // the same one twice
	r.finished()
	if code := terminate(t, a, 10*time.Second); code != 0 {
		t.Errorf("first worker ended with %d\n%s", code, a.Log)
	}
	before := r.rec.Count()
	b := r.start()
	r.says(b, "worker started")
	r.enqueue(append(ids, "t4")...)
	if code := terminate(t, b, 10*time.Second); code != 0 {
		t.Errorf("second worker ended with %d\n%s", code, b.Log)
	}
	if n := r.rec.Count(); n != before || n != 4 {
		t.Errorf("%d requests, %d of them by the second run; want 4 and 0", n, n-before)
	}
	if _, err := r.q.Inspect(bg, "nosuch"); !errors.Is(err, queue.ErrNotFound) {
		t.Errorf("inspect of an unknown ID: %v", err)
	}
}
