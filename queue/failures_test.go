package queue_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/claimq/claimq/internal/faultredis"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/queue"
)

// attempts is how often a caller asks before it gives up for now.
const attempts = 4

// transition is one script and a caller of it.
type transition struct {
	// prepare makes what the script works on and returns the call. The call has
	// the same token and arguments each time, and answers without what differs
	// from run to run.
	prepare func(f *failing) func() (string, error)
	// replayed is the answer to a call that was applied before, where that is
	// by design not the first one; docs/protocol.md says so of each. "" is: the
	// first answer.
	replayed string
	// moves are the keys that even a repeated call may change: clocks and
	// cursors, and that a lease was renewed twice; never a task.
	moves []string
	// inSteps is a call of several scripts, or of one partition after the other:
	// a fault in the middle leaves the rest for the next ask.
	inSteps bool
}

// transitions has each script of queue/lua. One that is not here fails
// TestEveryFailureOfEveryScript.
var transitions = map[string]transition{
	"enqueue":     {prepare: (*failing).enqueue},
	"begin":       {prepare: (*failing).begin, moves: []string{"leases"}},
	"start":       {prepare: (*failing).start},
	"renew":       {prepare: (*failing).renew, moves: []string{"leases", "events"}},
	"split":       {prepare: (*failing).split},
	"reclaim":     {prepare: (*failing).reclaim, moves: []string{"conf"}},
	"complete":    {prepare: (*failing).complete},
	"retry":       {prepare: (*failing).retry},
	"release":     {prepare: (*failing).release},
	"dead":        {prepare: (*failing).dead},
	"quarantine":  {prepare: (*failing).quarantine, inSteps: true},
	"promote":     {prepare: (*failing).promote, replayed: "0 more false []"},
	"redrive":     {prepare: (*failing).redrive, replayed: strings.Repeat("waiting not found;", 6)},
	"delete":      {prepare: (*failing).delete, replayed: strings.Repeat(" not found;", 6)},
	"turn":        {prepare: (*failing).turn, replayed: "1 false false false;", moves: []string{"consumers"}},
	"tidy":        {prepare: (*failing).tidy, replayed: "[] []", moves: []string{"conf"}},
	"ensure":      {prepare: (*failing).ensure, inSteps: true},
	"stats":       {prepare: (*failing).stats},
	"times":       {prepare: (*failing).times, moves: []string{"times"}}, // counted again, as an estimate may be
	"inspect":     {prepare: (*failing).inspect},
	"step_intent": {prepare: (*failing).stepIntent},
	"step_result": {prepare: (*failing).stepResult},
	"probe":       {prepare: (*failing).probe},
}

// failing is a queue with a few tasks whose connection is about to fail.
type failing struct {
	*rig
	script string
	hook   *faultredis.Hook
	ids    []string
	leases []queue.Lease // all that any caller was ever given
	live   []string      // IDs that were accepted and are neither done nor deleted
}

// TestEveryFailureOfEveryScript has each script fail before it is applied, and
// after it with the reply lost, once and as often as the caller asks. Then
// everything that the server holds is read again: nothing is half done (I1), no
// task has two holders (I2); the error says what is known; and the caller's next
// step, to ask again, gets the answer of the first call and changes nothing more.
func TestEveryFailureOfEveryScript(t *testing.T) {
	if files, table := slices.Sorted(maps.Keys(readLua(t))), slices.Sorted(maps.Keys(transitions)); !slices.Equal(files, table) {
		t.Fatalf("scripts:\n%v\nscripts whose failures are tried:\n%v", files, table)
	}
	for _, name := range slices.Sorted(maps.Keys(transitions)) {
		for _, partitions := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s in %d", name, partitions), func(t *testing.T) {
				tryFailures(t, name, partitions)
			})
		}
	}
}

