package queue_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/queue"
)

func (r *rig) timeline(id string) queue.Timeline {
	r.t.Helper()
	got, err := r.q.Timeline(bg, queue.TaskID(id))
	if err != nil {
		r.t.Fatalf("timeline of %s: %v", id, err)
	}
	return got
}

func kinds(es []queue.Event) (out []queue.EventKind) {
	for _, e := range es {
		out = append(out, e.Kind)
	}
	return out
}

// stale gives leases that were taken over by others.
func (r *rig) stale(ids ...string) []queue.Delivery {
	r.t.Helper()
	r.add(tasksNamed(ids...)...)
	ds := r.take("old", len(ids))
	r.advance(time.Hour)
	for p := range r.q.Partitions() {
		es := r.reclaim(p, "new", len(ids)).Entries
		r.begin(es, len(es))
	}
	return ds
}

// TestEventsAreBounded fills the events of a partition twice over: what is kept
// is bounded, by number and bytes, and Timeline says what may be missing.
func TestEventsAreBounded(t *testing.T) {
	r := newRig(t)
	r.add(tasksNamed("early")...)
	early := r.take("w", 1)
	r.must(queue.Retried, r.q.Retry(bg, settlements(early, func(s *queue.Settlement) { s.Error = "first" })))
	if got := r.timeline("early"); got.Cut || !slices.Equal(kinds(got.Events), []queue.EventKind{queue.EventFailed}) {
		t.Errorf("%+v", got)
	}
	ids := numbered("01890a5d-ac96-774b-bcce-0000000000", queue.MaxBatch)
	ds := r.stale(ids...)
	for range 2*queue.EventsKept/len(ds) + 1 {
		r.must(queue.Lost, r.q.Complete(bg, settlements(ds)))
	}
	r.add(tasksNamed("late")...)
	r.must(queue.DeadLettered, r.q.DeadLetter(bg, settlements(r.take("w", 1), rejected)))

	n := r.c.XLen(bg, r.key(0, "events")).Val()
	if n < queue.EventsKept || n > queue.EventsKept+200 {
		t.Errorf("%d events are kept, want about %d", n, queue.EventsKept)
	}
	each := float64(r.usage(r.key(0, "events"))) / float64(n)
	t.Logf("%.0f bytes for each event, %.1f MB for the partition", each, each*float64(n)/1e6)
	if each > 200 {
		t.Errorf("%.0f bytes for each event", each)
	}
	if got := r.timeline("early"); !got.Cut || len(got.Events) != 0 || got.Since.IsZero() {
		t.Errorf("the place is full and it is not said: %+v", got)
	}
	if got := r.timeline(ids[0]); !got.Cut || len(got.Events) < queue.EventsKept/len(ids) {
		t.Errorf("cut %v, %d events", got.Cut, len(got.Events))
	}
	if got := r.timeline("late"); got.Cut || !slices.Equal(kinds(got.Events), []queue.EventKind{queue.EventDead}) {
		t.Errorf("nothing of it can be missing: %+v", got)
	}
}

// TestEventBoundsAreTheConstants holds what the scripts keep to what is said.
func TestEventBoundsAreTheConstants(t *testing.T) {
	src, err := os.ReadFile("lua/include/events.lua")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`local EVENTS, ERROR_BYTES = (\d+), (\d+)\n`).FindStringSubmatch(string(src))
	if m == nil || atoi(m[1]) != queue.EventsKept || atoi(m[2]) != queue.MaxEventErrorBytes {
		t.Errorf("%q, want %d and %d", m, queue.EventsKept, queue.MaxEventErrorBytes)
	}
}

