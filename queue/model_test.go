package queue_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/claimq/claimq/internal/faultredis"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/queue"
)

var (
	modelSeed  = flag.Uint64("model.seed", 0, "replay one random walk of TestModel")
	modelSteps = flag.Int("model.steps", 1500, "steps of each random walk of TestModel")
)

// TestModel walks at random over all verbs, with several workers, hand-made
// copies, lost records, lost replies and time that passes, and after each step
// compares what the server holds with I1 to I5 and I7.
func TestModel(t *testing.T) {
	seeds := []uint64{1, 2, 3, 4}
	if *modelSeed != 0 {
		seeds = []uint64{*modelSeed}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			m := newModel(t, seed)
			for m.step = range *modelSteps {
				m.walk()
				if t.Failed() {
					t.Fatalf("step %d of seed %d: %s\nreplay: go test ./queue -run 'TestModel$' -model.seed=%d -model.steps=%d",
						m.step, seed, m.did, seed, m.step+1)
				}
			}
			m.finish()
			if t.Failed() {
				t.Fatalf("replay: go test ./queue -run 'TestModel$' -model.seed=%d", seed)
			}
		})
	}
}

// held is a lease as the model knows it.
type held struct {
	queue.Lease
	started bool
	ends    time.Duration // on the model's clock
	over    bool          // settled, taken by another, or deleted
	outcome queue.Outcome // how its holder settled it
	again   bool          // that is still the last thing that was settled
}

// known is what the model knows of one ID.
type known struct {
	accepted bool // added and not done
	done     bool
	fence    queue.Fence
	entries  int // in all places, after the last step
	add      int // how many this step may have added
	token    queue.Token
	leases   []*held
}

type model struct {
	*rig
	rnd     *rand.Rand
	hook    *faultredis.Hook
	step    int
	did     string
	clock   time.Duration
	ids     []queue.TaskID
	tasks   map[queue.TaskID]*known
	entries map[string][]queue.Entry // read or reclaimed and not begun, by worker
	verbs   map[string]int
}

// modelLease is so long that the time a walk takes does not matter.
const modelLease = 30 * time.Minute

func newModel(t *testing.T, seed uint64) *model {
	c := redistest.Shared(t).Client()
	m := &model{
		rig: rigOn(t, c, func(c *queue.Config) {
			c.Partitions, c.Lease, c.MaxFailures, c.MaxInterruptions = 2, modelLease, 4, 5
			c.Retention, c.Trace = 1000*time.Hour, seed%2 == 0
		}),
		rnd: rand.New(rand.NewPCG(seed, 0)), hook: faultredis.New(c),
		tasks: map[queue.TaskID]*known{}, entries: map[string][]queue.Entry{}, verbs: map[string]int{},
	}
	for i := range 12 {
		id := queue.TaskID(fmt.Sprint("t", i))
		m.ids = append(m.ids, id)
		m.tasks[id] = &known{}
	}
	return m
}

func (m *model) id() queue.TaskID { return m.ids[m.rnd.IntN(len(m.ids))] }
func (m *model) worker() string   { return fmt.Sprint("w", m.rnd.IntN(3)) }

// unsure runs f, now and then after a first call whose reply is lost, or that
// was not applied.
func unsure[T any](m *model, f func() T) T {
	switch m.rnd.IntN(6) {
	case 0:
		at := m.hook.Inject(faultredis.LoseReply(nil).Once())
		f()
		at.Remove()
		m.did += " (reply lost, asked again)"
	case 1:
		at := m.hook.Inject(faultredis.FailBefore(nil).Once())
		f()
		at.Remove()
		m.did += " (not applied, asked again)"
	}
	return f()
}

// walk makes one step and checks what it left behind.
func (m *model) walk() {
	steps := []struct {
		weight int
		name   string
		do     func()
	}{
		{20, "enqueue", m.enqueue}, {4, "resend", m.resend}, {4, "xadd", m.xadd}, {20, "read", m.readSome}, {20, "begin", m.beginSome},
		{6, "start", m.start}, {5, "renew", m.renew}, {24, "settle", m.settle}, {3, "split", m.split},
		{10, "reclaim", m.reclaimSome}, {8, "promote", m.promote}, {3, "redrive", m.redrive}, {2, "delete", m.delete},
		{5, "tidy", m.tidy}, {2, "forget", m.forget}, {7, "advance", m.pass}, {2, "crash", m.crash},
	}
	total := 0
	for _, s := range steps {
		total += s.weight
	}
	n := m.rnd.IntN(total)
	for _, s := range steps {
		if n -= s.weight; n < 0 {
			m.did = s.name
			m.verbs[s.name]++
			s.do()
			break
		}
	}
	m.check()
}

