package consumer

import (
	"fmt"
	"time"

	"github.com/claimq/claimq/queue"
)

// beginAll begins entries of several sources, one call for each source.
func (f *fetcher) beginAll(entries []queue.Entry, origin Source) error {
	var first error
	for i, s := range f.w.sources {
		own := entries
		if len(f.w.sources) > 1 {
			own = entriesOf(entries, s.queue)
		}
		if len(own) == 0 {
			continue
		}
		if err := f.begin(i, own, origin); err != nil {
			if err = f.putOff(i, err); err != nil && first == nil {
				first = err
			}
		}
	}
	return first
}

func entriesOf(entries []queue.Entry, q *queue.Queue) (own []queue.Entry) {
	for _, e := range entries {
		if e.Queue == q {
			own = append(own, e)
		}
	}
	return own
}

// begin takes leases on entries and starts those for which there is a slot.
// A call without a clear answer is asked again with the same token, so it
// cannot lease twice; after half a lease the entries are let go, and as the
// consumer name is given up with them, others recover them.
func (f *fetcher) begin(i int, entries []queue.Entry, origin Source) error {
	w, s := f.w, f.w.sources[i]
	req := queue.BeginRequest{
		Token: s.NewToken(), Consumer: *w.consumer.Load(), Entries: entries, Start: w.promise(len(entries), origin),
	}
	until := time.Now().Add(s.shortest / 2)
	for {
		f.l.beat()
		ctx, cancel := w.call()
		batch, err := s.Begin(ctx, req)
		cancel()
		if err == nil {
			w.accept(s, batch, len(entries), req.Start, origin)
			return nil
		}
		wait := min(w.jitter.serverBackoff(1), s.shortest/8)
		if !queue.IsRetryable(err) || time.Now().Add(wait).After(until) || !f.l.pause(wait, false) {
			f.rename()
			w.forget(len(entries), req.Start)
			return err
		}
	}
}

// promise sets slots aside for a Begin, and turns in them for what was fetched
// ahead.
func (w *Worker) promise(n int, origin Source) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.mayStart() || w.hand.solo != nil || w.hand.soloWaits() {
		return 0
	}
	ahead := 0
	if origin == SourceNew && w.ahead() > 0 {
		ahead = maxAhead // what was reserved was bounded then
	}
	return w.hand.slots.promise(n, ahead)
}

// mayStart reports whether handlers may be started. The caller holds mu.
func (w *Worker) mayStart() bool {
	return !w.draining() && w.hand.unsettled() < w.cfg.MaxUnsettled
}

// forget gives back what was set aside for a Begin that came to nothing.
func (w *Worker) forget(reserved, promised int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hand.slots.unpromise(promised)
	w.hand.slots.unreserve(reserved)
	w.changed()
}

// accept takes a batch in hand. reserved places and promised slots were set
// aside for it.
func (w *Worker) accept(s *source, b queue.Batch, reserved, promised int, origin Source) {
	now := time.Now()
	items := make([]*item, len(b.Deliveries))
	for i := range b.Deliveries {
		it := newItem(s, &b.Deliveries[i], origin)
		it.route, it.known = w.router.Route(it.task.Kind) // not under the lock: a Router may be the user's
		items[i] = it
	}

	var lost []loss
	var taken []subject
	w.mu.Lock()
	h := &w.hand
	s.told(b.ServerNow, now)
	for _, it := range items {
		h.add(it)
		h.pace.sized(len(it.task.Payload))
		switch {
		case !it.lease.Trusted(now):
			h.drop(it)
			lost = append(lost, it.loss(LossExpired, false))
		case !it.known:
			w.giveBack(it, verdict{unhandled: true, reason: FailedNoHandler})
		case w.draining():
			w.giveBack(it, verdict{})
		case it.recorded:
			h.slots.beganStarted()
			reserved, promised = reserved-1, promised-1
			it.phase, it.since = phaseReady, now
			h.ready = append(h.ready, it)
		case w.settleUnstarted(it, now):
		default:
			h.slots.beganHeld()
			reserved--
			it.phase = phaseHeld
			h.held = append(h.held, it)
		}
		if origin == SourceReclaimed && len(taken) < maxLoggedTaken {
			taken = append(taken, it.subject())
		}
	}
	for i := range b.Exhausted {
		it := newItem(s, &b.Exhausted[i], origin)
		h.add(it)
		w.bury(it, queue.DeadInterruptions, fmt.Sprintf("its lease ended without an outcome %d times", it.lease.Interruptions))
	}
	h.slots.unpromise(promised)
	h.slots.unreserve(reserved)
	w.changed()
	w.mu.Unlock()

	w.reportBatch(s, b, origin)
	w.reportTaken(s, taken, len(b.Deliveries))
	w.reportLosses(lost)
}

// settleUnstarted settles a task that must not be started now, if it is one:
// its deadline has passed, or an earlier run of it goes on in this worker.
// The caller holds mu.
func (w *Worker) settleUnstarted(it *item, now time.Time) bool {
	if !it.task.Deadline.IsZero() && it.src.clock(now).After(it.task.Deadline) {
		w.bury(it, queue.DeadDeadline, "its deadline passed before it could start")
		return true
	}
	if w.hand.running[it.id()] != nil {
		// A handler that lost its lease has not returned. Elsewhere the task
		// may start now; here the two would run side by side.
		w.giveBack(it, verdict{delay: handBackDelay})
		return true
	}
	return false
}

// handBackDelay keeps a task that was handed back from coming straight back to
// the worker that could not run it.
const handBackDelay = time.Second

// maxLoggedTaken is how many of the tasks that were reclaimed together are named
// in one log line each; the server keeps an event of every one.
const maxLoggedTaken = 100

func (w *Worker) reportTaken(s *source, taken []subject, n int) {
	for _, about := range taken {
		w.log.Info("task reclaimed", about.attrs()...)
	}
	if len(taken) > 0 && n > len(taken) {
		w.log.Info("more tasks reclaimed", "queue", s.name, "count", n-len(taken))
	}
}

func (w *Worker) reportBatch(s *source, b queue.Batch, origin Source) {
	if n := len(b.Deliveries) + len(b.Exhausted); n > 0 {
		w.observe.Delivered(s.name, origin, n)
	}
	if n := len(b.Duplicates); n > 0 {
		w.observe.Duplicates(s.name, n)
	}
	if n := len(b.Buried); n > 0 {
		w.observe.Buried(s.name, n)
		for _, c := range b.Buried {
			w.log.Warn("entry is no task, now a dead letter",
				"task", c.TaskID, "queue", s.name, "consumer", *w.consumer.Load(), "entry", c.EntryID, "error", c.Detail)
		}
	}
}
