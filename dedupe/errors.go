package dedupe

import (
	"errors"
	"fmt"
)

// ErrResultNotKept: the call was made and is on record as done, but its result
// could not be kept (too large, or it does not encode). The call is not made
// again. Return a small identifier from the call instead.
var ErrResultNotKept = errors.New("result of the step was not kept")

// NotKeptError is an ErrResultNotKept with what is known of the result.
type NotKeptError struct {
	Step   string
	Key    Key // the other side may know the result by it
	Detail string
}

func (e *NotKeptError) Error() string {
	return fmt.Sprintf("step %q (key %s) has been called and will not be called again, but its result was not kept: %s; "+
		"return a small identifier from the call instead", e.Step, e.Key, e.Detail)
}

// Is makes the error match ErrResultNotKept.
func (e *NotKeptError) Is(target error) bool { return target == ErrResultNotKept }

// NotSent marks an error of a call that is known not to have reached the other
// side at all (connection refused, rejected before it was sent). The step is
// then pending, not of unknown outcome, and a later attempt calls without
// asking a Check. Where in doubt, do not use it. NotSent(nil) is nil.
func NotSent(err error) error {
	if err == nil {
		return nil
	}
	return &notSentError{err}
}

type notSentError struct{ err error }

func (e *notSentError) Error() string { return e.err.Error() }
func (e *notSentError) Unwrap() error { return e.err }

// IsNotSent reports whether err, or one that it wraps, was marked by NotSent.
func IsNotSent(err error) bool {
	_, ok := errors.AsType[*notSentError](err)
	return ok
}