func (m *model) enqueue() {
	id := m.id()
	k := m.tasks[id]
	task := queue.Task{ID: id, Kind: "k", Payload: []byte("p")}
	if m.rnd.IntN(4) == 0 {
		task.Delay = time.Duration(1+m.rnd.IntN(40)) * time.Minute
	}
	token := m.q.NewToken()
	m.did = fmt.Sprintf("enqueue %s delay %v", id, task.Delay)
	got := unsure(m, func() queue.Receipt { return m.q.Enqueue(bg, token, []queue.Task{task})[0] })
	switch {
	case got.Err != nil:
		m.t.Errorf("%+v", got)
	case k.done && (!got.Duplicate || got.Place != queue.Done):
		m.t.Errorf("I5: it is done, and enqueue says %+v", got)
	case !k.done && !k.accepted && !got.Added:
		m.t.Errorf("it is new, and enqueue says %+v", got)
	case got.Added:
		k.accepted, k.token, k.add = true, token, 1
	}
}

// resend repeats the last enqueue that added the task: it is added still.
func (m *model) resend() {
	id := m.id()
	k := m.tasks[id]
	if k.token == "" {
		return
	}
	m.did = fmt.Sprint("resend ", id)
	if got := m.q.Enqueue(bg, k.token, []queue.Task{{ID: id, Kind: "k"}})[0]; !got.Added {
		m.t.Errorf("I7: its own sender is told %+v", got)
	}
}

func (m *model) xadd() {
	id := m.id()
	k := m.tasks[id]
	m.did = fmt.Sprint("xadd ", id)
	if err := m.c.XAdd(bg, xadd(m.q.StreamKey(m.q.PartitionOf(id)), "id", string(id), "kind", "k", "payload", "copy")).Err(); err != nil {
		m.t.Fatal(err)
	}
	k.add = 1
	if !k.done {
		k.accepted = true
	}
}

func (m *model) readSome() {
	w := m.worker()
	es, err := queue.Read(bg, queue.ReadRequest{Queues: []*queue.Queue{m.q}, Consumer: w, Max: 2 + m.rnd.IntN(4)})
	if err != nil {
		m.t.Fatal(err)
	}
	m.did = fmt.Sprintf("%s reads %s", w, names(es))
	m.entries[w] = append(m.entries[w], es...)
}

func (m *model) reclaimSome() {
	w, p := m.worker(), m.rnd.IntN(2)
	m.did = fmt.Sprintf("%s reclaims in %d", w, p)
	type answer struct {
		queue.Reclaimed
		err error
	}
	got := unsure(m, func() answer {
		r, err := m.q.Reclaim(bg, queue.ReclaimRequest{Partition: p, Consumer: w, Max: 1 + m.rnd.IntN(4)})
		return answer{r, err}
	})
	if got.err != nil || len(got.Missing) != 0 {
		m.t.Errorf("%+v", got)
	}
	m.did += " " + names(got.Entries)
	m.entries[w] = append(m.entries[w], got.Entries...)
}

func names(es []queue.Entry) string {
	var out []string
	for _, e := range es {
		out = append(out, fmt.Sprint(e.ID, "=", e.Fields[1]))
	}
	return strings.Join(out, " ")
}

// crash forgets what a worker has read, and everything it holds.
func (m *model) crash() {
	w := m.worker()
	m.did = w + " crashes"
	delete(m.entries, w)
}

func (m *model) beginSome() {
	w := m.worker()
	es := m.entries[w]
	delete(m.entries, w)
	if len(es) == 0 {
		return
	}
	req := queue.BeginRequest{Token: m.q.NewToken(), Entries: es, Start: m.rnd.IntN(len(es) + 1)}
	m.did = fmt.Sprintf("%s begins %s with %s", w, names(es), req.Token)
	type answer struct {
		queue.Batch
		err error
	}
	got := unsure(m, func() answer {
		b, err := m.q.Begin(bg, req)
		return answer{b, err}
	})
	if got.err != nil || len(got.Buried) != 0 {
		m.t.Errorf("%+v", got)
	}
	for _, d := range append(got.Deliveries, got.Exhausted...) {
		m.granted(d)
	}
	for _, c := range got.Duplicates {
		if k := m.tasks[c.TaskID]; c.Detail == "done" && !k.done {
			m.t.Errorf("%s is a copy of a task that is not done", c.TaskID)
		}
	}
}

