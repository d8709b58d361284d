package consumer

import (
	"cmp"
	"slices"
	"time"

	"github.com/claimq/claimq/queue"
)

// phase is where a task in hand is.
type phase uint8

const (
	phaseHeld     phase = iota // leased, not started
	phaseReady                 // on record as started, waits for its turn in a slot
	phaseStarting              // in a slot, its start is being put on record
	phaseRunning               // its handler runs
	phaseSettling              // its outcome waits for the server or is on the wire
	phaseGone
)

// item is one task in hand. Everything but the first six fields is guarded
// by Worker.mu.
type item struct {
	src    *source
	task   queue.Task
	lease  queue.Lease
	origin Source
	trace  string // its traceparent, kept when the headers are let go
	route  Route

	grant   *grant
	at      int       // its place in grant.items
	trusted time.Time // until when its grant was, once it has left that
	phase   phase

	known     bool // this worker has a handler for it
	recorded  bool // on record as started
	timedOut  bool
	stuck     bool
	lost      bool // the lease may not be relied on any more
	confirmed bool // the server said so
	ran       bool // its handler was started

	next  time.Time // earliest next call for it, after one that failed
	tries int       // calls that failed in a row

	since     time.Time     // since when it waits for its turn, or to run alone
	ctx       taskContext   // of its handler
	wait      time.Duration // how long it could have started before it did; negative: not known
	startedAt time.Time
	stuckAt   time.Time // when it counts as stuck if it still runs
	took      time.Duration

	verdict verdict
}

func (it *item) id() taskKey { return taskKey{it.src, it.lease.TaskID} }

func (it *item) entry() entryKey {
	return entryKey{it.lease.Grant.Partition, it.lease.EntryID}
}

// solo reports whether the task has to run alone in its worker: it may be what
// ended the workers that had it before, so it gets no neighbours to take along.
func (it *item) solo() bool { return it.lease.Interruptions >= soloInterruptions }

// soloInterruptions is the number of interruptions from which a task runs
// alone.
const soloInterruptions = 2

type taskKey struct {
	src *source
	id  queue.TaskID
}

// entryKey names an entry of a queue.
type entryKey struct {
	partition int
	id        queue.EntryID
}

// hand is everything a worker has in hand. Guarded by Worker.mu.
type hand struct {
	slots    slots
	pace     pace
	held     []*item // first come, first started
	ready    []*item // likewise
	coming   bool    // a goroutine for the first of them was started and has not taken it
	suspects int     // in hand, interrupted before
	owing    bool    // ended leases wait for a slot: nothing is fetched ahead
	grants   []*grant
	running  map[taskKey]*item // handlers that have not returned
	out      []*item           // outcomes the server has not taken yet, oldest first
	solo     *item             // runs alone now
}

// unsettled is the number of outcomes kept.
func (h *hand) unsettled() int { return len(h.out) }

// idle reports whether nothing is in hand but stuck handlers.
func (h *hand) idle() bool {
	s := &h.slots
	return s.reserved == 0 && s.held == 0 && s.ready == 0 && s.busy == 0 && len(h.out) == 0 && !h.coming
}

// soloWaits reports whether a task in hand waits for its turn to run alone.
func (h *hand) soloWaits() bool { return slices.ContainsFunc(h.held, (*item).solo) }

// oldest returns when the oldest lease that is held was asked for, and false
// when none is. Grants are in the order in which they came.
func (h *hand) oldest() (time.Time, bool) {
	for _, g := range h.grants {
		if g.renewable() {
			return g.since, true
		}
	}
	return time.Time{}, false
}

// grantOf returns the grant of a lease, new if need be.
func (h *hand) grantOf(src *source, l *queue.Lease) *grant {
	for i := len(h.grants) - 1; i >= 0; i-- { // it is most likely the newest
		if g := h.grants[i]; g.src == src && g.g == l.Grant {
			return g
		}
	}
	g := &grant{src: src, g: l.Grant, trusted: l.TrustedUntil}
	g.since = g.sent()
	g.scheduleRenewal()
	h.grants = append(h.grants, g)
	return g
}

// newItem makes an item of a delivery.
func newItem(src *source, d *queue.Delivery, origin Source) *item {
	it := &item{src: src, task: d.Task, lease: d.Lease, origin: origin, recorded: d.Started}
	if len(it.task.Headers) > 0 {
		it.trace = it.task.Headers["traceparent"]
	}
	return it
}

// add takes an item in hand. Its phase is the caller's to set.
func (h *hand) add(it *item) {
	h.grantOf(it.src, &it.lease).add(it)
	if it.lease.Interruptions > 0 {
		h.suspects++
	}
}

// remove lets go of an item that is not held, in a slot or among the outcomes
// any more.
func (h *hand) remove(it *item) {
	it.phase = phaseGone
	if it.lease.Interruptions > 0 {
		h.suspects--
	}
	h.leaveGrant(it)
}

func (h *hand) leaveGrant(it *item) {
	g := it.grant
	if g == nil {
		return
	}
	g.remove(it)
	it.grant, it.trusted = nil, g.trusted
	if len(g.items) == 0 {
		h.grants = deleteOne(h.grants, g)
	}
}

// drop lets go of an item that was not settled: the server finds it, when its
// lease has ended, by the grant.
func (h *hand) drop(it *item) {
	if it.grant != nil {
		it.grant.dropped = true
	}
	h.remove(it)
}

// unhold takes an item out of the held ones.
func (h *hand) unhold(it *item) {
	h.held = deleteOne(h.held, it)
	h.slots.dropHeld()
}

// unready takes an item out of those that wait for their turn.
func (h *hand) unready(it *item) {
	if h.ready[0] == it {
		h.popReady()
	} else {
		h.ready = deleteOne(h.ready, it)
	}
	h.slots.dropReady()
}

// popReady takes the first of them out.
func (h *hand) popReady() {
	h.ready[0] = nil
	if h.ready = h.ready[1:]; len(h.ready) == 0 {
		h.ready = nil
	}
}

// regrant moves a stuck item to a grant of its own, which is not renewed. The
// item keeps the lease it had: what it returns is not settled any more.
func (h *hand) regrant(it *item, own queue.Grant) {
	old := it.grant
	if old == nil {
		return
	}
	h.leaveGrant(it)
	g := &grant{src: it.src, g: own, since: old.since, trusted: old.trusted, parted: true}
	g.add(it)
	h.grants = append(h.grants, g)
}

// runs notes that the handler of it is running, and ran that it has ended.
func (h *hand) runs(it *item) {
	it.phase = phaseRunning
	h.running[it.id()] = it
}

func (h *hand) ran(it *item) {
	delete(h.running, it.id())
	h.slots.end(it.stuck)
	if h.solo == it {
		h.solo = nil
	}
}

// runningIDs returns the tasks whose handlers have not returned, in order.
func (h *hand) runningIDs() []queue.TaskID {
	var items []*item
	for _, it := range h.running {
		items = append(items, it)
	}
	slices.SortFunc(items, func(a, b *item) int {
		return cmp.Or(a.startedAt.Compare(b.startedAt), cmp.Compare(a.lease.TaskID, b.lease.TaskID))
	})
	var ids []queue.TaskID
	for _, it := range items {
		ids = append(ids, it.lease.TaskID)
	}
	return ids
}

func deleteOne[T comparable](s []T, v T) []T {
	if i := slices.Index(s, v); i >= 0 {
		return slices.Delete(s, i, i+1)
	}
	return s
}
