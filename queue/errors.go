package queue

import (
	"context"
	"errors"
	"fmt"
)

// Errors, grouped by what the caller does next.
var (
	// ErrIndefinite: the server may or may not have applied the call. Nothing
	// is half done. Ask again with the same arguments and the same token; the
	// answer is then that of the first.
	ErrIndefinite = errors.New("outcome indefinite: the server may or may not have applied the call")

	// ErrUnavailable: the call did not reach the server or was refused by it
	// as a whole (loading, read-only, out of memory, no permission …).
	// Nothing changed. Ask again later.
	ErrUnavailable = errors.New("server unavailable: nothing was changed")

	// ErrQueueFull: the queue holds Config.MaxBacklog unfinished tasks.
	// Nothing was added. Ask again when it has drained.
	ErrQueueFull = errors.New("queue full")

	// ErrInvalidTask: the task cannot be accepted as it is. Nothing was
	// added. Correct the field that the error names.
	ErrInvalidTask = errors.New("invalid task")

	// ErrInvalidConfig: a configuration value is missing or out of range.
	ErrInvalidConfig = errors.New("invalid configuration")

	// ErrMismatch: what the server holds contradicts this configuration (the
	// number of partitions differs, a second group reads the stream). Nothing
	// was changed. Correct the configuration.
	ErrMismatch = errors.New("configuration does not match the queue on the server")

	// ErrLeaseLost: the caller is not the holder any more. Nothing was
	// changed. Drop the work; somebody else has it or will get it.
	ErrLeaseLost = errors.New("lease lost")

	// ErrNotFound: nothing is known of the ID.
	ErrNotFound = errors.New("task not found")

	// ErrStepConflict: the step has a recorded result that differs from the
	// one offered. The recorded one stays.
	ErrStepConflict = errors.New("step already has a different result")
)

// FieldError names the field of a task or a configuration that is at fault
// and the remedy.
type FieldError struct {
	Field  string
	Remedy string
	Kind   error // ErrInvalidTask or ErrInvalidConfig
}

func (e *FieldError) Error() string { return fmt.Sprintf("%v: %s: %s", e.Kind, e.Field, e.Remedy) }
func (e *FieldError) Unwrap() error { return e.Kind }

func badTask(field, remedy string, args ...any) error {
	return &FieldError{Field: field, Remedy: fmt.Sprintf(remedy, args...), Kind: ErrInvalidTask}
}

func badConfig(field, remedy string, args ...any) error {
	return &FieldError{Field: field, Remedy: fmt.Sprintf(remedy, args...), Kind: ErrInvalidConfig}
}

// IsRetryable reports whether asking again with the same arguments can help.
func IsRetryable(err error) bool {
	return errors.Is(err, ErrIndefinite) || errors.Is(err, ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}
