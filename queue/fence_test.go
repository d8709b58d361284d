package queue_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/claimq/claimq/queue"
)

// lease takes the one waiting or lapsed task and starts it.
func (r *rig) lease(worker string) queue.Lease {
	r.t.Helper()
	es := r.read(worker, 10)
	if len(es) == 0 {
		es = r.reclaim(0, worker, 10).Entries
	}
	b := r.begin(es, 10)
	if len(b.Deliveries) != 1 {
		r.t.Fatalf("%d entries, begin %+v", len(es), b)
	}
	return b.Deliveries[0].Lease
}

// TestI3FenceGrows leases one task again and again, and loses in between what
// the fence is kept in.
func TestI3FenceGrows(t *testing.T) {
	r := newRig(t, func(c *queue.Config) { c.MaxFailures, c.MaxInterruptions = 1000, 1000 })
	r.add(tasksNamed("a")...)
	fenceKey, tasks := r.key(0, "fence"), r.key(0, "tasks")
	var last queue.Fence
	next := func(what string) queue.Lease {
		t.Helper()
		l := r.lease("w-" + what)
		if l.Fence <= last {
			t.Errorf("%s: fence %d after %d", what, l.Fence, last)
		}
		last = l.Fence
		// Byte for byte: the record, the key and the lease say the same, so the
		// holder is known by it.
		digits := strconv.FormatUint(uint64(l.Fence), 10)
		if len(digits) < 16 {
			t.Errorf("%s: fence %s is not a time in microseconds", what, digits)
		}
		if got := r.c.Get(bg, fenceKey).Val(); got != digits {
			t.Errorf("%s: the key holds %q, the lease %s", what, got, digits)
		}
		if rec := r.c.HGet(bg, tasks, "a").Val(); !strings.HasSuffix(rec, " "+digits+" "+string(l.Grant.Token)) {
			t.Errorf("%s: the record is %q, the lease's fence %s", what, rec, digits)
		}
		if got := r.inspect("a").Fence; got != l.Fence {
			t.Errorf("%s: inspect says %d, the lease %d", what, got, l.Fence)
		}
		return l
	}
	lapse := func(queue.Lease) { r.advance(time.Minute) }
	retry := func(l queue.Lease) {
		t.Helper()
		r.must(queue.Retried, r.q.Retry(bg, []queue.Settlement{{Lease: l}}))
		r.advance(time.Second)
		if p, err := r.q.Promote(bg, 0, 1); err != nil || p.Count != 1 {
			t.Fatalf("promote: %+v %v", p, err)
		}
	}
	set := func(n uint64) func(queue.Lease) {
		return func(queue.Lease) {
			r.c.Set(bg, fenceKey, strconv.FormatUint(n, 10), 0)
			r.advance(time.Minute)
		}
	}
	for i, between := range []struct {
		what string
		do   func(queue.Lease)
	}{
		{"lapsed", lapse}, {"retried", retry}, {"lapsed again", lapse},
		{"released", func(l queue.Lease) { r.must(queue.Released, r.q.Release(bg, []queue.Settlement{{Lease: l}})) }},
		{"record forgotten", func(l queue.Lease) { r.c.HDel(bg, tasks, "a"); lapse(l) }},
		{"fence key deleted", func(l queue.Lease) { r.c.Del(bg, fenceKey); lapse(l) }},
		{"older value restored", set(1_000_000_000_000_000)},
		{"no value that is a time", set(7)},
	} {
		between.do(next(fmt.Sprint(i, between.what)))
	}
	next("at last")
	// A clock that was ahead: the counter goes on alone.
	ahead := uint64(last) + 3_600_000_000
	set(ahead)(queue.Lease{})
	if l := next("clock was ahead"); uint64(l.Fence) != ahead+1 {
		t.Errorf("fence %d after %d, want one more", l.Fence, ahead)
	}
	set(8_999_999_999_999_998)(queue.Lease{})
	next("sixteen digits")
	set(1<<53 - 2)(queue.Lease{})
	l := next("the last one")
	if l.Fence != 1<<53-1 {
		t.Errorf("fence %d after 2^53-2", l.Fence)
	}
	r.advance(time.Minute)
	// Above it two numbers would be one: refused, and nothing changed.
	es := r.reclaim(0, "w-over", 1).Entries
	_, err := r.q.Begin(bg, queue.BeginRequest{Token: r.q.NewToken(), Entries: es, Start: 1})
	if !errors.Is(err, queue.ErrUnavailable) || !strings.Contains(err.Error(), "2^53") {
		t.Errorf("begin at 2^53-1: %v", err)
	}
	r.must(queue.Completed, r.q.Complete(bg, []queue.Settlement{{Lease: l}}))
}

// TestI3LongFences holds records with fences of 16 and 17 digits: comparing,
// splitting and settling treat them as text.
func TestI3LongFences(t *testing.T) {
	for _, digits := range []string{"1700000000000001", "9007199254740991", "12345678901234567", "12345678901234569"} {
		t.Run(digits, func(t *testing.T) {
			r := newRig(t)
			r.add(tasksNamed("a")...)
			l := r.lease("w")
			rec := r.c.HGet(bg, r.key(0, "tasks"), "a").Val()
			r.c.HSet(bg, r.key(0, "tasks"), "a", strings.Replace(rec, strconv.FormatUint(uint64(l.Fence), 10), digits, 1))
			n, err := strconv.ParseUint(digits, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if got := r.inspect("a").Fence; uint64(got) != n {
				t.Errorf("inspect: %d", got)
			}
			neighbour := l
			neighbour.Fence = queue.Fence(n - 1)
			if got := r.q.Complete(bg, []queue.Settlement{{Lease: neighbour}}); got[0].Outcome != queue.Lost {
				t.Errorf("complete with the fence before it: %+v", got)
			}
			l.Fence = queue.Fence(n)
			split, errs := r.q.Split(bg, r.q.NewToken(), []queue.Lease{l})
			if errs[0] != nil {
				t.Fatal(errs[0])
			}
			// The answer of a repeated Begin is read back from the record.
			b, err := r.q.Begin(bg, queue.BeginRequest{Token: split[0].Grant.Token, Start: 1, Entries: []queue.Entry{
				{Queue: r.q, ID: l.EntryID, Fields: []string{"id", "a", "kind", "k", "payload", ""}}}})
			if err != nil || len(b.Deliveries) != 1 || uint64(b.Deliveries[0].Lease.Fence) != n {
				t.Errorf("begin again: %+v %v", b, err)
			}
			if _, err := r.q.StepIntent(bg, split[0], "s", "k", r.q.NewToken()); err != nil {
				t.Error(err)
			}
			if steps, err := r.q.Steps(bg, "a"); err != nil || len(steps) != 1 || uint64(steps[0].Fence) != n {
				t.Errorf("steps: %+v %v", steps, err)
			}
			r.must(queue.Completed, r.q.Complete(bg, []queue.Settlement{{Lease: split[0]}}))
		})
	}
}
