package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/internal/faultredis"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/queue"
)

// TestA6RenewRevivesNothing renews a lease that has ended, and one that another
// has taken since.
func TestA6RenewRevivesNothing(t *testing.T) {
	r := newRig(t)
	r.add(tasksNamed("a")...)
	a := r.take("wa", 1)[0].Lease
	if got := r.q.Renew(bg, []queue.Grant{a.Grant})[0]; got.Err != nil {
		t.Fatal(got.Err)
	}
	r.advance(16 * time.Second)
	leases := func() []redis.Z { return r.c.ZRangeWithScores(bg, r.key(0, "leases"), 0, -1).Val() }
	lost := func(what string) {
		t.Helper()
		before := leases()
		got := r.q.Renew(bg, []queue.Grant{a.Grant})[0]
		if !errors.Is(got.Err, queue.ErrLeaseLost) || !got.TrustedUntil.IsZero() {
			t.Errorf("%s: %+v", what, got)
		}
		if after := leases(); !slices.Equal(before, after) {
			t.Errorf("%s: leases %v became %v", what, before, after)
		}
		if errs := r.q.Start(bg, []queue.Lease{a}); !errors.Is(errs[0], queue.ErrLeaseLost) {
			t.Errorf("%s: start: %v", what, errs[0])
		}
		if _, err := r.q.StepIntent(bg, a, "s", "k", r.q.NewToken()); !errors.Is(err, queue.ErrLeaseLost) {
			t.Errorf("%s: step: %v", what, err)
		}
	}
	lost("ended")
	b := r.begin(r.reclaim(0, "wb", 1).Entries, 1).Deliveries[0].Lease
	lost("taken")
	for name, verb := range settlingVerbs(r.q) {
		if got := verb(bg, settlements([]queue.Delivery{{Lease: a}}, rejected))[0]; got.Outcome != queue.Lost || got.Err != nil {
			t.Errorf("%s by the replaced holder: %+v", name, got)
		}
	}
	r.onlyAt("a", "pending")
	r.must(queue.Completed, r.q.Complete(bg, []queue.Settlement{{Lease: b}}))
	lost("finished")
}

func rejected(s *queue.Settlement) { s.Reason = queue.DeadRejected }

type settlingVerb = func(context.Context, []queue.Settlement) []queue.Settled

func settlingVerbs(q *queue.Queue) map[string]settlingVerb {
	return map[string]settlingVerb{"complete": q.Complete, "retry": q.Retry, "release": q.Release, "dead": q.DeadLetter}
}

// TestA8NobodysEntry loses the lease of a running task, and leaves one behind
// for a task that is gone.
func TestA8NobodysEntry(t *testing.T) {
	r := newRig(t)
	r.add(tasksNamed("a", "b")...)
	r.turn("dead")
	ds := r.take("dead", 2)
	r.c.Del(bg, r.key(0, "leases"))
	r.turn("w")
	r.advance(6 * time.Second) // past the grace, well within the lease
	if got := r.turn("w"); !got.Reclaim {
		t.Fatalf("%+v", got)
	}
	b := r.begin(r.reclaim(0, "w", 10).Entries, 10)
	if len(b.Deliveries) != 2 || b.Deliveries[0].Lease.Interruptions != 1 || b.Deliveries[0].Lease.Fence <= ds[0].Lease.Fence {
		t.Fatalf("%+v", b)
	}
	r.must(queue.Completed, r.q.Complete(bg, settlements(b.Deliveries)))
	// The grant was not ended: its lease outlives its tasks, until it ends.
	if n := r.c.ZCard(bg, r.key(0, "leases")).Val(); n != 1 {
		t.Fatalf("%d leases", n)
	}
	r.advance(time.Minute)
	if got := r.reclaim(0, "w", 10); len(got.Entries)+len(got.Missing) != 0 {
		t.Errorf("%+v", got)
	}
	if n := r.c.Exists(bg, r.key(0, "leases"), r.key(0, "revoked")).Val(); n != 0 {
		t.Error("the orphan lease is still there")
	}
}