// everyVerb calls every verb that tells of something, holders and others, and
// gives all answers.
func everyVerb(r *rig) []string {
	var out []string
	say := func(what string, v any) { out = append(out, fmt.Sprintf("%s %v", what, v)) }
	settled := func(what string, got []queue.Settled) {
		for _, s := range got {
			say(what, fmt.Sprint(s.TaskID, s.Outcome, errors.Is(s.Err, queue.ErrEntryGone)))
		}
	}
	q, token := r.q, r.q.NewToken()
	for range 2 {
		for _, got := range q.Enqueue(bg, token, append(tasksNamed(numbered("t", 8)...), queue.Task{ID: "later", Kind: "k", Delay: time.Minute})) {
			say("enqueue", fmt.Sprint(got.ID, got.Added, got.Place, got.Err))
		}
	}
	for _, got := range q.Enqueue(bg, q.NewToken(), tasksNamed("t0")) {
		say("enqueue", fmt.Sprint(got.Duplicate, got.Err))
	}
	r.c.XAdd(bg, xadd(q.StreamKey(0), "id", "t0", "kind", "k", "payload", "copy"))
	r.c.XAdd(bg, xadd(q.StreamKey(0), "no", "task"))
	b := r.begin(r.read("w1", 100), 4)
	say("begin", fmt.Sprint(len(b.Deliveries), len(b.Duplicates), len(b.Buried)))
	ds := b.Deliveries
	say("start", q.Start(bg, []queue.Lease{ds[4].Lease}))
	say("renew", q.Renew(bg, []queue.Grant{ds[0].Lease.Grant})[0].Err)
	r.advance(time.Hour)
	es := r.reclaim(0, "w2", 2).Entries
	say("reclaim", len(es))
	taken := r.begin(es, 2).Deliveries
	say("begin", len(taken))
	_, errs := q.Split(bg, q.NewToken(), []queue.Lease{ds[7].Lease})
	say("split", errs)
	say("renew", errors.Is(q.Renew(bg, []queue.Grant{ds[0].Lease.Grant})[0].Err, queue.ErrLeaseLost))
	say("start", errors.Is(q.Start(bg, []queue.Lease{ds[5].Lease})[0], queue.ErrLeaseLost))
	for what, verb := range map[string]settlingVerb{"complete": q.Complete, "retry": q.Retry, "release": q.Release, "dead": q.DeadLetter} {
		settled("late "+what, verb(bg, settlements(ds[:1], rejected)))
	}
	settled("complete", q.Complete(bg, settlements(ds[2:3])))
	settled("retry", q.Retry(bg, settlements(ds[3:4])))
	settled("release", q.Release(bg, settlements(ds[4:5])))
	settled("dead", q.DeadLetter(bg, settlements(ds[5:6], rejected)))
	r.c.XDel(bg, q.StreamKey(0), string(ds[6].Lease.EntryID))
	settled("gone", q.Retry(bg, settlements(ds[6:7])))
	p, err := q.Promote(bg, 0, 10)
	say("promote", fmt.Sprint(p, err))
	say("redrive", q.Redrive(bg, []queue.TaskID{ds[5].Task.ID})[0].Err)
	say("delete", q.Delete(bg, []queue.TaskID{ds[5].Task.ID, ds[2].Task.ID}))
	r.c.XDel(bg, q.StreamKey(0), string(taken[1].Lease.EntryID))
	r.advance(time.Hour)
	lost, err := q.Tidy(bg, 0)
	say("tidy", fmt.Sprint(len(lost.Lost), err))
	slices.Sort(out)
	return out
}

