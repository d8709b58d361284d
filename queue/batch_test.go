package queue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/claimq/claimq/queue"
)

// TestE4PartOfABatchFails settles 50 tasks together while the server refuses
// those of one partition: the others settle once, the refused ones stay pending
// and are named, and asking again repeats nothing.
func TestE4PartOfABatchFails(t *testing.T) {
	const broken = 2
	for name, c := range map[string]struct {
		verb   func(*queue.Queue) func(context.Context, []queue.Settlement) []queue.Settled
		edit   func(*queue.Settlement)
		breaks string // key that is of the wrong type
		want   queue.Outcome
		place  string
	}{
		"complete":         {func(q *queue.Queue) func(context.Context, []queue.Settlement) []queue.Settled { return q.Complete }, func(s *queue.Settlement) { s.Result = []byte("r") }, "done", queue.Completed, ""},
		"complete result":  {func(q *queue.Queue) func(context.Context, []queue.Settlement) []queue.Settled { return q.Complete }, func(s *queue.Settlement) { s.Result = []byte("r") }, "kept", queue.Completed, ""},
		"retry":            {func(q *queue.Queue) func(context.Context, []queue.Settlement) []queue.Settled { return q.Retry }, nil, "scheduled", queue.Retried, "scheduled"},
		"retry index":      {func(q *queue.Queue) func(context.Context, []queue.Settlement) []queue.Settled { return q.Retry }, nil, "due", queue.Retried, "scheduled"},
		"release later":    {func(q *queue.Queue) func(context.Context, []queue.Settlement) []queue.Settled { return q.Release }, func(s *queue.Settlement) { s.Delay = time.Hour }, "scheduled", queue.Released, "scheduled"},
		"release no owner": {func(q *queue.Queue) func(context.Context, []queue.Settlement) []queue.Settled { return q.Release }, func(s *queue.Settlement) { s.Unhandled = true }, "due", queue.Released, "scheduled"},
		"dead":             {func(q *queue.Queue) func(context.Context, []queue.Settlement) []queue.Settled { return q.DeadLetter }, func(s *queue.Settlement) { s.Reason = queue.DeadRejected }, "dead", queue.DeadLettered, "dead"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(c *queue.Config) { c.Partitions = 4 })
			r.add(tasksNamed(numbered("before", 30)...)...) // opens a slice in every partition
			r.must(queue.Completed, r.q.Complete(bg, settlements(r.take("w", 30))))
			r.add(tasksNamed(numbered("t", 50)...)...)
			ds := r.take("w", 50)
			if _, err := r.q.StepIntent(bg, ds[0].Lease, "s", "key", r.q.NewToken()); err != nil {
				t.Fatal(err)
			}
			keys := []string{r.key(broken, c.breaks)}
			if c.breaks == "done" || c.breaks == "kept" {
				keys = nil
				for s := 1; s <= 3; s++ {
					keys = append(keys, r.key(broken, fmt.Sprint(c.breaks, s)))
				}
			}
			for _, key := range keys {
				r.c.Set(bg, key, "of the wrong type", 0)
			}
			var edit []func(*queue.Settlement)
			if c.edit != nil {
				edit = append(edit, c.edit)
			}
			ask := settlements(ds, edit...)
			settle := c.verb(r.q)
			refused := 0
			for i, got := range settle(bg, ask) {
				id := string(ask[i].Lease.TaskID)
				if got.TaskID != ask[i].Lease.TaskID {
					t.Fatalf("%d is answered for %s", i, got.TaskID)
				}
				if ask[i].Lease.Grant.Partition != broken {
					if got.Outcome != c.want || got.Err != nil {
						t.Errorf("%s: %+v", id, got)
					}
					continue
				}
				refused++
				if !errors.Is(got.Err, queue.ErrUnavailable) || got.Outcome != "" {
					t.Errorf("%s: %+v", id, got)
				}
				if info := r.inspect(id); info.Place != queue.Pending || info.Token != ask[i].Lease.Grant.Token {
					t.Errorf("%s is %s, held by %s", id, info.Place, info.Token)
				}
			}
			if refused == 0 || refused == 50 {
				t.Fatalf("%d are in the partition", refused)
			}
			if n := len(r.pending(broken)); n != refused {
				t.Errorf("%d entries are pending, want %d", n, refused)
			}
			for _, key := range keys {
				r.c.Del(bg, key)
			}
			r.must(c.want, settle(bg, ask))
			r.must(c.want, settle(bg, ask))
			for i := range ds {
				if c.breaks == "dead" || c.breaks == "scheduled" || c.breaks == "due" {
					r.onlyAt(string(ds[i].Task.ID), c.place)
				}
			}
			if n := r.total("stream"); n != 0 {
				t.Errorf("%d entries are left in the streams", n)
			}
			if c.place != "" {
				if n := r.total(c.place); n != 50 {
					t.Errorf("%d %s", n, c.place)
				}
			}
		})
	}
}