func (r *rig) turn(worker string) queue.Turn {
	r.t.Helper()
	got := r.q.Turn(bg, queue.TurnRequest{Consumer: worker, Slots: true, Interval: 500 * time.Millisecond})[0]
	if got.Err != nil {
		r.t.Fatal(got.Err)
	}
	return got
}

// TestA9RescueFromAnOldSnapshot holds a recovery between "listed" and "acted"
// while the task moves on.
func TestA9RescueFromAnOldSnapshot(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(r *rig, l queue.Lease)
		at        string
	}{
		"completed": {func(r *rig, l queue.Lease) {
			r.must(queue.Completed, r.q.Complete(bg, []queue.Settlement{{Lease: l, EndsGrant: true}}))
		}, ""},
		"retried": {func(r *rig, l queue.Lease) {
			r.must(queue.Retried, r.q.Retry(bg, []queue.Settlement{{Lease: l, Delay: time.Hour}}))
		}, "scheduled"},
		"retried and running again": {func(r *rig, l queue.Lease) {
			r.must(queue.Retried, r.q.Retry(bg, []queue.Settlement{{Lease: l}}))
			r.advance(time.Second)
			if p, err := r.q.Promote(bg, 0, 1); err != nil || p.Count != 1 {
				r.t.Fatalf("%+v %v", p, err)
			}
			r.take("other", 1)
		}, "pending"},
		"released": {func(r *rig, l queue.Lease) { r.must(queue.Released, r.q.Release(bg, []queue.Settlement{{Lease: l}})) }, "waiting"},
		"dead": {func(r *rig, l queue.Lease) {
			r.must(queue.DeadLettered, r.q.DeadLetter(bg, settlements([]queue.Delivery{{Lease: l}}, rejected)))
		}, "dead"},
		"deleted": {func(r *rig, l queue.Lease) { r.q.Delete(bg, []queue.TaskID{l.TaskID}) }, ""},
		"deleted and added again": {func(r *rig, l queue.Lease) {
			r.q.Delete(bg, []queue.TaskID{l.TaskID})
			r.add(tasksNamed("a")...)
		}, "waiting"},
		"taken by another": {func(r *rig, _ queue.Lease) { r.begin(r.reclaim(0, "other", 1).Entries, 1) }, "pending"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.add(tasksNamed("a")...)
			l := r.take("old", 1)[0].Lease
			r.advance(16 * time.Second)
			listed := r.reclaim(0, "rescuer", 10).Entries
			if len(listed) != 1 {
				t.Fatal("nothing to rescue")
			}
			c.meanwhile(r, l)
			was := r.inspect("a")
			if b := r.begin(listed, 1); len(b.Deliveries) != 0 || len(b.Exhausted) != 0 {
				t.Errorf("the rescue ran the task: %+v", b)
			}
			now := r.inspect("a")
			if now.Place != was.Place || now.Token != was.Token || now.Fence != was.Fence || now.Failures != was.Failures || now.Interruptions != was.Interruptions {
				t.Errorf("it was %+v and is %+v", was, now)
			}
			r.onlyAt("a", c.at)
		})
	}
}

// A task that is deleted between delivery and Begin must not come back.
func TestDeletedBeforeBegin(t *testing.T) {
	r := newRig(t)
	r.add(tasksNamed("a")...)
	es := r.read("w", 1)
	if m := r.q.Delete(bg, []queue.TaskID{"a"}); m[0].From != queue.Waiting {
		t.Fatalf("%+v", m)
	}
	if b := r.begin(es, 1); len(b.Deliveries) != 0 || len(b.Duplicates) != 1 {
		t.Errorf("%+v", b)
	}
	if got := r.inspect("a"); got.Place != queue.Unknown {
		t.Errorf("%+v", got)
	}
}

