package consumer

import (
	"errors"
	"fmt"
	"time"

	"github.com/claimq/claimq/queue"
)

// giveBack hands a task that did not run back to the queue. The caller holds
// mu and has taken the item out of the held ones and out of its slot.
func (w *Worker) giveBack(it *item, v verdict) {
	v.verb = verbRelease
	w.queueOutcome(it, v)
}

// bury makes a task that did not run a dead letter. The same holds.
func (w *Worker) bury(it *item, why queue.DeadReason, text string) {
	w.queueOutcome(it, verdict{verb: verbDeadLetter, dead: why, text: text})
}

// queueOutcome passes an outcome to the settle loop. The caller holds mu.
func (w *Worker) queueOutcome(it *item, v verdict) {
	v.err = nil // the user's; its text is enough
	it.phase = phaseSettling
	it.verdict = v
	it.tries, it.next = 0, time.Time{}
	it.task.Payload, it.task.Headers = nil, nil // an outcome may be kept for long
	w.hand.out = append(w.hand.out, it)
	w.settle.poke()
}

// settling is room for one call of the settle loop, used again for the next.
// Only that loop's goroutine uses it.
type settling struct {
	batch       []*item
	settlements []queue.Settlement
	ends        []departure
}

// clear lets go of what the last call was about.
func (s *settling) clear() {
	clear(s.batch)
	clear(s.settlements)
	clear(s.ends)
}

// settleLoop offers outcomes to the server until it takes them. One call is
// on the wire at a time; what comes in meanwhile forms the next batch, and a
// lone outcome goes at once. A timer that waits for more would cost every task
// its length and save nothing that this does not.
func (w *Worker) settleLoop() {
	l := w.settle
	for {
		l.beat()
		batch, settlements, next := w.nextOutcomes(time.Now())
		if len(batch) == 0 {
			if !l.wait(next) {
				return
			}
			continue
		}
		answers := w.offer(batch[0], settlements)
		w.settled(batch, answers)
		w.settling.clear()
		if w.stopping() {
			return
		}
	}
}

// offerAgain makes kept outcomes go at once: the server has been away and is
// back, and others may take tasks whose lease has ended meanwhile.
func (w *Worker) offerAgain() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, it := range w.hand.out {
		it.next = time.Time{}
	}
	w.settle.poke()
}

// nextOutcomes takes the outcomes for the next call: of one queue and one
// verb, the oldest first.
func (w *Worker) nextOutcomes(now time.Time) (batch []*item, settlements []queue.Settlement, next time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next = w.tick
	if len(w.hand.out) == 0 {
		w.settle.idle()
		return nil, nil, next
	}
	var lead *item
	batch, settlements = w.settling.batch[:0], w.settling.settlements[:0]
	for _, it := range w.hand.out {
		switch {
		case now.Before(it.next):
			next = min(next, it.next.Sub(now))
		case lead == nil:
			lead = it
			batch = append(batch, it)
		case it.src == lead.src && it.verdict.verb == lead.verdict.verb && len(batch) < queue.MaxBatch:
			batch = append(batch, it)
		}
	}
	// A grant whose last leases are in this batch may be forgotten. Only its
	// last settlement says so: what the server does first is safe either way.
	for _, it := range batch {
		it.grant.leaving = 0
	}
	for _, it := range batch {
		it.grant.leaving++
		ends := it.grant.leaving == len(it.grant.items) && !it.grant.dropped
		settlements = append(settlements, it.verdict.settlement(it.lease, ends))
	}
	w.settling.batch, w.settling.settlements = batch, settlements
	return batch, settlements, next
}

// offer makes the call for a batch that lead is the first of.
func (w *Worker) offer(lead *item, settlements []queue.Settlement) []queue.Settled {
	ctx, cancel := w.call()
	defer cancel()
	switch lead.verdict.verb {
	case verbComplete:
		return lead.src.Complete(ctx, settlements)
	case verbRetry:
		return lead.src.Retry(ctx, settlements)
	case verbRelease:
		return lead.src.Release(ctx, settlements)
	default:
		return lead.src.DeadLetter(ctx, settlements)
	}
}

// settled notes the answers. An outcome without one is kept and offered
// again, the same settlement as before, so that the server recognises it.
func (w *Worker) settled(batch []*item, answers []queue.Settled) {
	now := time.Now()
	ends := w.settling.ends[:0]
	var gone []queue.Copy
	var failure error
	failed := 0
	var wait time.Duration
	w.mu.Lock()
	h := &w.hand
	for i, it := range batch {
		a := answers[i]
		if errors.Is(a.Err, queue.ErrLeaseLost) {
			a.Outcome, a.Err = queue.Lost, nil
		}
		if errors.Is(a.Err, queue.ErrEntryGone) { // there is nothing left to settle
			gone = append(gone, queue.Copy{TaskID: it.lease.TaskID, EntryID: it.lease.EntryID, Detail: "entry deleted from outside while the task was in hand"})
			a.Outcome, a.Err = queue.Lost, nil
		}
		if a.Err != nil {
			failed++
			if failure == nil {
				failure = fmt.Errorf("task %s: %w", it.lease.TaskID, a.Err)
			}
			if wait == 0 { // one for the batch, so that it stays one
				wait = w.jitter.serverBackoff(it.tries + 1)
			}
			it.tries++
			it.next = now.Add(wait)
			continue
		}
		d := departure{end: w.ended(it, a.Outcome, now), text: it.verdict.text}
		if a.Outcome == queue.Lost || a.Outcome == queue.DeadLettered {
			about := it.subject()
			d.about = &about
		}
		ends = append(ends, d)
		h.remove(it)
	}
	kept := h.out[:0]
	for _, it := range h.out {
		if it.phase != phaseGone {
			kept = append(kept, it)
		}
	}
	clear(h.out[len(kept):])
	h.out = kept
	w.changed()
	w.mu.Unlock()

	w.settling.ends = ends
	w.reportLost(batch[0].src, gone)
	for i := range ends {
		w.reportEnd(&ends[i])
	}
	if failure != nil {
		w.settle.failed(failure, "queue", batch[0].src.name, "outcomes_kept", failed)
	} else {
		w.settle.succeeded()
	}
}

// deadReason is why the server made a dead letter of the task.
func (it *item) deadReason() queue.DeadReason {
	switch it.verdict.verb {
	case verbRetry:
		return queue.DeadFailures
	case verbRelease:
		return queue.DeadNoHandler
	}
	return it.verdict.dead
}

// departure is the end of a task in hand; about is set where it is logged.
type departure struct {
	end   Ended
	about *subject
	text  string // of the error
}

func (w *Worker) reportEnd(d *departure) {
	e := &d.end
	switch e.Outcome {
	case queue.Lost:
		w.observe.Refused(Refused{Queue: e.Queue, Kind: e.Kind, TaskID: e.TaskID})
		w.log.Warn("outcome refused: the lease was lost", d.about.attrs("reason", e.Reason, "error", d.text)...)
	case queue.DeadLettered:
		w.log.Warn("task is a dead letter", d.about.attrs("reason", e.DeadReason, "error", d.text)...)
	}
	w.observe.Ended(*e)
}
