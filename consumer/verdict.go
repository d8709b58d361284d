package consumer

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/claimq/claimq/queue"
)

// verb is how a delivery is settled.
type verb uint8

const (
	verbComplete verb = iota
	verbRetry
	verbRelease
	verbDeadLetter
)

// verdict is what the end of a handler means for its task, or what becomes of a
// task that does not run.
type verdict struct {
	verb      verb
	stands    bool // said by the handler, whatever became of its context
	unhandled bool // see queue.Settlement
	reason    FailureReason
	dead      queue.DeadReason
	delay     time.Duration
	result    []byte
	text      string // of the error
	err       error
}

// settlement is what is asked of the server.
func (v *verdict) settlement(l queue.Lease, endsGrant bool) queue.Settlement {
	return queue.Settlement{
		Lease: l, Result: v.result, Delay: v.delay, Error: v.text, Reason: v.dead,
		Unhandled: v.unhandled, EndsGrant: endsGrant,
	}
}

// verdictOf reads what a handler returned; cause is why its context had ended
// by then, nil if it had not.
func (w *Worker) verdictOf(it *item, result []byte, err error, cause error) verdict {
	v := verdict{err: err, text: textOf(err)}
	if err == nil {
		v.stands = true
		if len(result) <= queue.MaxResultBytes {
			v.result = result
			return v // completed, also when it was a moment late
		}
		// The work is done, so it is not run again; the result cannot be kept
		// whole, so somebody has to look.
		v.err = fmt.Errorf("the handler's result has %d bytes, more than %d", len(result), queue.MaxResultBytes)
		v.verb, v.reason = verbDeadLetter, FailedError
		v.dead, v.text = queue.DeadRejected, v.err.Error()
		return v
	}
	if d, ok := asType[*deadLetter](err); ok {
		v.verb, v.reason, v.stands = verbDeadLetter, d.reason, true
		v.dead = queue.DeadRejected
		return v
	}
	if r, ok := asType[*retryAfter](err); ok {
		v.verb, v.reason, v.stands = verbRetry, FailedError, true
		v.delay = r.delay + w.jitter.upTo(r.delay/20)
		return v
	}
	if _, ok := asType[*release](err); ok {
		v.verb, v.reason, v.stands = verbRelease, FailedNone, true
		v.delay = handBackDelay
		if w.draining() {
			v.delay = 0 // it cannot come back here
		}
		return v
	}
	v.verb = verbRetry
	v.delay = w.jitter.retryDelay(w.cfg.RetryBase, w.cfg.RetryMax, it.lease.Failures)
	_, panicked := asType[*PanicError](err)
	switch {
	case panicked:
		v.reason = FailedPanic
	case errors.Is(cause, ErrTaskTimeout):
		v.reason = FailedTimeout
	case errors.Is(cause, ErrDraining):
		// It was stopped, it did not fail.
		v.verb, v.reason = verbRelease, FailedCanceled
		v.delay = 0
	case cause != nil:
		v.reason = FailedCanceled
	default:
		v.reason = FailedError
	}
	return v
}

func (w *Worker) logVerdict(it *item, v verdict) {
	w.mu.Lock()
	attrs := it.subject().attrs("reason", v.reason)
	w.mu.Unlock()
	if p, ok := asType[*PanicError](v.err); ok {
		w.log.Error("handler panicked", append(attrs, "value", p.Value, "goexit", p.Goexit, "stack", p.Stack)...)
		return
	}
	w.log.Info("attempt did not succeed", append(attrs, "error", v.text)...)
}

// asType is errors.AsType for errors of the user's, whose methods may panic.
func asType[E error](err error) (e E, ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	return errors.AsType[E](err)
}

// textOf is the text of an error of the user's, cut to what is kept of it.
func textOf(err error) (text string) {
	if err == nil {
		return ""
	}
	defer func() {
		if v := recover(); v != nil {
			text = fmt.Sprintf("error of type %T, whose Error method panicked", err)
		}
	}()
	return cut(err.Error(), queue.MaxErrorBytes)
}

// cut shortens s to at most n bytes, at a character's boundary.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