// TestBeginAgainIsTrustedNoLonger asks Begin again after a lost reply: what the
// caller trusts, counted from the second ask, must not outlast the lease.
func TestBeginAgainIsTrustedNoLonger(t *testing.T) {
	r := newRig(t)
	r.add(tasksNamed("a", "b")...)
	req := queue.BeginRequest{Token: r.q.NewToken(), Entries: r.read("w", 2), Start: 1}
	first, err := r.q.Begin(bg, req)
	if err != nil {
		t.Fatal(err)
	}
	check := func(b queue.Batch, err error) {
		t.Helper()
		if err != nil || len(b.Deliveries) != 2 {
			t.Fatalf("%+v %v", b, err)
		}
		for _, d := range b.Deliveries {
			trusted := time.Until(d.Lease.TrustedUntil)
			if ends := time.Until(r.inspect(string(d.Task.ID)).LeaseEnds); ends < trusted {
				t.Errorf("%s is trusted for %v, its lease ends in %v", d.Task.ID, trusted, ends)
			}
			if d.Started != (d.Task.ID == "a") || d.Lease.Interruptions != 0 {
				t.Errorf("%+v", d)
			}
		}
	}
	check(first, nil)
	r.advance(7 * time.Second)
	second, err := r.q.Begin(bg, req)
	check(second, err)
	if second.Deliveries[0].Lease.Fence != first.Deliveries[0].Lease.Fence {
		t.Error("a live lease asked for again is another")
	}
	// It ended before the second ask, and nobody took it: a new lease.
	r.advance(16 * time.Second)
	third, err := r.q.Begin(bg, req)
	check(third, err)
	if third.Deliveries[0].Lease.Fence <= second.Deliveries[0].Lease.Fence {
		t.Error("a lease that had ended was revived")
	}
	r.must(queue.Lost, r.q.Complete(bg, settlements(first.Deliveries)))
	r.must(queue.Completed, r.q.Complete(bg, settlements(third.Deliveries)))
}

// TestB1DeadConsumer: a consumer is removed only once it holds nothing, and a
// late delivery to it is not lost.
func TestB1DeadConsumer(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprint("late delivery ", late), func(t *testing.T) {
			r := newRig(t)
			r.add(tasksNamed(numbered("t", 10)...)...)
			r.turn("dead")
			r.take("dead", 10)
			r.advance(time.Minute)
			r.turn("w")
			ran := r.begin(r.reclaim(0, "w", 1).Entries, 1).Deliveries
			tidy := func(want ...string) {
				t.Helper()
				if got, err := r.q.Tidy(bg, 0); err != nil || !slices.Equal(got.RemovedConsumers, want) {
					t.Errorf("%+v %v, want %v removed", got, err, want)
				}
			}
			tidy() // it still holds nine
			ran = append(ran, r.begin(r.reclaim(0, "w", 100).Entries, 100).Deliveries...)
			want := 10
			if late {
				r.add(tasksNamed("late")...)
				if len(r.read("dead", 1)) != 1 {
					t.Fatal("it was not delivered")
				}
				tidy() // it holds one again
				r.advance(6 * time.Second)
				ran = append(ran, r.begin(r.reclaim(0, "w", 100).Entries, 100).Deliveries...)
				r.turn("w")
				want++
			}
			tidy("dead")
			if len(ran) != want {
				t.Errorf("%d of %d run", len(ran), want)
			}
			r.must(queue.Completed, r.q.Complete(bg, settlements(ran)))
		})
	}
}