// A failure is one way in which a call does not end well.
var failures = []struct {
	name    string
	fault   func(faultredis.Match) faultredis.Fault
	times   int
	applied bool
	want    error
}{
	{"not applied, once", faultredis.FailBefore, 1, false, queue.ErrIndefinite},
	{"not applied, until given up", faultredis.FailBefore, attempts, false, queue.ErrIndefinite},
	{"reply lost, once", faultredis.LoseReply, 1, true, queue.ErrIndefinite},
	{"reply lost, until given up", faultredis.LoseReply, attempts, true, queue.ErrIndefinite},
	{"not reached, until given up", refused, attempts, false, queue.ErrUnavailable},
	{"refused, until given up", outOfMemory, attempts, false, queue.ErrUnavailable},
}

func refused(m faultredis.Match) faultredis.Fault {
	return faultredis.FailBefore(m).With(faultredis.ErrRefused)
}

func outOfMemory(m faultredis.Match) faultredis.Fault {
	return faultredis.ReplyError(m, "OOM command not allowed when used memory > 'maxmemory'.")
}

func tryFailures(t *testing.T, script string, partitions int) {
	tr := transitions[script]
	control := newFailing(t, script, partitions)
	ask := tr.prepare(control)
	first, err := ask() // and the server knows the script from now on
	if err != nil {
		t.Fatalf("without a fault: %v", err)
	}
	control.prove()
	if partitions > 1 && strings.HasSuffix(tr.replayed, ";") && script == "turn" {
		tr.replayed = strings.Repeat(tr.replayed, partitions)
	}
	for _, fail := range failures {
		t.Run(fail.name, func(t *testing.T) {
			f := newFailing(t, script, partitions)
			ask := tr.prepare(f)
			f.prove()
			before := f.snapshot(tr.moves)
			fault := fail.fault(faultredis.Script(queue.ScriptText(script)))
			if !tr.inSteps || fail.times > 1 {
				fault = fault.Times(fail.times)
			} else {
				fault = fault.Once()
			}
			at := f.hook.Inject(fault)
			var after string
			for n := range fail.times {
				got, err := ask()
				if !errors.Is(err, fail.want) {
					t.Fatalf("ask %d: %q, error %v, want %v", n+1, got, err, fail.want)
				}
				if !queue.IsRetryable(err) {
					t.Errorf("the caller is not told that it may ask again: %v", err)
				}
				f.prove()
				switch state := f.snapshot(tr.moves); {
				case !fail.applied && !tr.inSteps:
					differ(t, "a call that was not applied", before, state)
				case n > 0 && !tr.inSteps:
					differ(t, "a repeated call", after, state)
				default:
					after = state
				}
			}
			if at.Fired() != fail.times {
				t.Fatalf("the fault met %d calls, want %d", at.Fired(), fail.times)
			}
			at.Remove()
			want := first
			if fail.applied && tr.replayed != "" {
				want = tr.replayed
			}
			got, err := ask()
			if err != nil || got != want && !tr.inSteps || tr.inSteps && got != first {
				t.Errorf("asked again: %q, %v; want %q", got, err, want)
			}
			f.prove()
			if fail.applied && !tr.inSteps {
				differ(t, "asking again", after, f.snapshot(tr.moves))
			}
		})
	}
}

func differ(t *testing.T, what, before, after string) {
	t.Helper()
	if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(after, "\n")); diff != "" {
		t.Errorf("%s changed something (-before +after):\n%s", what, diff)
	}
}

func newFailing(t *testing.T, script string, partitions int) *failing {
	c := redistest.Shared(t).Client()
	f := &failing{
		rig: rigOn(t, c, func(c *queue.Config) {
			c.Partitions, c.Lease, c.Trace = partitions, 30*time.Minute, partitions > 1
		}),
		script: script, hook: faultredis.New(c), ids: numbered("t", 6),
	}
	return f
}

