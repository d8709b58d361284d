package consumer

import (
	"slices"
	"time"
)

// beginDrain makes the worker fetch and start nothing more and hand back what
// it holds.
func (w *Worker) beginDrain() {
	w.setState(StateDraining)
	w.log.Info("draining", "running", w.counts.busy.Load(), "held", w.counts.held.Load())
	close(w.drain)
	for _, l := range w.loops {
		l.poke()
	}
}

// awaitDrain returns when everything in hand is settled or time is over.
// Stuck handlers are not waited for: they have had their timeout and grace.
func (w *Worker) awaitDrain(fetching <-chan struct{}) {
	if w.awaitIdle(fetching, w.cfg.DrainTimeout, w.aborted) {
		return
	}
	w.endHandlers()
	w.log.Warn("ending the contexts of running handlers", "running", w.counts.busy.Load())
	w.awaitIdle(fetching, w.cfg.AbortGrace, nil)
}

// awaitIdle waits until nothing is in hand (true), for limit, or for abort.
func (w *Worker) awaitIdle(fetching <-chan struct{}, limit time.Duration, abort <-chan struct{}) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		if isClosed(fetching) {
			fetching = nil // select on it no more
		}
		if fetching == nil && w.idle() {
			return true
		}
		select {
		case <-w.progress:
		case <-fetching:
		case <-abort:
			return false
		case <-timer.C:
			return false
		}
	}
}

func (w *Worker) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hand.idle()
}

// abandoned names what is left in hand after the loops have ended.
func (w *Worker) abandoned() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := &AbandonedError{Running: w.hand.runningIDs()}
	for _, it := range w.hand.out {
		e.Unsettled = append(e.Unsettled, it.lease.TaskID)
	}
	for _, it := range slices.Concat(w.hand.ready, w.hand.held) {
		e.Unsettled = append(e.Unsettled, it.lease.TaskID)
	}
	if len(e.Running)+len(e.Unsettled) == 0 {
		return nil
	}
	return e
}