// granted checks a new lease against everything known of the task.
func (m *model) granted(d queue.Delivery) {
	l, k := d.Lease, m.tasks[d.Lease.TaskID]
	if k.done {
		m.t.Errorf("I5: %s is done and was granted", l.TaskID)
	}
	if !k.accepted {
		m.t.Errorf("%s was granted and is not live", l.TaskID)
	}
	if l.Fence <= k.fence {
		m.t.Errorf("I3: %s got fence %d after %d", l.TaskID, l.Fence, k.fence)
	}
	for _, h := range k.leases {
		if !h.over && h.ends > m.clock {
			m.t.Errorf("I2: %s was granted to %s while %s holds it", l.TaskID, l.Grant.Token, h.Grant.Token)
		}
		h.over = true
	}
	k.fence = l.Fence
	k.leases = append(k.leases, &held{Lease: l, started: d.Started, ends: m.clock + modelLease})
	if len(k.leases) > 4 {
		k.leases = k.leases[1:]
	}
}

// lease picks a lease, current or not.
func (m *model) lease() *held {
	var all []*held
	for _, id := range m.ids {
		all = append(all, m.tasks[id].leases...)
	}
	if len(all) == 0 {
		return nil
	}
	return all[m.rnd.IntN(len(all))]
}

func (m *model) start() {
	h := m.lease()
	if h == nil {
		return
	}
	m.did = fmt.Sprintf("start %s for %s", h.TaskID, h.Grant.Token)
	err := unsure(m, func() error { return m.q.Start(bg, []queue.Lease{h.Lease})[0] })
	if want := !h.over && h.ends > m.clock; want != (err == nil) || err != nil && !errors.Is(err, queue.ErrLeaseLost) {
		m.t.Errorf("start: %v; over %v, ends %v, now %v", err, h.over, h.ends, m.clock)
	}
	h.started = h.started || err == nil
}

func (m *model) renew() {
	h := m.lease()
	if h == nil {
		return
	}
	m.did = fmt.Sprintf("renew %s", h.Grant.Token)
	got := unsure(m, func() queue.Renewal { return m.q.Renew(bg, []queue.Grant{h.Grant})[0] })
	live := false // the grant lives as long as any of its leases
	for _, id := range m.ids {
		for _, other := range m.tasks[id].leases {
			if other.Grant == h.Grant && other.ends > m.clock {
				live = true
				if got.Err == nil {
					other.ends = m.clock + modelLease
				}
			}
		}
	}
	if got.Err != nil && !errors.Is(got.Err, queue.ErrLeaseLost) {
		m.t.Errorf("%+v", got)
	}
	if got.Err == nil && !live {
		m.t.Errorf("a lease that had ended was renewed")
	}
	if got.Err != nil && !h.over && h.ends > m.clock {
		m.t.Errorf("I4: the holder is told %v; its lease ends at %v, now %v", got.Err, h.ends, m.clock)
	}
}

func (m *model) split() {
	h := m.lease()
	if h == nil {
		return
	}
	token := m.q.NewToken()
	m.did = fmt.Sprintf("split %s of %s into %s", h.TaskID, h.Grant.Token, token)
	type answer struct {
		ls   []queue.Lease
		errs []error
	}
	got := unsure(m, func() answer {
		ls, errs := m.q.Split(bg, token, []queue.Lease{h.Lease})
		return answer{ls, errs}
	})
	if h.over != errors.Is(got.errs[0], queue.ErrLeaseLost) {
		m.t.Errorf("over %v: %v", h.over, got.errs[0])
	}
	if got.errs[0] == nil {
		h.Lease = got.ls[0]
	}
}

