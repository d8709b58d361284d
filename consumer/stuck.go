package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/claimq/claimq/queue"
)

// watchLoop sees leases whose trust has run out, and handlers that have run for
// their timeout or are stuck.
// It makes no calls, so nothing the server does or fails to do can hold it up.
func (w *Worker) watchLoop() {
	l := w.watch
	for {
		l.beat()
		if !l.wait(w.look(time.Now())) {
			return
		}
	}
}

type stuckTask struct {
	about   subject
	running time.Duration
}

// look acts on what is over and returns the time until the next thing will be.
func (w *Worker) look(now time.Time) time.Duration {
	var losses []loss
	var stuck []stuckTask
	w.mu.Lock()
	h := &w.hand
	next := now.Add(w.tick)
	earlier := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	// Backwards, since dropping the last item of a grant drops the grant.
	for i := len(h.grants) - 1; i >= 0; i-- {
		g := h.grants[i]
		lapsed := !g.ended && !queue.Trusted(g.trusted, now)
		if lapsed {
			g.ended = true
		} else if !g.ended {
			earlier(g.trusted)
		}
		for j := len(g.items) - 1; j >= 0; j-- {
			it := g.items[j]
			if it.phase == phaseRunning && !it.stuck {
				switch {
				case it.timedOut:
				case now.Before(it.ctx.deadline):
					earlier(it.ctx.deadline)
				default:
					it.timedOut = true
					it.ctx.end(context.DeadlineExceeded, ErrTaskTimeout)
				}
				if now.Before(it.stuckAt) {
					earlier(it.stuckAt)
				} else {
					w.stick(it)
					stuck = append(stuck, stuckTask{it.subject(), now.Sub(it.startedAt)})
				}
			}
			if lapsed {
				losses = w.lose(losses, it, LossExpired, now)
			}
		}
	}
	w.lookAt = next
	count := h.slots.stuck
	if len(losses)+len(stuck) > 0 {
		w.changed()
	}
	w.mu.Unlock()

	w.reportLosses(losses)
	for _, x := range stuck {
		w.observe.Stuck(count)
		w.log.Error("handler is stuck: it goes on after its timeout and grace; its lease is not renewed any more",
			x.about.attrs("running_for", x.running)...)
	}
	return next.Sub(now)
}

// stick counts a handler as stuck. The caller holds mu.
func (w *Worker) stick(it *item) {
	it.stuck = true
	w.hand.slots.stick()
	if w.hand.solo == it {
		w.hand.solo = nil
	}
}

// splitStuck gives the stuck tasks of a source grants of their own, so that
// they can end while their neighbours are renewed. A split without a clear
// answer is asked again with the same token and leases.
func (w *Worker) splitStuck(s *source) {
	for _, g := range w.toSplit(s, time.Now()) {
		leases := make([]queue.Lease, len(g.split.items))
		for i, it := range g.split.items {
			leases[i] = it.lease
		}
		ctx, cancel := w.call()
		parted, errs := s.Split(ctx, g.split.token, leases)
		cancel()
		w.parted(g, parted, errs)
	}
}

// split is an attempt to part stuck tasks from a grant.
type split struct {
	token queue.Token
	items []*item
	next  time.Time
	tries int
}

// toSplit returns the grants that hold stuck tasks beside others. A grant
// that holds nothing else is simply not renewed any more.
func (w *Worker) toSplit(s *source, now time.Time) []*grant {
	w.mu.Lock()
	defer w.mu.Unlock()
	var grants []*grant
	for _, g := range w.hand.grants {
		if g.src != s || !g.renewable() {
			continue
		}
		var stuck []*item
		for _, it := range g.items {
			if it.stuck {
				stuck = append(stuck, it)
			}
		}
		switch {
		case len(stuck) == 0:
			continue
		case len(stuck) == len(g.items):
			g.parted = true
			continue
		case g.split == nil:
			g.split = &split{token: s.NewToken(), items: stuck}
		case now.Before(g.split.next):
			continue
		}
		grants = append(grants, g)
	}
	return grants
}

// parted notes the answer to a split.
func (w *Worker) parted(g *grant, leases []queue.Lease, errs []error) {
	now := time.Now()
	var failure error
	w.mu.Lock()
	sp := g.split
	for i, it := range sp.items {
		switch {
		case errs[i] == nil:
			w.hand.regrant(it, leases[i].Grant)
		case errors.Is(errs[i], queue.ErrLeaseLost):
			it.lost, it.confirmed = true, true
			w.hand.regrant(it, it.lease.Grant)
		default:
			failure = errs[i]
		}
	}
	if failure == nil {
		g.split = nil
	} else {
		sp.tries++
		sp.next = now.Add(min(w.jitter.serverBackoff(sp.tries), g.g.Length/3))
	}
	w.mu.Unlock()
	if failure != nil {
		w.renew.failed(failure, "queue", g.src.name, "call", "split")
	}
}