func (r *rig) total(what string) (n int64) {
	for p := range r.q.Partitions() {
		n += r.c.XLen(bg, r.key(p, what)).Val()
	}
	return n
}

// One bad task in one partition does not stop its neighbours in the same call,
// and a task that a call names twice is settled once.
func TestSettleTwiceInOneCall(t *testing.T) {
	for name, c := range map[string]struct {
		verb func(*rig) func(context.Context, []queue.Settlement) []queue.Settled
		want queue.Outcome
		at   string
	}{
		"complete": {func(r *rig) func(context.Context, []queue.Settlement) []queue.Settled { return r.q.Complete }, queue.Completed, ""},
		"retry":    {func(r *rig) func(context.Context, []queue.Settlement) []queue.Settled { return r.q.Retry }, queue.Retried, "scheduled"},
		"release":  {func(r *rig) func(context.Context, []queue.Settlement) []queue.Settled { return r.q.Release }, queue.Released, "waiting"},
		"dead":     {func(r *rig) func(context.Context, []queue.Settlement) []queue.Settled { return r.q.DeadLetter }, queue.DeadLettered, "dead"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.add(tasksNamed("a", "b")...)
			ds := r.take("w", 2)
			s := settlements([]queue.Delivery{ds[0], ds[1], ds[0]}, func(s *queue.Settlement) { s.Reason, s.EndsGrant = queue.DeadRejected, true })
			r.must(c.want, c.verb(r)(bg, s))
			for _, id := range []string{"a", "b"} {
				r.onlyAt(id, c.at)
			}
			if c.at != "" {
				if got := r.inspect("a"); got.Place == queue.Unknown {
					t.Error("its record is gone")
				}
			}
			if n := r.c.ZCard(bg, r.key(0, "leases")).Val(); n != 0 {
				t.Errorf("%d leases are left", n)
			}
		})
	}
}

// Enqueue into a partition where some destinations are refused adds the others,
// once, and says which.
func TestEnqueuePartOfABatchFails(t *testing.T) {
	r := newRig(t)
	r.c.Set(bg, r.key(0, "due"), "of the wrong type", 0)
	tasks := append(tasksNamed("a"), queue.Task{ID: "b", Kind: "k", Delay: time.Hour})
	tasks = append(tasks, tasksNamed("c")...)
	token := r.q.NewToken()
	for range 2 {
		got := r.q.Enqueue(bg, token, tasks)
		if !got[0].Added || !got[2].Added || got[1].Added || !errors.Is(got[1].Err, queue.ErrUnavailable) {
			t.Errorf("%+v", got)
		}
	}
	r.onlyAt("a", "waiting")
	r.onlyAt("b", "")
	r.onlyAt("c", "waiting")
	r.c.Del(bg, r.key(0, "due"))
	if got := r.q.Enqueue(bg, token, tasks)[1]; !got.Added {
		t.Errorf("%+v", got)
	}
	r.onlyAt("b", "scheduled")
}
