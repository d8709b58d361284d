package consumer

import (
	"fmt"
	"sync/atomic"
	"time"
)

// State is where a worker is in its life.
type State string

// The states of a worker.
const (
	StateStarting State = "starting" // New was called; the queues are not confirmed yet
	StateRunning  State = "running"
	StateDraining State = "draining" // fetches nothing more, finishes what it has
	StateStopped  State = "stopped"  // Run has returned
)

// LoopStatus is what one of the worker's loops last did.
type LoopStatus struct {
	Name      string
	Beat      time.Time // when it last moved, waiting for something to do included; zero before Run
	LastError string    // of the server; empty when its last call succeeded
	ErrorAt   time.Time
	Failing   int // calls that failed in a row
}

// Status is a snapshot of a worker.
type Status struct {
	State     State
	Consumer  string // its consumer name at present
	Slots     int    // handlers that may run at once
	Busy      int    // slots in use
	Held      int    // tasks leased whose handlers have not begun
	Unsettled int    // outcomes that the server has not taken yet
	Stuck     int    // handlers that go on after timeout and grace
	// OldestLease is when the oldest of the leases that are held was taken.
	// Zero when none is held.
	OldestLease time.Time
	Loops       []LoopStatus

	// Healthy is false when the process should be restarted: a loop has not
	// moved for Config.UnhealthyAfter, or too many handlers are stuck. A
	// server that is away does not make a worker unhealthy.
	Healthy bool
	// Ready is false when the worker does not take tasks: it is not healthy,
	// starting, stopping, or the server refuses it.
	Ready   bool
	Reasons []string // why not healthy or not ready
}

// counts are the numbers in Status, kept where they can be read without a
// lock: a probe must not wait for a worker that hangs.
type counts struct {
	busy, held, unsettled, stuck, over atomic.Int64

	oldest atomic.Pointer[time.Time] // nil: no lease is held
}

func (c *counts) store(h *hand) {
	c.busy.Store(int64(h.slots.busy))
	c.held.Store(int64(h.slots.held + h.slots.ready))
	c.unsettled.Store(int64(h.unsettled()))
	c.stuck.Store(int64(h.slots.stuck))
	c.over.Store(int64(h.slots.over()))
	since, held := h.oldest()
	switch kept := c.oldest.Load(); {
	case !held:
		c.oldest.Store(nil)
	case kept == nil || *kept != since:
		at := since // the only case in which it is kept
		c.oldest.Store(&at)
	}
}

// notReadyAfter is the number of calls in a row that have to fail before the
// worker says that it is not ready: one lost connection is nothing to report,
// and neither is a failure so long ago that the call would have been repeated.
const notReadyAfter = 2

// Status returns a snapshot. It never waits for anything.
func (w *Worker) Status() Status {
	s := Status{
		State:     *w.state.Load(),
		Consumer:  *w.consumer.Load(),
		Slots:     w.cfg.Concurrency,
		Busy:      int(w.counts.busy.Load()),
		Held:      int(w.counts.held.Load()),
		Unsettled: int(w.counts.unsettled.Load()),
		Stuck:     int(w.counts.stuck.Load()),
		Healthy:   true,
	}
	if since := w.counts.oldest.Load(); since != nil {
		s.OldestLease = *since
	}
	s.Ready = s.State == StateRunning
	if !s.Ready {
		s.Reasons = append(s.Reasons, "worker is "+string(s.State))
	}
	unhealthy := func(format string, args ...any) {
		s.Healthy, s.Ready = false, false
		s.Reasons = append(s.Reasons, fmt.Sprintf(format, args...))
	}
	if w.counts.over.Load() > 0 {
		unhealthy("%d handlers are stuck, more than %d", s.Stuck, max(w.cfg.MaxStuck, 0))
	}
	if s.Unsettled >= w.cfg.MaxUnsettled {
		s.Ready = false
		s.Reasons = append(s.Reasons, fmt.Sprintf("%d outcomes wait for the server, as many as are kept", s.Unsettled))
	}
	moving := w.ran.Load() && s.State != StateStopped
	for _, l := range w.loops {
		ls := l.status()
		s.Loops = append(s.Loops, ls)
		if d := l.silent(); moving && d > w.cfg.UnhealthyAfter {
			unhealthy("loop %s has not moved for %v", l.name, d.Round(time.Second))
		}
		if ls.Failing >= notReadyAfter && time.Since(ls.ErrorAt) < 2*maxBackoff {
			s.Ready = false
			s.Reasons = append(s.Reasons, fmt.Sprintf("loop %s: %d calls to the server failed in a row: %s", l.name, ls.Failing, ls.LastError))
		}
	}
	return s
}

func (l *loop) status() LoopStatus {
	s := LoopStatus{Name: l.name, Failing: int(l.failing.Load())}
	if l.w.ran.Load() {
		s.Beat = l.w.epoch.Add(time.Duration(l.beatAt.Load()))
	}
	if e := l.lastErr.Load(); e != nil && s.Failing > 0 {
		s.LastError, s.ErrorAt = e.text, e.at
	}
	return s
}
