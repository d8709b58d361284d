package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/claimq/claimq/queue"
)

// The server's clock was once far in the future, and with it the last fence:
// fences go on growing, done marks are found for their one to two windows, and
// windows go on moving, so that marks do not gather for ever.
func TestClockOnceFarInTheFuture(t *testing.T) {
	r := newRig(t)
	far := r.c.Time(bg).Val().AddDate(10, 0, 0).UnixMicro()
	if err := r.c.Set(bg, r.key(0, "fence"), far, 0).Err(); err != nil {
		t.Fatal(err)
	}
	run := func(id string) queue.Fence {
		t.Helper()
		for _, x := range r.q.Enqueue(bg, r.q.NewToken(), tasksNamed(id)) {
			if !x.Added {
				t.Fatalf("%s: %+v", id, x)
			}
		}
		b := r.begin(r.readAll("w"), 1)
		r.must(queue.Completed, r.q.Complete(bg, settlements(b.Deliveries)))
		return b.Deliveries[0].Lease.Fence
	}
	last := run("t0")
	marks := func() (n int64) {
		for s := range 3 {
			n += max(0, r.c.HLen(bg, r.key(0, fmt.Sprint("done", s+1))).Val()-1)
		}
		return n
	}
	for i := 1; i <= 8; i++ {
		// One window passes: to everything stored, it lies that much further back.
		const window = 24 * time.Hour
		far -= window.Microseconds()
		last -= queue.Fence(window.Microseconds())
		r.c.Set(bg, r.key(0, "fence"), uint64(last), 0)
		for s := range 3 {
			key := r.key(0, fmt.Sprint("done", s+1))
			if began, err := r.c.HGet(bg, key, "").Int64(); err == nil {
				r.c.HSet(bg, key, "", began-window.Milliseconds())
			}
		}
		if _, err := r.q.Tidy(bg, 0); err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprint("t", i)
		fence := run(id)
		if fence <= last || fence <= queue.Fence(far) {
			t.Errorf("fence %d after %d", fence, last)
		}
		last = fence
		if again := r.q.Enqueue(bg, r.q.NewToken(), tasksNamed(id)); !again[0].Duplicate {
			t.Errorf("%s at once: %+v, want a duplicate", id, again[0])
		}
		if n := marks(); n > 4 {
			t.Errorf("%d marks after %d windows: they gather", n, i)
		}
	}
	if again := r.q.Enqueue(bg, r.q.NewToken(), tasksNamed("t1")); !again[0].Added {
		t.Errorf("t1 seven windows later: %+v, want it added", again[0])
	}
}
