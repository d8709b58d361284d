package queue_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/queue"
)

// Tasks of a batch have fields and values in common or not, in every mixture: what
// comes out is what went in, and in its order.
func TestBatchesOfAnyFields(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	some := func(odds int, values ...string) string {
		if rnd.IntN(odds) == 0 {
			return values[rnd.IntN(len(values))]
		}
		return ""
	}
	for round := range 60 {
		r := newRig(t, func(c *queue.Config) { c.Name = fmt.Sprint("q", round) })
		odds := 1 + rnd.IntN(6)
		batch := make([]queue.Task, 1+rnd.IntN(20))
		for i := range batch {
			b := &batch[i]
			*b = queue.Task{ID: queue.TaskID(fmt.Sprint("t", i)), Kind: "k" + some(odds, "1", "2"), Payload: []byte(some(2, "a", "b", "payload", "1\n2")),
				ContentType: some(odds, "text/plain", "application/json")}
			for _, name := range []string{"a", "b", "c"} {
				if value := some(odds, "x", "y"); value != "" {
					if b.Headers == nil {
						b.Headers = map[string]string{}
					}
					b.Headers[name] = value
				}
			}
			if some(odds, "d") != "" {
				b.Deadline = time.Now().Add(time.Hour).Truncate(time.Millisecond)
			}
			if some(odds, "past") != "" {
				b.Due = time.UnixMilli(int64(rnd.IntN(1000)))
			}
			if rnd.IntN(12) == 0 && i > 0 {
				b.ID = batch[rnd.IntN(i)].ID
			}
		}
		var want []queue.Task
		named := map[queue.TaskID]bool{}
		for i, got := range r.q.Enqueue(bg, r.q.NewToken(), batch) {
			if got.Err != nil || got.Added == named[batch[i].ID] || got.Duplicate != named[batch[i].ID] || got.Place != queue.Waiting {
				t.Fatalf("round %d, task %d: %+v", round, i, got)
			}
			if got.Added {
				want = append(want, batch[i])
			}
			named[batch[i].ID] = true
		}
		ds := r.take("w", len(want))
		for i, d := range ds {
			got := d.Task
			if w := want[i]; got.ID != w.ID || got.Kind != w.Kind || string(got.Payload) != string(w.Payload) || got.ContentType != w.ContentType ||
				!maps.Equal(got.Headers, w.Headers) || !got.Deadline.Equal(w.Deadline) {
				t.Fatalf("round %d: %+v, want %+v", round, got, w)
			}
		}
		all := withSomeResults(rnd, ds)
		for i, got := range r.q.Complete(bg, all) {
			info, err := r.q.Inspect(bg, got.TaskID)
			if got.Outcome != queue.Completed || got.Err != nil || err != nil || info.Place != queue.Done || string(info.Result) != string(all[i].Result) {
				t.Fatalf("round %d: %+v, then %+v, %v", round, got, info, err)
			}
		}
	}
}

// withSomeResults completes deliveries in any order, some of them with a result.
func withSomeResults(rnd *rand.Rand, ds []queue.Delivery) []queue.Settlement {
	s := settlements(ds)
	rnd.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
	for i := range s {
		if rnd.IntN(3) == 0 {
			s[i].Result = []byte("result of " + s[i].Lease.TaskID)
		}
	}
	return s
}

// Tasks of producers that know nothing of records are begun with the digests of
// their IDs, and so are those that come with them; then, for a while, all are.
func TestDigestsAreSentWhenAskedFor(t *testing.T) {
	r := rigOn(t, redistest.Start(t).Client())
	calls := func() int { return commands(r.c)["evalsha"] }
	r.add(tasksNamed("first")...) // the server learns the scripts
	r.take("w", 1)
	foreign := func(id string) {
		t.Helper()
		if err := r.c.XAdd(bg, xadd(r.q.StreamKey(0), "id", id, "kind", "k", "payload", "p")).Err(); err != nil {
			t.Fatal(err)
		}
	}
	begin := func(want int, granted ...string) {
		t.Helper()
		es := r.read("w", 10)
		before := calls()
		b, err := r.q.Begin(bg, queue.BeginRequest{Token: r.q.NewToken(), Entries: es, Start: len(es)})
		if err != nil || len(b.Deliveries) != len(granted) {
			t.Fatalf("%+v, %v", b, err)
		}
		for i, d := range b.Deliveries {
			if string(d.Task.ID) != granted[i] {
				t.Errorf("granted %s, want %s", d.Task.ID, granted[i])
			}
		}
		if n := calls() - before; n != want {
			t.Errorf("%d calls, want %d", n, want)
		}
		for _, got := range r.q.Complete(bg, settlements(b.Deliveries)) {
			if got.Outcome != queue.Completed {
				t.Errorf("%+v", got)
			}
		}
	}
	r.add(tasksNamed("a")...)
	begin(1, "a")
	r.add(tasksNamed("b")...)
	foreign("c")
	foreign("a")       // done: a copy
	begin(2, "b", "c") // asked for
	foreign("d")
	foreign("b")
	begin(1, "d")        // sent at once
	for i := range 200 { // nobody asks any more
		r.add(tasksNamed(fmt.Sprint("e", i))...)
		begin(1, fmt.Sprint("e", i))
	}
	foreign("f")
	begin(2, "f")
}

// A begin that names an entry twice, or out of order, is granted each task once.
func TestBeginNamesAnEntryTwice(t *testing.T) {
	r := newRig(t)
	for n, order := range [][]int{{0, 0}, {0, 1, 0}, {1, 0, 1}, {1, 0, 0, 1}} {
		r.add(tasksNamed(fmt.Sprint("a", n), fmt.Sprint("b", n))...)
		es := r.read("w", 2)
		var named []queue.Entry
		different := map[int]bool{}
		for _, i := range order {
			named = append(named, es[i])
			different[i] = true
		}
		b := r.begin(named, len(named))
		if len(b.Deliveries) != len(different) || len(b.Busy) != len(order)-len(different) {
			t.Errorf("%v: %d granted, %d busy", order, len(b.Deliveries), len(b.Busy))
		}
	}
}

// The ID of an entry may begin with that of another: they are two entries still.
func TestEntryIDsThatBeginAlike(t *testing.T) {
	for _, first := range []string{"5-1", "5-100"} {
		t.Run(first, func(t *testing.T) {
			r := newRig(t)
			for _, entry := range []string{"5-1", "5-10", "5-100"} {
				if err := r.c.Do(bg, "XADD", r.q.StreamKey(0), entry, "id", "a", "kind", "k", "payload", entry).Err(); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.c.HSet(bg, r.key(0, "tasks"), "a", "w"+first+" -").Err(); err != nil {
				t.Fatal(err)
			}
			b := r.begin(r.read("w", 3), 3)
			if len(b.Deliveries) != 1 || string(b.Deliveries[0].Task.Payload) != first || len(b.Duplicates) != 2 {
				t.Errorf("%+v", b)
			}
		})
	}
}