// prove reads everything that the server holds: each live task is in exactly
// one place, its record and the indexes agree with it, and at most one of the
// leases that were ever given out for it is live.
func (f *failing) prove() {
	f.t.Helper()
	found := map[string]int{}
	for p := range f.q.Partitions() {
		records := f.c.HGetAll(bg, f.key(p, "tasks")).Val()
		for id, at := range f.places(p) {
			for _, n := range at {
				found[id] += n
			}
		}
		f.proveRecords(p, records)
		if due, scheduled := f.c.ZCard(bg, f.key(p, "due")).Val(), f.c.XLen(bg, f.key(p, "scheduled")).Val(); due != scheduled {
			f.t.Errorf("I1: %d tasks are scheduled, %d are in the index", scheduled, due)
		}
		for _, row := range f.pending(p) {
			if len(f.c.XRange(bg, f.key(p, "stream"), row.ID, row.ID).Val()) == 0 {
				f.t.Errorf("I1: the pending row %s has no entry", row.ID)
			}
		}
	}
	for _, id := range f.live {
		if found[id] != 1 {
			f.t.Errorf("I1: %s is in %d places", id, found[id])
		}
	}
	for id, n := range found {
		if n > 1 {
			f.t.Errorf("I1: %s is in %d places", id, n)
		}
	}
}

func (f *failing) proveRecords(p int, records map[string]string) {
	f.t.Helper()
	for id, rec := range records {
		home := map[byte]string{'w': "stream", 'h': "stream", 'p': "stream", 's': "scheduled", 'd': "dead"}[rec[0]]
		part := strings.Fields(rec[1:])
		if got := f.c.XRange(bg, f.key(p, home), part[0], part[0]).Val(); len(got) != 1 {
			f.t.Errorf("I1: the record of %s is %q, and there is no such entry", id, rec)
		}
		if len(part) != 4 {
			continue
		}
		if _, err := f.c.ZScore(bg, f.key(p, "leases"), part[3]).Result(); err != nil {
			f.t.Errorf("I2: %s is held by %s, whose lease has no end: %v", id, part[3], err)
		}
		if granted := f.c.HGet(bg, f.key(p, "grants"), part[3]).Val(); !strings.Contains(granted, part[0]+" "+id+"\n") {
			f.t.Errorf("I2: %s is held by %s, which was granted %q", id, part[3], granted)
		}
		holders := map[string]bool{}
		for _, l := range f.leases {
			if string(l.TaskID) == id && fmt.Sprint(l.Fence) == part[2] && string(l.Grant.Token) == part[3] {
				holders[part[2]+part[3]] = true
			} else if string(l.TaskID) == id && f.script == "begin" && fmt.Sprint(l.Fence) > part[2] {
				f.t.Errorf("I3: %s is held under fence %s, and %d was given out", id, part[2], l.Fence)
			}
		}
		if len(holders) > 1 {
			f.t.Errorf("I2: %s is held by %v", id, holders)
		}
	}
}

