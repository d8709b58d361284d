package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/claimq/claimq/internal/pgschema"
	"github.com/claimq/claimq/queue"
)

// Errors of this package, besides those of package queue.
var (
	// ErrFenced: a later lease on the task has been here. Nothing was changed.
	// Drop the work; what the holder of the later lease did counts. It is also
	// a queue.ErrLeaseLost.
	ErrFenced = errors.New("fenced: a later lease on the task has been here")

	// ErrRolledBack: the transaction was rolled back. Nothing was changed. Try
	// the task again, or give up on it.
	ErrRolledBack = errors.New("transaction rolled back")

	// ErrSchema: the tables are missing, or older than this program. Nothing
	// was changed. Run `worker migrate`, or call Store.Migrate.
	ErrSchema = errors.New("tables missing or out of date: run worker migrate, or call Store.Migrate")
)

// FencedError is an ErrFenced that says by which fence.
type FencedError struct {
	TaskID queue.TaskID
	Fence  queue.Fence // of the lease that was refused
	Seen   queue.Fence // the greatest seen; 0: not known
}

func (e *FencedError) Error() string {
	if e.Seen == 0 {
		return fmt.Sprintf("%v: task %s, fence %d", ErrFenced, e.TaskID, e.Fence)
	}
	return fmt.Sprintf("%v: task %s, fence %d, seen %d", ErrFenced, e.TaskID, e.Fence, e.Seen)
}

// Is makes the error match ErrFenced and queue.ErrLeaseLost.
func (e *FencedError) Is(target error) bool {
	return target == ErrFenced || target == queue.ErrLeaseLost
}

// RolledBackError is an ErrRolledBack with its reason.
type RolledBackError struct {
	Err   error // what the function returned, or what the server said
	Tries int   // how often the function was run, or would have been
}

func (e *RolledBackError) Error() string {
	if e.Tries > 1 {
		return fmt.Sprintf("%v after %d tries: %v", ErrRolledBack, e.Tries, e.Err)
	}
	return fmt.Sprintf("%v: %v", ErrRolledBack, e.Err)
}

func (e *RolledBackError) Unwrap() error { return e.Err }

// Is makes the error match ErrRolledBack.
func (e *RolledBackError) Is(target error) bool { return target == ErrRolledBack }

// unknownError: the outcome of a commit could not be found out.
type unknownError struct {
	task        queue.TaskID
	broke, look error // what COMMIT said, and the last look for its outcome
}

func (e *unknownError) Error() string {
	return fmt.Sprintf("%v: task %s: commit: %v; looking for its outcome: %v", queue.ErrIndefinite, e.task, e.broke, e.look)
}

func (e *unknownError) Unwrap() []error { return []error{queue.ErrIndefinite, e.broke, e.look} }

// SQLSTATE codes that are told apart.
const (
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
)

// conflicts reports whether the server ended a transaction because of another
// one, so that the same may succeed now.
func conflicts(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (e.Code == serializationFailure || e.Code == deadlockDetected)
}

// refused reports whether err is an answer of the server after which the
// connection, and what it knows of the transaction, is still there. FATAL ones
// end the connection, at COMMIT possibly after the commit.
func refused(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return errors.Is(err, pgx.ErrTxCommitRollback) || ok && e.Severity != "FATAL" && e.Severity != "PANIC"
}

// said puts an error of the server into the words of package queue. sent: the
// request may have been applied although it failed.
func said(err error, sent bool) error {
	switch {
	case err == nil:
		return nil
	case pgschema.Missing(err):
		return fmt.Errorf("%w: %w", ErrSchema, err)
	case refused(err), pgconn.SafeToRetry(err), !sent:
		return fmt.Errorf("%w: %w", queue.ErrUnavailable, err)
	default:
		return fmt.Errorf("%w: %w", queue.ErrIndefinite, err)
	}
}

// causeOf is why a context ended, or err where it did not.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}