// settle has someone settle, the holder or one that is not: I4 and I7.
func (m *model) settle() {
	h := m.lease()
	if h == nil {
		return
	}
	k := m.tasks[h.TaskID]
	verbs := map[queue.Outcome]settlingVerb{queue.Completed: m.q.Complete, queue.Retried: m.q.Retry, queue.Released: m.q.Release, queue.DeadLettered: m.q.DeadLetter}
	asked := []queue.Outcome{queue.Completed, queue.Completed, queue.Retried, queue.Released, queue.DeadLettered}[m.rnd.IntN(5)]
	if h.outcome != "" {
		asked = h.outcome // what was asked before is asked again
		if asked == queue.DeadLettered && m.rnd.IntN(2) == 0 {
			asked = queue.Retried // a retry may have ended so
		}
	}
	s := queue.Settlement{Lease: h.Lease, Reason: queue.DeadRejected, Error: "e"}
	if m.rnd.IntN(2) == 0 {
		s.Delay = time.Duration(m.rnd.IntN(30)) * time.Minute
	}
	m.did = fmt.Sprintf("%s by %s of %s", asked, h.Grant.Token, h.TaskID)
	got := unsure(m, func() queue.Settled { return verbs[asked](bg, []queue.Settlement{s})[0] })
	m.did += fmt.Sprint(": ", got.Outcome)
	switch {
	case got.Err != nil:
		m.t.Errorf("%+v", got)
	case h.over && h.again && got.Outcome != h.outcome:
		m.t.Errorf("I7: it settled as %s before and is told %s", h.outcome, got.Outcome)
	case h.over && h.outcome == "" && got.Outcome != queue.Lost:
		m.t.Errorf("I4: it is replaced and is told %s", got.Outcome)
	case h.over && got.Outcome != queue.Lost && got.Outcome != h.outcome:
		m.t.Errorf("I7: it settled as %q and is told %s", h.outcome, got.Outcome)
	case !h.over:
		if got.Outcome != asked && !(asked == queue.Retried && got.Outcome == queue.DeadLettered) {
			m.t.Errorf("I4: the holder is told %s", got.Outcome)
		}
		for _, other := range k.leases {
			other.again = false
		}
		h.over, h.outcome, h.again = true, got.Outcome, true
		if got.Outcome == queue.Completed {
			k.done, k.accepted = true, false
		}
	}
}

func (m *model) promote() {
	p := m.rnd.IntN(2)
	m.did = fmt.Sprint("promote in ", p)
	err := unsure(m, func() error {
		got, err := m.q.Promote(bg, p, 1+m.rnd.IntN(3))
		if len(got.Malformed) > 0 {
			m.t.Errorf("%+v", got)
		}
		return err
	})
	if err != nil {
		m.t.Error(err)
	}
}

func (m *model) redrive() {
	id := m.id()
	m.did = fmt.Sprint("redrive ", id)
	was := m.inspect(string(id)).Place
	got := m.q.Redrive(bg, []queue.TaskID{id})[0]
	if (was == queue.Dead) != (got.Err == nil) {
		m.t.Errorf("it was %q: %+v", was, got)
	}
	if got.Err == nil {
		m.settledOtherwise(id)
	}
}

// settledOtherwise: what the last holder did is not remembered any more.
func (m *model) settledOtherwise(id queue.TaskID) {
	for _, h := range m.tasks[id].leases {
		h.again = false
	}
}

func (m *model) delete() {
	id := m.id()
	k := m.tasks[id]
	m.did = fmt.Sprint("delete ", id)
	got := m.q.Delete(bg, []queue.TaskID{id})[0]
	if got.Err != nil && !errors.Is(got.Err, queue.ErrNotFound) {
		m.t.Errorf("%+v", got)
	}
	if k.done && got.Err != nil {
		m.t.Errorf("it is done: %+v", got)
	}
	if got.Err != nil {
		return
	}
	for _, h := range k.leases {
		h.over, h.again = true, false
	}
	// Copies that were added by hand are tasks of their own now.
	left := 0
	for _, n := range m.places(m.q.PartitionOf(id))[string(id)] {
		left += n
	}
	k.done, k.accepted, k.token = false, left > 0, ""
}

func (m *model) tidy() {
	p := m.rnd.IntN(2)
	m.did = fmt.Sprint("tidy ", p)
	m.q.Turn(bg, queue.TurnRequest{Consumer: m.worker(), Slots: true, Interval: time.Millisecond})
	got, err := m.q.Tidy(bg, p)
	if err != nil || len(got.Lost) > 0 {
		m.t.Errorf("%+v %v", got, err)
	}
}