// TestB2ConsumerNames: names that are gone go away, the living stay, and a
// consumer removed by hand takes no task along.
func TestB2ConsumerNames(t *testing.T) {
	r := newRig(t)
	for _, name := range numbered("gone", 200) {
		r.turn(name)
		r.read(name, 1)
		r.c.XGroupCreateConsumer(bg, r.q.StreamKey(0), queue.Group, name)
	}
	r.c.XGroupCreateConsumer(bg, r.q.StreamKey(0), queue.Group, "idle")
	r.turn("idle")
	r.advance(6 * time.Second)
	r.turn("idle") // no traffic, but it lives
	got, err := r.q.Tidy(bg, 0)
	if err != nil || len(got.RemovedConsumers) != 200 {
		t.Errorf("%d removed, %v", len(got.RemovedConsumers), err)
	}
	names := r.c.XInfoConsumers(bg, r.q.StreamKey(0), queue.Group).Val()
	if len(names) != 1 || names[0].Name != "idle" {
		t.Errorf("left are %+v", names)
	}
	if n := r.c.ZCard(bg, r.key(0, "consumers")).Val(); n != 1 {
		t.Errorf("%d heartbeats", n)
	}

	// By hand, while it holds started, held and unbegun tasks.
	r.add(tasksNamed(numbered("t", 30)...)...)
	r.turn("w")
	started := r.begin(r.read("w", 10), 10).Deliveries
	held := r.begin(r.read("w", 10), 0).Deliveries
	r.read("w", 10)
	if err := r.c.XGroupDelConsumer(bg, r.q.StreamKey(0), queue.Group, "w").Err(); err != nil {
		t.Fatal(err)
	}
	// Its own work goes on.
	r.must(queue.Completed, r.q.Complete(bg, settlements(started[:5])))
	r.must(queue.Released, r.q.Release(bg, settlements(held[:5])))
	r.must(queue.Retried, r.q.Retry(bg, settlements(held[5:6])))
	r.advance(time.Minute)
	done := map[queue.TaskID]bool{}
	for _, d := range started[:5] {
		done[d.Task.ID] = true
	}
	// The index of leases knows those that were begun, without their rows.
	b := r.begin(r.reclaim(0, "other", 100).Entries, 100)
	if len(b.Deliveries) != 9 {
		t.Errorf("%d of 9 reclaimed", len(b.Deliveries))
	}
	for _, d := range b.Deliveries {
		if want := map[bool]int{true: 1}[slices.ContainsFunc(started, func(s queue.Delivery) bool { return s.Task.ID == d.Task.ID })]; d.Lease.Interruptions != want {
			t.Errorf("%s: %d interruptions, want %d", d.Task.ID, d.Lease.Interruptions, want)
		}
		done[d.Task.ID] = true
	}
	r.must(queue.Completed, r.q.Complete(bg, settlements(b.Deliveries)))
	r.drain("other", done)
	if len(done) != 30 {
		t.Errorf("%d of 30 tasks ran", len(done))
	}
	if n := r.total("stream"); n != 0 {
		t.Errorf("%d entries are left", n)
	}
}

// drain does every chore and completes what comes, until nothing comes for a
// few rounds.
func (r *rig) drain(worker string, done map[queue.TaskID]bool) {
	r.t.Helper()
	for quiet := 0; quiet < 6; {
		came := 0
		for p := range r.q.Partitions() {
			if _, err := r.q.Tidy(bg, p); err != nil {
				r.t.Fatal(err)
			}
			if _, err := r.q.Promote(bg, p, queue.MaxBatch); err != nil {
				r.t.Fatal(err)
			}
			for _, es := range [][]queue.Entry{r.reclaim(p, worker, queue.MaxBatch).Entries, r.readAll(worker)} {
				if len(es) == 0 {
					continue
				}
				came++
				b := r.begin(es, len(es))
				for _, d := range append(b.Deliveries, b.Exhausted...) {
					if done[d.Task.ID] {
						r.t.Errorf("%s ran again", d.Task.ID)
					}
					done[d.Task.ID] = true
				}
				r.must(queue.Completed, r.q.Complete(bg, settlements(append(b.Deliveries, b.Exhausted...))))
			}
		}
		quiet++
		if came > 0 {
			quiet = 0
		}
		r.q.Turn(bg, queue.TurnRequest{Consumer: worker, Slots: true, Interval: time.Millisecond})
		r.advance(time.Minute)
	}
}

// readAll reads from every partition at once.
func (r *rig) readAll(worker string) []queue.Entry {
	r.t.Helper()
	return r.read(worker, queue.MaxBatch*r.q.Partitions())
}

