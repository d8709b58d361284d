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
	trusted time.Time // until when its grant was, once it has left that
	phase   phase

	next  time.Time // earliest next call for it, after one that failed
	tries int       // calls that failed in a row

	soloSince time.Time // since when it waits to run alone

	ctx       *taskContext  // of its handler
	wait      time.Duration // how long it could have started before it did; negative: not known
	startedAt time.Time
	timedOut  bool
	stuckAt   time.Time // when it counts as stuck if it still runs
	stuck     bool
	lost      bool // the lease may not be relied on any more
	confirmed bool // the server said so

	verb   verb
	settle queue.Settlement
	end    Ended
}

func (it *item) id() taskKey { return taskKey{it.src, it.lease.TaskID} }

func (it *item) entry() entryKey {
	return entryKey{it.src, it.lease.Grant.Partition, it.lease.EntryID}
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

type entryKey struct {
	src       *source
	partition int
	id        queue.EntryID
}

// grant is what the leases in hand of one queue.Grant have in common.
type grant struct {
	src     *source
	g       queue.Grant
	since   time.Time // when it was asked for
	trusted time.Time // may be relied on until then
	items   []*item   // in hand, in the order they came
	due     time.Time // next renewal
	ended   bool      // lost or lapsed: not renewed any more
	parted  bool      // holds stuck tasks only: not renewed any more
	split   *split    // stuck tasks being moved out of it
	dropped bool      // a task of it left this worker unsettled: the server must not forget it yet
}

// sent is when it was last asked for.
func (g *grant) sent() time.Time { return g.trusted.Add(queue.Margin(g.g.Length) - g.g.Length) }

func (g *grant) scheduleRenewal() { g.due = g.sent().Add(g.g.Length / 3) }

// hand is everything a worker has in hand. Guarded by Worker.mu.
type hand struct {
	slots   slots
	held    []*item // first come, first started
	grants  []*grant
	running map[taskKey]*item  // handlers that have not returned
	entries map[entryKey]*item // everything in hand, by entry
	out     []*item            // outcomes the server has not taken yet, oldest first
	solo    *item              // runs alone now
}

// unsettled is the number of outcomes kept.
func (h *hand) unsettled() int { return len(h.out) }

// idle reports whether nothing is in hand but stuck handlers.
func (h *hand) idle() bool {
	s := &h.slots
	return s.reserved == 0 && s.held == 0 && s.busy == 0 && len(h.out) == 0
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
func (h *hand) grantOf(src *source, l queue.Lease) *grant {
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

// add takes a delivery in hand. Its phase is the caller's to set.
func (h *hand) add(src *source, d queue.Delivery, origin Source) *item {
	it := &item{src: src, task: d.Task, lease: d.Lease, origin: origin, trace: d.Task.Headers["traceparent"]}
	it.grant = h.grantOf(src, d.Lease)
	it.grant.items = append(it.grant.items, it)
	h.entries[it.entry()] = it
	return it
}

// remove lets go of an item that is not held, in a slot or among the outcomes
// any more.
func (h *hand) remove(it *item) {
	it.phase = phaseGone
	if h.entries[it.entry()] == it {
		delete(h.entries, it.entry())
	}
	h.leaveGrant(it)
}

func (h *hand) leaveGrant(it *item) {
	g := it.grant
	if g == nil {
		return
	}
	it.grant, it.trusted = nil, g.trusted
	g.items = deleteOne(g.items, it)
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

// regrant moves a stuck item to a grant of its own, which is not renewed. The
// item keeps the lease it had: what it returns is not settled any more.
func (h *hand) regrant(it *item, own queue.Grant) {
	old := it.grant
	if old == nil {
		return
	}
	h.leaveGrant(it)
	g := &grant{src: it.src, g: own, since: old.since, trusted: old.trusted, parted: true, items: []*item{it}}
	it.grant = g
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