// TestEventsAreNeverInTheWay has events that cannot be kept, since their key is
// of another type: every verb answers and leaves behind what it would have.
func TestEventsAreNeverInTheWay(t *testing.T) {
	for _, trace := range []bool{false, true} {
		t.Run(fmt.Sprint("trace ", trace), func(t *testing.T) {
			with := func(c *queue.Config) { c.Trace = trace }
			kept, broken := newRig(t, with), newRig(t, with)
			broken.c.Set(bg, broken.key(0, "events"), "of another type", 0)
			if diff := cmp.Diff(everyVerb(kept), everyVerb(broken)); diff != "" {
				t.Errorf("the answers differ (-kept +not kept):\n%s", diff)
			}
			if diff := cmp.Diff(kept.places(0), broken.places(0)); diff != "" {
				t.Errorf("the places differ (-kept +not kept):\n%s", diff)
			}
			if got := broken.c.Get(bg, broken.key(0, "events")).Val(); got != "of another type" {
				t.Errorf("the key holds %q", got)
			}
			// What is told of it is at least where it is.
			got, err := broken.q.Timeline(bg, "t0")
			if !errors.Is(err, queue.ErrUnavailable) || got.Info.Place != queue.Pending {
				t.Errorf("%+v, %v", got, err)
			}
			found := map[queue.EventKind]bool{}
			for _, e := range kept.c.XRange(bg, kept.key(0, "events"), "-", "+").Val() {
				found[queue.EventKind(fmt.Sprint(e.Values["event"]))] = true
			}
			want := []queue.EventKind{
				queue.EventDead, queue.EventDeleted, queue.EventDuplicate, queue.EventFailed, queue.EventLeaseLost, queue.EventLost,
				queue.EventQuarantined, queue.EventReclaimed, queue.EventRedriven, queue.EventRefused, queue.EventSplit,
			}
			if trace {
				want = append(want, queue.EventCompleted, queue.EventDelivered, queue.EventEnqueued, queue.EventPromoted,
					queue.EventReleased, queue.EventRenewed, queue.EventStarted)
			}
			slices.Sort(want)
			if diff := cmp.Diff(want, slices.Sorted(maps.Keys(found))); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEventsOnAFullServer has one who is not the holder settle on a full server,
// where the event would be the first write of the script: it is not kept, and
// the answer is the one that it would have been. A holder's is kept.
func TestEventsOnAFullServer(t *testing.T) {
	srv := redistest.Start(t, "--maxmemory-policy", "noeviction")
	r := rigOn(t, srv.Client(), func(c *queue.Config) { c.Trace = true })
	ds := r.stale("a")
	r.add(tasksNamed("b")...)
	mine := r.take("w", 1)
	isFull, lift := full(r, 64<<10)
	before := len(r.timeline("a").Events)
	r.must(queue.Lost, r.q.Complete(bg, settlements(ds)))
	isFull("complete")
	if after := len(r.timeline("a").Events); after != before {
		t.Errorf("%d events more on a full server", after-before)
	}
	r.must(queue.Retried, r.q.Retry(bg, settlements(mine)))
	lift()
	if got := kinds(r.timeline("b").Events); !slices.Contains(got, queue.EventFailed) {
		t.Errorf("%v", got)
	}
}

// TestUntracedStepsTellNothing counts the commands that a task's way through
// the queue costs: without Config.Trace none of them is for events.
func TestUntracedStepsTellNothing(t *testing.T) {
	const n = 50
	for _, trace := range []bool{false, true} {
		r := rigOn(t, redistest.Start(t).Client(), func(c *queue.Config) { c.Trace = trace })
		r.c.ConfigResetStat(bg)
		r.add(tasksNamed(numbered("t", n)...)...)
		ds := r.begin(r.read("w", n), 0).Deliveries
		for _, err := range r.q.Start(bg, leasesOf(ds)) {
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := r.q.Renew(bg, []queue.Grant{ds[0].Lease.Grant})[0].Err; err != nil {
			t.Fatal(err)
		}
		r.must(queue.Completed, r.q.Complete(bg, settlements(ds)))
		calls := map[string]int{}
		for _, m := range regexp.MustCompile(`cmdstat_(\w+):calls=(\d+)`).FindAllStringSubmatch(r.c.Info(bg, "commandstats").Val(), -1) {
			calls[m[1]] = atoi(m[2])
		}
		extra := 0 // enqueued, delivered, started, completed; renewed
		if trace {
			extra = 4*n + 1
		}
		if calls["xadd"] != n+extra {
			t.Errorf("trace %v: %d XADD for %d tasks, want %d", trace, calls["xadd"], n, n+extra)
		}
		if got := r.c.XLen(bg, r.key(0, "events")).Val(); got != int64(extra) {
			t.Errorf("trace %v: %d events", trace, got)
		}
		// Begin looks at counts once; nothing is asked for each task but its entry's XADD.
		for cmd, most := range map[string]int{"hget": 30, "hmget": 10, "hset": 10, "zscore": 1, "zmscore": 1, "zadd": 2} {
			if !trace && calls[cmd] > most {
				t.Errorf("%d calls of %s, want %d at most", calls[cmd], cmd, most)
			}
		}
	}
}

// TestEventsHoldNoPayload looks for what tasks carry in everything that is told,
// and has long error texts cut.
func TestEventsHoldNoPayload(t *testing.T) {
	r := newRig(t, func(c *queue.Config) { c.Trace = true })
	const secret = "secret-payload"
	r.add(queue.Task{ID: "a", Kind: "k", Payload: []byte(secret), Headers: map[string]string{"h": secret}})
	ds := r.take("w", 1)
	r.must(queue.Retried, r.q.Retry(bg, settlements(ds, func(s *queue.Settlement) { s.Error = "x" + strings.Repeat("é", 300) })))
	r.c.XAdd(bg, xadd(r.q.StreamKey(0), "payload", secret))
	r.begin(r.read("w", 1), 1)
	for _, e := range r.c.XRange(bg, r.key(0, "events"), "-", "+").Val() {
		if strings.Contains(fmt.Sprint(e.Values), secret) {
			t.Errorf("%v", e.Values)
		}
	}
	failed := r.timeline("a").Events[2]
	if n := len(failed.Error); failed.Kind != queue.EventFailed || n > queue.MaxEventErrorBytes || n < queue.MaxEventErrorBytes-4 || !utf8.ValidString(failed.Error) {
		t.Errorf("%s: %d bytes %q", failed.Kind, n, failed.Error)
	}
}

// TestEventsNameTheirConsumer settles tasks that one worker took under two names
// in one call: each event has the name of its own.
func TestEventsNameTheirConsumer(t *testing.T) {
	r := newRig(t)
	r.add(tasksNamed("a", "b")...)
	var ds []queue.Delivery
	for _, name := range []string{"w", "w-1"} {
		b, err := r.q.Begin(bg, queue.BeginRequest{Token: r.q.NewToken(), Consumer: name, Entries: r.read(name, 1), Start: 1})
		if err != nil {
			t.Fatal(err)
		}
		ds = append(ds, b.Deliveries...)
	}
	r.must(queue.Retried, r.q.Retry(bg, settlements(ds)))
	for i, want := range []string{"w", "w-1"} {
		e := r.timeline(string(ds[i].Task.ID)).Events[0]
		if e.Consumer != want || e.Owner != ds[i].Lease.Grant.Token.Short() || e.Fence != ds[i].Lease.Fence || e.Stage != queue.StageStarted || e.LeaseEnds.IsZero() {
			t.Errorf("%+v, want consumer %s", e, want)
		}
	}
	// One who names no lease at all is refused, and told of, like any other.
	if got := r.q.Complete(bg, []queue.Settlement{{Lease: queue.Lease{TaskID: "a", EntryID: "1-1"}}})[0]; got.Outcome != queue.Lost || got.Err != nil {
		t.Errorf("%+v", got)
	}
	if es := r.timeline("a").Events; es[len(es)-1].Kind != queue.EventRefused {
		t.Errorf("%+v", es)
	}
	if _, err := r.q.Timeline(bg, "nobody"); !errors.Is(err, queue.ErrNotFound) {
		t.Errorf("of an unknown task: %v", err)
	}
}