// TestC1StreamLost loses the stream, and then everything, while tasks are held.
func TestC1StreamLost(t *testing.T) {
	srv := redistest.Start(t)
	for _, how := range []string{"DEL", "FLUSHALL"} {
		t.Run(how, func(t *testing.T) {
			r := rigOn(t, srv.Client())
			r.add(tasksNamed(numbered("t", 8)...)...)
			held := r.take("w", 8)
			if how == "DEL" {
				r.c.Del(bg, r.q.StreamKey(0))
			} else {
				r.c.Do(bg, how)
			}
			if _, err := queue.Read(bg, queue.ReadRequest{Queues: []*queue.Queue{r.q}, Consumer: "w", Max: 1}); !errors.Is(err, queue.ErrUnavailable) {
				t.Errorf("read: %v", err)
			}
			if _, err := r.q.Reclaim(bg, queue.ReclaimRequest{Consumer: "w", Max: 1}); how == "FLUSHALL" && !errors.Is(err, queue.ErrUnavailable) {
				t.Errorf("reclaim: %v", err)
			}
			if _, err := r.q.Stats(bg); err != nil {
				t.Errorf("stats: %v", err)
			}
			if err := r.q.Ensure(bg); err != nil {
				t.Fatal(err)
			}
			// The handlers finish afterwards.
			verbs := settlingVerbs(r.q)
			for i, name := range []string{"complete", "retry", "release", "dead"} {
				got := verbs[name](bg, settlements(held[2*i:2*i+1], rejected))[0]
				switch {
				case how == "FLUSHALL" && (got.Outcome != queue.Lost || got.Err != nil),
					how == "DEL" && name == "complete" && got.Outcome != queue.Completed,
					how == "DEL" && name != "complete" && !errors.Is(got.Err, queue.ErrEntryGone):
					t.Errorf("%s: %+v", name, got)
				}
			}
			if got := r.q.Renew(bg, []queue.Grant{held[0].Lease.Grant})[0]; (how == "FLUSHALL") != errors.Is(got.Err, queue.ErrLeaseLost) {
				t.Errorf("renew: %+v", got)
			}
			// What is added after the loss runs, also under a lost ID.
			r.add(tasksNamed("new", string(held[2].Task.ID))...)
			r.must(queue.Completed, r.q.Complete(bg, settlements(r.take("w", 2))))
			r.advance(time.Minute)
			lost := map[queue.TaskID]bool{}
			for range 3 {
				for _, m := range r.reclaim(0, "w", 100).Missing {
					lost[m.TaskID] = true
				}
				got, err := r.q.Tidy(bg, 0)
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range got.Lost {
					lost[m.TaskID] = true
				}
			}
			if want := map[string]int{"DEL": 4, "FLUSHALL": 0}[how]; len(lost) != want {
				t.Errorf("lost %v, want %d", lost, want)
			}
			if n := r.c.HLen(bg, r.key(0, "tasks")).Val(); n != 0 {
				t.Errorf("%d records are left", n)
			}
		})
	}
	t.Run("a producer alone", func(t *testing.T) {
		r := rigOn(t, srv.Client(), func(c *queue.Config) { c.Partitions = 3 })
		r.c.Do(bg, "FLUSHALL")
		r.add(tasksNamed(numbered("t", 20)...)...)
		r.must(queue.Completed, r.q.Complete(bg, settlements(r.take("w", 20))))
	})
}

// TestC2C3NothingUnfinishedGoesNothingFinishedStays runs tasks to the end:
// meanwhile all unfinished are there, at last nothing is left but the marks.
func TestC2C3NothingUnfinishedGoesNothingFinishedStays(t *testing.T) {
	const n = 5000
	r := newRig(t)
	r.add(tasksNamed(numbered("t", n)...)...)
	if got := r.total("stream"); got != n {
		t.Fatalf("%d entries", got)
	}
	for ran := 0; ran < n; {
		ds := r.begin(r.read("w", 250), 250).Deliveries
		ran += len(ds)
		// A third fails first.
		r.must(queue.Retried, r.q.Retry(bg, settlements(ds[:len(ds)/3])))
		s := settlements(ds[len(ds)/3:])
		s[0].EndsGrant = true
		r.must(queue.Completed, r.q.Complete(bg, s))
		left := int64(n - ran)
		if st, err := r.q.Stats(bg); err != nil || st.Waiting != left {
			t.Fatalf("%+v %v, want %d waiting", st, err, left)
		}
	}
	r.advance(time.Hour)
	done := map[queue.TaskID]bool{}
	r.drain("w", done)
	if len(done) == 0 {
		t.Error("no retry ran")
	}
	marks := int64(0)
	for s := 1; s <= 3; s++ {
		marks += max(0, r.c.HLen(bg, r.key(0, fmt.Sprint("done", s))).Val()-1)
	}
	if marks != n {
		t.Errorf("%d marks for %d tasks", marks, n)
	}
	for _, what := range []string{"tasks", "scheduled", "due", "leases", "grants", "revoked", "counts", "steps", "dead"} {
		key := r.key(0, what)
		count := r.c.HLen(bg, key).Val() + r.c.XLen(bg, key).Val() + r.c.ZCard(bg, key).Val()
		if count != 0 {
			t.Errorf("%d left in %s", count, what)
		}
	}
	for _, key := range []string{"stream", "scheduled"} {
		if bytes := r.c.MemoryUsage(bg, r.key(0, key), 0).Val(); bytes > 4096 {
			t.Errorf("the empty %s uses %d bytes", key, bytes)
		}
	}
}

