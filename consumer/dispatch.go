package consumer

import (
	"errors"
	"slices"
	"time"

	"github.com/claimq/claimq/queue"
)

func (w *Worker) dispatchLoop() {
	l := w.dispatch
	for {
		l.beat()
		batch, next := w.pick(time.Now())
		if len(batch) > 0 {
			w.start(batch)
			continue
		}
		if !l.wait(next) {
			return
		}
	}
}

// pick chooses held tasks of one source for free slots, and lets go of held
// tasks that will not start here. next is when to look again if nothing
// changes before.
func (w *Worker) pick(now time.Time) (batch []*item, next time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := &w.hand
	next = w.tick
	w.handBackReady(now)
	if len(h.held) == 0 {
		w.dispatch.idle()
		return nil, next
	}
	if w.draining() {
		w.handBackHeld(nil)
		return nil, next
	}
	for _, it := range slices.Clone(h.held) {
		if it.phase == phaseHeld && w.settleUnstarted(it, now) {
			h.unhold(it)
		}
	}
	if h.solo != nil {
		w.handBackHeld(nil) // others may have a slot for them now
		return nil, next
	}
	if i := slices.IndexFunc(h.held, (*item).solo); i >= 0 {
		return w.pickSolo(h.held[i], now)
	}
	if !w.mayStart() {
		return nil, next
	}
	if w.adapts && h.slots.free() == 0 {
		return nil, min(next, w.handBackIdle(now))
	}
	for _, it := range h.held {
		switch {
		case len(batch) == min(h.slots.free(), queue.MaxBatch):
		case now.Before(it.next):
			next = min(next, it.next.Sub(now))
		case len(batch) == 0 || batch[0].src == it.src:
			batch = append(batch, it)
		}
	}
	w.intoSlots(batch)
	return batch, next
}

// pickSolo starts a task that has to run alone once nothing else runs, and the
// server has taken the outcomes of what did: if this task ends the worker, one
// that it has not taken would be an interruption too. It holds up the worker for
// one lease at most: then it is handed back, to be tried again here or by a
// worker that has less to do.
func (w *Worker) pickSolo(it *item, now time.Time) (batch []*item, next time.Duration) {
	h := &w.hand
	if it.since.IsZero() {
		it.since = now
	}
	left := it.since.Add(it.lease.Grant.Length).Sub(now)
	switch {
	case left <= 0:
		h.unhold(it)
		w.giveBack(it, verdict{delay: handBackDelay})
		w.dispatch.poke()
		return nil, 0
	case h.slots.busy > 0 || h.slots.ready > 0 || h.slots.promised > 0 || len(h.out) > 0 || !w.mayStart() || h.slots.free() == 0:
		return nil, min(w.tick, left)
	case now.Before(it.next):
		return nil, min(w.tick, left, it.next.Sub(now))
	}
	h.solo = it
	w.handBackHeld(it)
	w.intoSlots([]*item{it})
	return []*item{it}, 0
}

// intoSlots moves held items into slots. The caller holds mu.
func (w *Worker) intoSlots(batch []*item) {
	for _, it := range batch {
		w.hand.held = deleteOne(w.hand.held, it)
		w.hand.slots.start()
		it.phase = phaseStarting
	}
}

// handBackHeld releases every held task but one. The caller holds mu.
func (w *Worker) handBackHeld(but *item) {
	for _, it := range slices.Clone(w.hand.held) {
		if it != but {
			w.hand.unhold(it)
			w.giveBack(it, verdict{})
		}
	}
}

// handBackReady releases the tasks that have waited too long for their turn:
// handlers are not as quick any more as when they were fetched. When the worker
// drains no turn comes, and all go. The caller holds mu.
func (w *Worker) handBackReady(now time.Time) {
	h := &w.hand
	for len(h.ready) > 0 {
		it := h.ready[0] // the one that waits longest
		if !w.draining() {
			if now.Sub(it.since) < w.patience {
				return
			}
			h.pace.stalled()
		}
		h.unready(it)
		w.giveBack(it, verdict{})
	}
}

// handBackIdle releases held tasks that have waited too long while handlers run in
// all slots: they were fetched ahead, and before they were begun handlers turned
// slow. It says when to look again. The caller holds mu.
func (w *Worker) handBackIdle(now time.Time) (next time.Duration) {
	next = w.patience
	for _, it := range slices.Clone(w.hand.held) {
		if left := w.patience - now.Sub(it.grant.since); left > 0 {
			next = min(next, left)
			continue
		}
		w.hand.unhold(it)
		w.giveBack(it, verdict{})
	}
	return next
}

// start puts the attempts of held tasks on record and runs their handlers.
func (w *Worker) start(batch []*item) {
	l, src := w.dispatch, batch[0].src
	leases := make([]queue.Lease, len(batch))
	for i, it := range batch {
		leases[i] = it.lease
	}
	ctx, cancel := w.call()
	errs := src.Start(ctx, leases)
	cancel()

	now := time.Now()
	run := make([]*item, 0, len(batch))
	var lost []loss
	var again []*item
	var failure error
	w.mu.Lock()
	h := &w.hand
	for i, it := range batch {
		err := errs[i]
		switch {
		case errors.Is(err, queue.ErrLeaseLost) || it.lost || !queue.Trusted(it.grant.trusted, now):
			// Dropped, not settled: it is somebody else's, or soon will be.
			it.confirmed = it.confirmed || errors.Is(err, queue.ErrLeaseLost)
			h.slots.end(false)
			h.drop(it)
			how := LossExpired
			if it.confirmed {
				how = LossServer
			}
			lost = append(lost, it.loss(how, false))
		case err != nil:
			failure = err
			it.tries++
			it.next = now.Add(min(w.jitter.serverBackoff(it.tries), it.lease.Grant.Length/8))
			h.slots.unstart()
			it.phase = phaseHeld
			again = append(again, it)
		case w.draining():
			h.slots.end(false)
			w.giveBack(it, verdict{})
		default:
			it.tries, it.recorded = 0, true
			w.begins(it, now)
			run = append(run, it)
		}
		if h.solo == it && it.phase != phaseRunning {
			h.solo = nil
		}
	}
	h.held = append(again, h.held...)
	w.changed()
	w.mu.Unlock()
	for _, r := range run {
		go w.runItems(r)
	}
	w.reportLosses(lost)
	if failure != nil {
		l.failed(failure, "queue", src.name)
	} else {
		l.succeeded()
	}
}
