package consumer

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// The worker's loops, as they are named in Status.Loops, logs and metrics.
const (
	loopFetch        = "fetch"
	loopDispatch     = "dispatch"
	loopRenew        = "renew"
	loopWatch        = "watch"
	loopSettle       = "settle"
	loopHousekeeping = "housekeeping"
)

// logEvery is the shortest time between two log lines about errors of one
// loop.
const logEvery = time.Second

// loop is what the loops have in common: a wake-up, a heartbeat, and the
// account of failed calls. Only the loop's own goroutine calls its methods,
// but anyone may call poke and read the atomics.
type loop struct {
	name string
	w    *Worker
	wake chan struct{} // buffered: a poke is never lost and never waits

	beatAt  atomic.Int64 // time since Worker.epoch, by the monotonic clock
	lastErr atomic.Pointer[loopError]
	failing atomic.Int64 // failed calls in a row

	timer      *time.Timer
	lastLog    time.Time
	suppressed int
}

type loopError struct {
	text string
	at   time.Time
}

func newLoop(w *Worker, name string) *loop {
	return &loop{name: name, w: w, wake: make(chan struct{}, 1)}
}

// poke wakes the loop, now or when it next waits.
func (l *loop) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// beat notes that the loop moves.
func (l *loop) beat() {
	if l.w.onBeat != nil {
		l.w.onBeat(l.name)
	}
	l.beatAt.Store(int64(time.Since(l.w.epoch)))
	l.w.observe.Beat(l.name)
}

// silent is how long ago the loop last moved.
func (l *loop) silent() time.Duration {
	return time.Since(l.w.epoch) - time.Duration(l.beatAt.Load())
}

// wait returns when the loop is poked, after d, or when the worker stops; the
// result is false in the last case. Why it returned decides nothing else: the
// caller looks at the state again.
func (l *loop) wait(d time.Duration) bool {
	d = max(0, min(d, l.w.tick))
	if l.timer == nil {
		l.timer = time.NewTimer(d)
	} else {
		l.timer.Reset(d)
	}
	select {
	case <-l.w.stop:
	case <-l.wake:
	case <-l.timer.C:
	}
	l.timer.Stop()
	return !l.w.stopping()
}

// pause waits for d, however often the loop is poked, beating all the while.
// It is cut short, with false, when the worker stops or, if brief, drains.
func (l *loop) pause(d time.Duration, brief bool) bool {
	until := time.Now().Add(d)
	for {
		if brief && l.w.draining() {
			return false
		}
		left := time.Until(until)
		if left <= 0 {
			return !l.w.stopping()
		}
		if !l.wait(left) {
			return false
		}
		l.beat()
	}
}

// failed notes a failed call, logs it at most once a second, and returns how
// long to wait before the next.
func (l *loop) failed(err error, attrs ...any) time.Duration {
	n := l.failing.Add(1)
	now := time.Now()
	l.lastErr.Store(&loopError{text: err.Error(), at: now})
	l.w.observe.ServerError(ServerError{Loop: l.name, Err: err})
	if !l.lastLog.IsZero() && now.Sub(l.lastLog) < logEvery {
		l.suppressed++
	} else {
		attrs = append(attrs, "loop", l.name, "error", err, "failed_calls", n)
		if l.suppressed > 0 {
			attrs = append(attrs, "lines_suppressed", l.suppressed)
		}
		l.w.log.Log(l.w.ops, slog.LevelWarn, "server call failed", attrs...)
		l.lastLog, l.suppressed = now, 0
	}
	return l.w.jitter.serverBackoff(int(n))
}

// succeeded notes that the server answers, and reports whether it had not.
func (l *loop) succeeded() bool {
	n := l.failing.Swap(0)
	if n > 0 {
		l.w.log.Info("server answers again", "loop", l.name, "failed_calls", n)
	}
	return n > 0
}

// idle notes that there is nothing left to call the server for, so failures
// of the past say nothing about the present.
func (l *loop) idle() { l.failing.Store(0) }