// TestC4SecondGroup: completing deletes the entry, so a second reader is an error.
func TestC4SecondGroup(t *testing.T) {
	r := newRig(t, func(c *queue.Config) { c.Partitions = 2 })
	if err := r.c.XGroupCreate(bg, r.q.StreamKey(1), "auditors", "0").Err(); err != nil {
		t.Fatal(err)
	}
	err := r.q.Ensure(bg)
	if !errors.Is(err, queue.ErrMismatch) || !strings.Contains(err.Error(), "auditors") || !strings.Contains(err.Error(), r.q.StreamKey(1)) {
		t.Errorf("%v", err)
	}
}

// TestI2OneClaimerWins has two workers claim the same ended lease, many times.
func TestI2OneClaimerWins(t *testing.T) {
	r := newRig(t, func(c *queue.Config) { c.MaxInterruptions = 1 << 20 })
	r.add(tasksNamed("a")...)
	r.take("w0", 1)
	const claimers = 3
	for round := range 300 {
		r.advance(16 * time.Second)
		var mu sync.Mutex
		won := 0
		var wg sync.WaitGroup
		for c := range claimers {
			wg.Go(func() {
				worker := fmt.Sprint("w", c)
				got, err := r.q.Reclaim(bg, queue.ReclaimRequest{Consumer: worker, Max: 1})
				if err != nil {
					t.Error(err)
					return
				}
				b, err := r.q.Begin(bg, queue.BeginRequest{Token: r.q.NewToken(), Entries: got.Entries, Start: 1})
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				won += len(b.Deliveries)
				mu.Unlock()
			})
		}
		wg.Wait()
		if won != 1 {
			t.Fatalf("round %d: %d claimers got the task", round, won)
		}
	}
}

// TestG3ThreeMovers promotes 20,000 tasks due in the same second.
func TestG3ThreeMovers(t *testing.T) {
	const n = 20000
	r := newRig(t)
	due := r.c.Time(bg).Val().Add(time.Hour)
	tasks := tasksNamed(numbered("t", n)...) // all with the same payload
	for i := range tasks {
		tasks[i].Due = due
	}
	r.add(tasks...)
	r.add(queue.Task{ID: "far", Kind: "k", Due: due.Add(24 * time.Hour)})
	r.c.ZAdd(bg, r.key(0, "due"), redis.Z{Score: float64(due.UnixMilli()), Member: "malformed"})
	if p, err := r.q.Promote(bg, 0, 10); err != nil || p.Count != 0 {
		t.Fatalf("nothing is due yet: %+v %v", p, err)
	}
	r.advance(time.Hour + time.Second)
	var mu sync.Mutex
	moved, malformed := 0, 0
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for {
				p, err := r.q.Promote(bg, 0, 1<<20)
				if err != nil {
					t.Error(err)
					return
				}
				if p.Count > queue.MaxBatch {
					t.Errorf("%d at once", p.Count)
				}
				mu.Lock()
				moved += p.Count
				malformed += len(p.Malformed)
				mu.Unlock()
				if !p.More {
					return
				}
			}
		})
	}
	wg.Wait()
	if moved != n || malformed != 1 {
		t.Errorf("%d moved, %d malformed", moved, malformed)
	}
	seen := map[string]int{}
	for id, at := range r.places(0) {
		seen[id] = at["waiting"]
	}
	if len(seen) != n+1 || seen["far"] != 0 {
		t.Errorf("%d tasks, far: %d", len(seen), seen["far"])
	}
	for id, times := range seen {
		if id != "far" && times != 1 {
			t.Fatalf("%s entered %d times", id, times)
		}
	}
}