// forget loses the record of a task that nobody holds.
func (m *model) forget() {
	id := m.id()
	k := m.tasks[id]
	rec := m.c.HGet(bg, m.key(m.q.PartitionOf(id), "tasks"), string(id)).Val()
	// A dead letter without a record is a dead letter for good.
	if rec == "" || rec[0] == 'd' {
		return
	}
	for _, h := range k.leases {
		if !h.over && h.ends > m.clock {
			return
		}
	}
	m.did = fmt.Sprintf("forget %s: %s", id, rec)
	m.c.HDel(bg, m.key(m.q.PartitionOf(id), "tasks"), string(id))
	for _, h := range k.leases {
		h.over, h.again, h.outcome = true, false, ""
	}
	k.token = ""
}

func (m *model) pass() {
	d := []time.Duration{time.Minute, 8 * time.Minute, 20 * time.Minute, 35 * time.Minute}[m.rnd.IntN(4)]
	m.did = fmt.Sprint("advance ", d)
	m.clock += d
	m.advance(d)
}

// check reads everything and compares.
func (m *model) check() {
	found := map[queue.TaskID]map[string]int{}
	for p := range 2 {
		for id, at := range m.places(p) {
			found[queue.TaskID(id)] = at
		}
		m.checkPartition(p)
	}
	for _, id := range m.ids {
		k, n := m.tasks[id], 0
		for _, count := range found[id] {
			n += count
		}
		if k.accepted && n == 0 {
			m.t.Errorf("I1: %s is nowhere", id)
		}
		if n > k.entries+k.add {
			m.t.Errorf("I1: %s was %d times there and is %v", id, k.entries, found[id])
		}
		k.entries, k.add = n, 0
	}
}

// checkPartition compares the records, the indexes and the entries.
func (m *model) checkPartition(p int) {
	records := m.c.HGetAll(bg, m.key(p, "tasks")).Val()
	for id, rec := range records {
		home := map[byte]string{'w': "stream", 'h': "stream", 'p': "stream", 's': "scheduled", 'd': "dead"}[rec[0]]
		entry := strings.Fields(rec[1:])[0]
		if got := m.c.XRange(bg, m.key(p, home), entry, entry).Val(); len(got) != 1 || got[0].Values["id"] != id {
			m.t.Errorf("I1: the record of %s is %q, there is %v", id, rec, got)
		}
		if k := m.tasks[queue.TaskID(id)]; !k.accepted {
			m.t.Errorf("%s has the record %q and is not live: done %v", id, rec, k.done)
		}
	}
	due, scheduled := m.c.ZCard(bg, m.key(p, "due")).Val(), m.c.XLen(bg, m.key(p, "scheduled")).Val()
	if due != scheduled {
		m.t.Errorf("I1: %d scheduled, %d of them in the index", scheduled, due)
	}
	for _, row := range m.pending(p) {
		if len(m.c.XRange(bg, m.key(p, "stream"), row.ID, row.ID).Val()) == 0 {
			m.t.Errorf("I1: the row %s of the pending entries list has no entry", row.ID)
		}
	}
}

// finish runs what is left to the end: nothing is stuck, nothing runs twice.
func (m *model) finish() {
	done := map[queue.TaskID]bool{}
	m.clock += time.Hour
	m.rig.advance(time.Hour)
	for _, id := range m.ids {
		done[id] = m.tasks[id].done
	}
	maps.DeleteFunc(done, func(_ queue.TaskID, d bool) bool { return !d })
	m.drain("last", done)
	dead := map[queue.TaskID]bool{}
	for p := range 2 {
		for id, at := range m.places(p) {
			if at["dead"] != 1 || len(at) != 1 {
				m.t.Errorf("%s is left at %v", id, at)
			}
			dead[queue.TaskID(id)] = true
		}
	}
	for _, id := range m.ids {
		if k := m.tasks[id]; k.accepted && !done[id] && !dead[id] {
			m.t.Errorf("%s is neither done nor dead", id)
		}
	}
	var used []string
	for _, name := range slices.Sorted(maps.Keys(m.verbs)) {
		used = append(used, fmt.Sprint(name, " ", m.verbs[name]))
	}
	m.t.Logf("%s; %d done, %d dead", strings.Join(used, ", "), len(done), len(dead))
}
