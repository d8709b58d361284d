package consumer

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/claimq/claimq/queue"
)

// renewLoop renews every lease in hand a third into its length: held tasks,
// running ones, and those whose outcome the server has not taken yet. One call
// is in flight at a time, and it may take a third of a lease, so a lease that
// is trusted for four fifths of its length survives one call that hangs. That
// a lease is lost when no call comes through is watchLoop's to see.
func (w *Worker) renewLoop() {
	l := w.renew
	for {
		l.beat()
		if !w.holdsLeases() {
			l.idle()
		}
		next := w.tick
		if !w.stalled() {
			for _, s := range w.sources {
				w.splitStuck(s)
				next = min(next, w.renewDue(s))
			}
		}
		if !l.wait(next) {
			return
		}
	}
}

func (w *Worker) holdsLeases() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.hand.grants, (*grant).renewable)
}

// stalled reports whether the loops that start and settle tasks have stopped
// moving: then this worker must not keep its tasks from others.
func (w *Worker) stalled() bool {
	return w.dispatch.silent() > w.cfg.UnhealthyAfter || w.settle.silent() > w.cfg.UnhealthyAfter
}

// renewDue renews the grants of one source that are due and returns the time
// until the next one is.
func (w *Worker) renewDue(s *source) time.Duration {
	grants, timeout := w.dueGrants(s, time.Now())
	if len(grants) > 0 {
		asked := make([]queue.Grant, len(grants))
		for i, g := range grants {
			asked[i] = g.g
		}
		ctx, cancel := context.WithTimeout(w.ops, timeout)
		began := time.Now()
		answers := s.Renew(ctx, asked)
		cancel()
		w.renewed(s, grants, answers, time.Since(began))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	next := w.tick
	for _, g := range w.hand.grants {
		if g.src == s && g.renewable() {
			next = min(next, time.Until(g.due))
		}
	}
	return next
}

func (g *grant) renewable() bool { return !g.ended && !g.parted }

// dueGrants returns the grants to renew now. Those due a little later come
// along, so that grants of one age settle into one call.
func (w *Worker) dueGrants(s *source, now time.Time) (due []*grant, timeout time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	timeout = time.Hour
	first := false
	for _, g := range w.hand.grants {
		if g.src != s || !g.renewable() || g.due.After(now.Add(g.g.Length/12)) {
			continue
		}
		first = first || !g.due.After(now)
		due = append(due, g)
		timeout = min(timeout, g.g.Length/3)
	}
	if !first {
		return nil, 0
	}
	return due, timeout
}

type loss struct {
	about   subject
	how     LeaseLoss
	running bool
}

// loss describes that the lease of the item is lost. The caller holds mu.
func (it *item) loss(how LeaseLoss, running bool) loss { return loss{it.subject(), how, running} }

func (w *Worker) renewed(s *source, grants []*grant, answers []queue.Renewal, took time.Duration) {
	now := time.Now()
	event := Renewed{Queue: s.name, Grants: len(grants), Duration: took}
	var losses []loss
	var failure error
	w.mu.Lock()
	for i, g := range grants {
		a := answers[i]
		switch {
		case a.Err == nil:
			if g.ended { // its trust had run out before the answer came
				break
			}
			if a.TrustedUntil.After(g.trusted) {
				g.trusted = a.TrustedUntil
			}
			g.scheduleRenewal()
			if g.due.Before(now) {
				g.due = now
			}
			for _, it := range slices.Clone(g.items) {
				if slices.Contains(a.Revoked, it.lease.TaskID) {
					losses = w.lose(losses, it, LossRevoked, now)
				}
			}
		case errors.Is(a.Err, queue.ErrLeaseLost):
			g.ended = true
			event.Lost++
			for _, it := range slices.Clone(g.items) {
				losses = w.lose(losses, it, LossServer, now)
			}
		default:
			event.Failed++
			failure = a.Err
			g.due = now.Add(max(g.g.Length/12, 10*time.Millisecond))
		}
	}
	w.changed()
	w.mu.Unlock()

	w.observe.Renewed(event)
	w.reportLosses(losses)
	if failure != nil {
		w.renew.failed(failure, "queue", s.name, "grants", event.Failed)
	} else {
		w.renew.succeeded()
	}
}

// lose notes that the lease of an item may not be relied on any more. A task
// whose handler has not begun is dropped; a running handler's context ends; an outcome on its way is
// left to the server's judgement. The caller holds mu.
func (w *Worker) lose(losses []loss, it *item, how LeaseLoss, now time.Time) []loss {
	it.confirmed = it.confirmed || how != LossExpired
	if it.lost {
		return losses
	}
	switch it.phase {
	case phaseHeld:
		w.hand.unhold(it)
		w.hand.drop(it)
		losses = append(losses, it.loss(how, false))
	case phaseReady:
		w.hand.unready(it)
		w.hand.drop(it)
		losses = append(losses, it.loss(how, false))
	case phaseRunning:
		it.ctx.end(context.Canceled, queue.ErrLeaseLost)
		if at := now.Add(w.cfg.Grace); at.Before(it.stuckAt) {
			it.stuckAt = at
		}
		losses = append(losses, it.loss(how, true))
	case phaseSettling:
		return losses
	}
	it.lost = true
	return losses
}

func (w *Worker) reportLosses(losses []loss) {
	for _, x := range losses {
		w.observe.LeaseLost(LeaseLost{Queue: x.about.queue, Kind: x.about.kind, TaskID: x.about.task, How: x.how, Running: x.running})
		w.log.Warn("lease lost", x.about.attrs("how", x.how, "running", x.running)...)
	}
}