// TestG4DeadLettersAreKept lists more than ten thousand, page by page.
func TestG4DeadLettersAreKept(t *testing.T) {
	const n = 10050
	r := newRig(t)
	r.add(tasksNamed(numbered("t", n)...)...)
	for left := n; left > 0; {
		ds := r.take("w", min(left, queue.MaxBatch))
		left -= len(ds)
		r.must(queue.DeadLettered, r.q.DeadLetter(bg, settlements(ds, rejected)))
	}
	seen := map[queue.TaskID]bool{}
	after := queue.EntryID("")
	for {
		page, err := r.q.DeadTasks(bg, 0, after, 100)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, d := range page {
			if seen[d.TaskID] || d.Reason != queue.DeadRejected || d.Failures != 1 || d.Task == nil {
				t.Fatalf("%+v", d)
			}
			seen[d.TaskID] = true
		}
		after = page[len(page)-1].EntryID
	}
	if len(seen) != n {
		t.Errorf("%d of %d are listed", len(seen), n)
	}
	if st, err := r.q.Stats(bg); err != nil || st.Dead != n || st.Unfinished() != 0 {
		t.Errorf("%+v %v", st, err)
	}
}

// TestD5ScriptsFlushed forgets the scripts between calls, and between a call's
// sending and its repetition, also within a pipeline.
func TestD5ScriptsFlushed(t *testing.T) {
	srv := redistest.Start(t)
	r := rigOn(t, srv.Client(), func(c *queue.Config) { c.Partitions = 4 })
	flush := func() {
		t.Helper()
		if err := r.c.ScriptFlush(bg).Err(); err != nil {
			t.Fatal(err)
		}
	}
	ids := numbered("t", 40)
	flush()
	r.add(tasksNamed(ids...)...)
	flush()
	ds := r.take("w", 40)
	flush()
	if _, err := r.q.StepIntent(bg, ds[0].Lease, "s", "k", r.q.NewToken()); err != nil {
		t.Error(err)
	}
	flush()
	r.must(queue.Retried, r.q.Retry(bg, settlements(ds[:20])))
	flush()
	r.must(queue.Completed, r.q.Complete(bg, settlements(ds[20:])))
	// All the time, while others work.
	stop := make(chan struct{})
	var flusher sync.WaitGroup
	other := srv.Client()
	flusher.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				other.ScriptFlush(bg)
			}
		}
	})
	// A second flush between the refusal and the whole text is impossible: the
	// whole text needs no cache.
	for i := range 50 {
		more := tasksNamed(numbered(fmt.Sprintf("m%d-", i), 8)...)
		r.add(more...)
		got := r.take("w", len(more))
		r.must(queue.Completed, r.q.Complete(bg, settlements(got)))
	}
	close(stop)
	flusher.Wait()
	for _, id := range ids[:20] {
		if place := r.inspect(id).Place; place != queue.Scheduled && place != queue.Done {
			t.Errorf("%s is %q", id, place)
		}
	}
	if n := r.total("stream"); n != 0 {
		t.Errorf("%d entries are left", n)
	}
}

// One partition's script is unknown and another's is not: only the unknown one
// is sent again.
func TestD5PartOfAPipeline(t *testing.T) {
	c := redistest.Shared(t).Client()
	r := rigOn(t, c, func(c *queue.Config) { c.Partitions = 4 })
	hook := faultredis.New(c)
	at := hook.Inject(faultredis.ReplyError(faultredis.Mentions("{q.2}"), "NOSCRIPT No matching script.").Once())
	r.add(tasksNamed(numbered("t", 40)...)...)
	if at.Fired() != 1 {
		t.Errorf("fired %d times", at.Fired())
	}
	if n := r.total("stream"); n != 40 {
		t.Errorf("%d entries", n)
	}
}
