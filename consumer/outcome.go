package consumer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/claimq/claimq/queue"
)

// Causes of the end of a handler's context, besides queue.ErrLeaseLost.
var (
	// ErrTaskTimeout: the handler has run for its timeout.
	ErrTaskTimeout = errors.New("task timeout")

	// ErrDraining: the worker is stopping and the time given to running
	// handlers is over. An error returned now hands the task back without a
	// failure.
	ErrDraining = errors.New("worker is stopping")
)

// DeadLetter says that no later attempt can succeed: the task becomes a dead
// letter with err as its last error. It may be wrapped.
func DeadLetter(err error) error {
	if err == nil {
		err = errors.New("rejected by its handler")
	}
	return &deadLetter{err: err, reason: FailedError}
}

// RetryAfter counts a failure like any other error, but the next attempt
// starts after d (and up to a twentieth more) instead of the usual backoff. It
// may be wrapped.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		err = errors.New("retry asked for by its handler")
	}
	return &retryAfter{delay: max(d, 0), err: err}
}

// Release hands the task back without counting a failure; err may be nil. The
// next attempt starts a second later at the earliest, here or elsewhere. It
// may be wrapped.
func Release(err error) error {
	if err == nil {
		err = errors.New("handed back by its handler")
	}
	return &release{err: err}
}

// OutcomeOf tells what a worker makes of what a handler returned under ctx, and
// why the attempt failed if it did; for middleware that reports it. The server
// has the last word: a task that has failed too often becomes a dead letter,
// and to a holder that was replaced it answers queue.Lost.
func OutcomeOf(ctx context.Context, result []byte, err error) (queue.Outcome, FailureReason) {
	if err == nil {
		if len(result) > queue.MaxResultBytes {
			return queue.DeadLettered, FailedError
		}
		return queue.Completed, FailedNone
	}
	if d, ok := asType[*deadLetter](err); ok {
		return queue.DeadLettered, d.reason
	}
	if _, ok := asType[*retryAfter](err); ok {
		return queue.Retried, FailedError
	}
	if _, ok := asType[*release](err); ok {
		return queue.Released, FailedNone
	}
	outcome, reason := queue.Retried, FailedError
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, ErrTaskTimeout):
		reason = FailedTimeout
	case errors.Is(cause, ErrDraining):
		outcome, reason = queue.Released, FailedCanceled
	case cause != nil:
		reason = FailedCanceled
	}
	if _, ok := asType[*PanicError](err); ok {
		outcome, reason = queue.Retried, FailedPanic
	}
	if errors.Is(cause, queue.ErrLeaseLost) {
		outcome = queue.Lost
	}
	return outcome, reason
}

type deadLetter struct {
	err    error
	reason FailureReason
}

func (e *deadLetter) Error() string { return e.err.Error() }
func (e *deadLetter) Unwrap() error { return e.err }

type retryAfter struct {
	delay time.Duration
	err   error
}

func (e *retryAfter) Error() string { return e.err.Error() }
func (e *retryAfter) Unwrap() error { return e.err }

type release struct{ err error }

func (e *release) Error() string { return e.err.Error() }
func (e *release) Unwrap() error { return e.err }

// PanicError is the failure of a handler that panicked or ended its goroutine.
type PanicError struct {
	Value  string // the value it panicked with, as text, cut to 256 bytes
	Goexit bool   // it called runtime.Goexit instead
	Stack  string // where, cut to MaxStackBytes
}

// MaxStackBytes is how much of the stack of a panic is kept. What goes to the
// server is cut further, to queue.MaxErrorBytes.
const MaxStackBytes = 4096

func (e *PanicError) Error() string {
	if e.Goexit {
		return "handler called runtime.Goexit\n" + e.Stack
	}
	return "handler panicked: " + e.Value + "\n" + e.Stack
}

// AbandonedError is what Run returns when it could not settle everything it
// had in hand. The tasks named in it come back on another worker when their
// lease has ended.
type AbandonedError struct {
	Running   []queue.TaskID // their handlers are still running
	Unsettled []queue.TaskID // their handlers have ended, but the server did not take the outcome
}

func (e *AbandonedError) Error() string {
	var parts []string
	if n := len(e.Running); n > 0 {
		parts = append(parts, fmt.Sprintf("%d handlers still running (%s)", n, someIDs(e.Running)))
	}
	if n := len(e.Unsettled); n > 0 {
		parts = append(parts, fmt.Sprintf("%d outcomes not taken by the server (%s)", n, someIDs(e.Unsettled)))
	}
	return "worker stopped with work in hand: " + strings.Join(parts, ", ")
}

func someIDs(ids []queue.TaskID) string {
	const most = 5
	var b strings.Builder
	for i, id := range ids {
		if i == most {
			b.WriteString(", …")
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(id))
	}
	return b.String()
}