// snapshot is all that the server holds of the queue, without the scores and
// values of the keys in moves.
func (f *failing) snapshot(moves []string) string {
	f.t.Helper()
	var out []string
	for what, typ := range documentedKeys(f.t) {
		for p := range f.q.Partitions() {
			moving := slices.Contains(moves, what)
			for _, line := range f.content(f.key(p, what), typ, moving) {
				out = append(out, fmt.Sprintf("%d %s %s", p, what, line))
			}
			if what == "stream" {
				for _, row := range f.pending(p) {
					out = append(out, fmt.Sprintf("%d pending %s %s", p, row.ID, row.Consumer))
				}
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func (f *failing) content(key, typ string, moving bool) (out []string) {
	switch typ {
	case "stream":
		for _, e := range f.c.XRange(bg, key, "-", "+").Val() {
			if !moving {
				out = append(out, fmt.Sprint(e.ID, " ", e.Values))
			}
		}
	case "hash":
		for field, v := range f.c.HGetAll(bg, key).Val() {
			if !moving {
				out = append(out, fmt.Sprintf("%q %q", field, v))
			}
		}
	case "zset":
		for _, z := range f.c.ZRangeWithScores(bg, key, 0, -1).Val() {
			if moving {
				z.Score = 0
			}
			out = append(out, fmt.Sprint(z.Member, " ", z.Score))
		}
	case "string":
		out = append(out, f.c.Get(bg, key).Val())
	default:
		out = append(out, fmt.Sprint(f.c.Exists(bg, key).Val()))
	}
	return out
}

// answer puts the parts of an answer together; the first error that speaks of
// the call as a whole is the error of the call.
type answer struct {
	text string
	err  error
}

func (a *answer) add(err error, format string, args ...any) {
	switch {
	case err == nil:
		a.text += fmt.Sprintf(format, args...) + ";"
	case errors.Is(err, queue.ErrNotFound):
		a.text += fmt.Sprintf(format, args...) + " not found;"
	case a.err == nil:
		a.err = err
	}
}

func (a *answer) get() (string, error) {
	if a.err != nil {
		return "", a.err
	}
	return a.text, nil
}

func (f *failing) added() {
	f.add(tasksNamed(f.ids...)...)
	f.live = append(f.live, f.ids...)
}

// taken adds the tasks and takes a lease on each.
func (f *failing) taken(start bool) []queue.Delivery {
	f.t.Helper()
	f.added()
	n := 0
	if start {
		n = len(f.ids)
	}
	ds := f.beginAll(f.readAll("w"), f.q.NewToken(), n)
	if len(ds.Deliveries) != len(f.ids) {
		f.t.Fatalf("%+v", ds)
	}
	return ds.Deliveries
}

func (f *failing) beginAll(es []queue.Entry, token queue.Token, start int) queue.Batch {
	f.t.Helper()
	b, err := f.q.Begin(bg, queue.BeginRequest{Token: token, Entries: es, Start: start})
	if err != nil {
		f.t.Fatal(err)
	}
	f.keep(b)
	return b
}

func (f *failing) keep(b queue.Batch) {
	for _, d := range b.Deliveries {
		f.leases = append(f.leases, d.Lease)
	}
}

func (f *failing) enqueue() func() (string, error) {
	token := f.q.NewToken()
	return func() (string, error) {
		var a answer
		for _, r := range f.q.Enqueue(bg, token, tasksNamed(f.ids...)) {
			a.add(r.Err, "%s added %v at %s", r.ID, r.Added, r.Place)
		}
		if a.err == nil {
			f.live = f.ids
		}
		return a.get()
	}
}

func (f *failing) begin() func() (string, error) {
	f.added()
	es, token := f.readAll("w"), f.q.NewToken()
	return func() (string, error) {
		b, err := f.q.Begin(bg, queue.BeginRequest{Token: token, Entries: es, Start: 3})
		if err != nil {
			return "", err
		}
		f.keep(b)
		var a answer
		for _, d := range b.Deliveries {
			rec := strings.Fields(f.c.HGet(bg, f.key(d.Lease.Grant.Partition, "tasks"), string(d.Task.ID)).Val())
			a.add(nil, "%s started %v attempt %d, as on record %v", d.Task.ID, d.Started, d.Lease.Attempt,
				len(rec) == 4 && rec[2] == fmt.Sprint(d.Lease.Fence) && rec[3] == string(d.Lease.Grant.Token))
		}
		a.add(nil, "busy %v copies %v", b.Busy, b.Duplicates)
		text, err := a.get()
		parts := strings.Split(text, ";")
		slices.Sort(parts)
		return strings.Join(parts, ";"), err
	}
}

func leasesOf(ds []queue.Delivery) (ls []queue.Lease) {
	for _, d := range ds {
		ls = append(ls, d.Lease)
	}
	return ls
}

func (f *failing) start() func() (string, error) {
	ls := leasesOf(f.taken(false))
	return func() (string, error) {
		var a answer
		for i, err := range f.q.Start(bg, ls) {
			a.add(err, "start %d", i)
		}
		return a.get()
	}
}

func (f *failing) renew() func() (string, error) {
	var grants []queue.Grant
	for _, l := range leasesOf(f.taken(true)) {
		if !slices.Contains(grants, l.Grant) {
			grants = append(grants, l.Grant)
		}
	}
	return func() (string, error) {
		var a answer
		for i, r := range f.q.Renew(bg, grants) {
			a.add(r.Err, "renewed %d, revoked %v", i, r.Revoked)
		}
		return a.get()
	}
}

func (f *failing) split() func() (string, error) {
	ls := leasesOf(f.taken(true))[:3]
	token := f.q.NewToken()
	return func() (string, error) {
		var a answer
		moved, errs := f.q.Split(bg, token, ls)
		for i, err := range errs {
			a.add(err, "split %s %v", moved[i].TaskID, moved[i].Grant.Token == token)
		}
		return a.get()
	}
}

func (f *failing) reclaim() func() (string, error) {
	f.taken(true)
	f.advance(time.Hour)
	p := f.q.PartitionOf(queue.TaskID(f.ids[0]))
	return func() (string, error) {
		r, err := f.q.Reclaim(bg, queue.ReclaimRequest{Partition: p, Consumer: "other", Max: 10})
		var ids []string
		for _, e := range r.Entries {
			ids = append(ids, e.Fields[1])
		}
		return fmt.Sprint(ids, len(r.Delays), r.Missing), err
	}
}

func (f *failing) settled(verb settlingVerb, ds []queue.Delivery, edit ...func(*queue.Settlement)) func() (string, error) {
	in := settlements(ds, edit...)
	return func() (string, error) {
		var a answer
		for _, s := range verb(bg, in) {
			a.add(s.Err, "%s %s", s.TaskID, s.Outcome)
		}
		return a.get()
	}
}

func endsGrant(s *queue.Settlement) { s.EndsGrant = true }

func (f *failing) complete() func() (string, error) {
	ds := f.taken(true)
	f.live = nil
	ask := f.settled(f.q.Complete, ds, endsGrant, func(s *queue.Settlement) { s.Result = []byte("r") })
	for _, d := range ds[:2] {
		if _, err := f.q.StepIntent(bg, d.Lease, "pay", "key", f.q.NewToken()); err != nil {
			f.t.Fatal(err)
		}
	}
	return ask
}

func (f *failing) retry() func() (string, error) {
	return f.settled(f.q.Retry, f.taken(true), endsGrant, func(s *queue.Settlement) { s.Error, s.Delay = "no", time.Minute })
}

func (f *failing) release() func() (string, error) {
	return f.settled(f.q.Release, f.taken(true), endsGrant, func(s *queue.Settlement) {
		s.Unhandled = s.Lease.TaskID == "t0"
		if s.Lease.TaskID == "t1" {
			s.Delay = time.Minute
		}
	})
}

func (f *failing) dead() func() (string, error) {
	return f.settled(f.q.DeadLetter, f.taken(true), endsGrant, rejected)
}

func (f *failing) quarantine() func() (string, error) {
	for p := range f.q.Partitions() {
		for i := range 3 {
			f.c.XAdd(bg, xadd(f.key(p, "stream"), "id", fmt.Sprintf("bad%d-%d", p, i), "payload", "no kind"))
		}
	}
	es, token := f.readAll("w"), f.q.NewToken()
	return func() (string, error) {
		b, err := f.q.Begin(bg, queue.BeginRequest{Token: token, Entries: es})
		return fmt.Sprint(len(b.Buried), len(b.Deliveries)), err
	}
}

func (f *failing) promote() func() (string, error) {
	tasks := tasksNamed(f.ids...)
	for i := range tasks {
		tasks[i].Delay = time.Minute
	}
	f.add(tasks...)
	f.live = f.ids
	f.advance(time.Hour)
	p := f.q.PartitionOf("t0")
	return func() (string, error) {
		got, err := f.q.Promote(bg, p, 10)
		return fmt.Sprintf("%d more %v %v", got.Count, got.More, got.Malformed), err
	}
}

func (f *failing) moved(verb func([]queue.TaskID) []queue.Moved) func() (string, error) {
	var ids []queue.TaskID
	for _, id := range f.ids {
		ids = append(ids, queue.TaskID(id))
	}
	return func() (string, error) {
		var a answer
		for _, m := range verb(ids) {
			a.add(m.Err, "%s", m.From)
		}
		return a.get()
	}
}

func (f *failing) redrive() func() (string, error) {
	f.must(queue.DeadLettered, f.q.DeadLetter(bg, settlements(f.taken(true), endsGrant, rejected)))
	return f.moved(func(ids []queue.TaskID) []queue.Moved { return f.q.Redrive(bg, ids) })
}

func (f *failing) delete() func() (string, error) {
	ds := f.taken(true)
	f.must(queue.Completed, f.q.Complete(bg, settlements(ds[:2])))
	f.must(queue.Retried, f.q.Retry(bg, settlements(ds[2:3], func(s *queue.Settlement) { s.Delay = time.Hour })))
	f.must(queue.DeadLettered, f.q.DeadLetter(bg, settlements(ds[3:4], rejected)))
	f.live = nil
	return f.moved(func(ids []queue.TaskID) []queue.Moved { return f.q.Delete(bg, ids) })
}

func (f *failing) turn() func() (string, error) {
	f.taken(true)
	f.advance(time.Hour)
	return func() (string, error) {
		var a answer
		for _, turn := range f.q.Turn(bg, queue.TurnRequest{Consumer: "other", Slots: true, Interval: 10 * time.Minute}) {
			a.add(turn.Err, "%d %v %v %v", turn.Consumers, turn.Reclaim, turn.Due, turn.Tidy)
		}
		return a.get()
	}
}

func (f *failing) tidy() func() (string, error) {
	f.added()
	f.q.Turn(bg, queue.TurnRequest{Consumer: "gone", Interval: time.Millisecond})
	p := f.q.PartitionOf("t0")
	f.c.XGroupCreateConsumer(bg, f.key(p, "stream"), queue.Group, "gone")
	f.advance(time.Hour)
	return func() (string, error) {
		got, err := f.q.Tidy(bg, p)
		return fmt.Sprint(got.RemovedConsumers, got.Lost), err
	}
}

func (f *failing) ensure() func() (string, error) {
	for p := range f.q.Partitions() {
		f.c.Del(bg, f.key(p, "stream"), f.key(p, "conf"))
	}
	return func() (string, error) { return "made", f.q.Ensure(bg) }
}

func (f *failing) stats() func() (string, error) {
	f.taken(true)
	return func() (string, error) {
		s, err := f.q.Stats(bg)
		s.OldestWaiting, s.OldestPending, s.Overdue = 0, 0, 0 // they grow from ask to ask
		return fmt.Sprint(s.PartitionStats), err
	}
}

func (f *failing) times() func() (string, error) {
	f.taken(true)
	return func() (string, error) { return "counted", f.q.AddTimes(bg, map[string]queue.Histogram{"k": {3: 1}}) }
}

func (f *failing) inspect() func() (string, error) {
	f.taken(true)
	return func() (string, error) {
		info, err := f.q.Inspect(bg, "t0")
		return fmt.Sprint(info.Place, info.Started, info.Failures), err
	}
}

func (f *failing) stepIntent() func() (string, error) {
	l, once := f.taken(true)[0].Lease, f.q.NewToken()
	return func() (string, error) {
		s, err := f.q.StepIntent(bg, l, "pay", "key", once)
		return fmt.Sprintf("before %q", s.State), err
	}
}

func (f *failing) stepResult() func() (string, error) {
	l := f.taken(true)[0].Lease
	if _, err := f.q.StepIntent(bg, l, "pay", "key", f.q.NewToken()); err != nil {
		f.t.Fatal(err)
	}
	return func() (string, error) {
		s, err := f.q.StepResult(bg, l, "pay", queue.StepDone, []byte("receipt"))
		return fmt.Sprintf("%s %s", s.State, s.Result), err
	}
}

// probe has an answer of its own for a server that refuses: what to do about it.
func (f *failing) probe() func() (string, error) {
	return func() (string, error) {
		r, err := f.q.Probe(bg)
		for _, finding := range r.Findings {
			if finding.What == "scripts" && finding.Fatal {
				err = fmt.Errorf("%w: %s", queue.ErrUnavailable, finding.Detail)
			}
		}
		return fmt.Sprint(len(r.Findings)), err
	}
}
