package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/claimq/claimq/dedupe/internal/value"
	"github.com/claimq/claimq/queue"
)

// Outcome is how a Tx ended for one lease.
type Outcome string

// The outcomes; the documentation of the package says what each leaves.
const (
	Committed  Outcome = "committed"
	Done       Outcome = "done"
	Fenced     Outcome = "fenced"
	RolledBack Outcome = "rolled_back"
	Unknown    Outcome = "unknown"
)

// End is how a Tx ended for one lease.
type End struct {
	Lease   queue.Lease
	Outcome Outcome
	Result  []byte // Committed, Done: the result on record
	// Err is nil when the outcome is Committed or Done. Otherwise it matches
	// ErrFenced, ErrRolledBack, or queue.ErrIndefinite.
	Err error
}

// Tx runs f and the record that the task is done in one transaction, or returns
// the result of the run that has done it. A task has one such transaction; for
// several effects put them into one f.
//
// f may be run more than once before Tx returns, each time in a new
// transaction, when the server ended the one before: it must have no effect but
// through tx, and wrap the errors of tx with %w. It must not commit or roll
// back, and not use this Store for the same task, on another connection: that
// would wait for f itself. Its result is kept: []byte, string and json.RawMessage as they are,
// anything else as JSON, at most queue.MaxResultBytes; a longer one is an error
// and rolls back.
//
// With a nil error the task is done, by this run or by an earlier one. Any
// other matches one of ErrFenced, ErrRolledBack and queue.ErrIndefinite, or says
// that what an earlier run has left does not decode as T.
func Tx[T any](ctx context.Context, s *Store, l queue.Lease, f func(ctx context.Context, tx pgx.Tx) (T, error)) (T, error) {
	var v T
	ends := s.run(ctx, []queue.Lease{l}, func(ctx context.Context, tx pgx.Tx, _ []int) ([][]byte, error) {
		var err error
		if v, err = f(ctx, tx); err != nil {
			return nil, err
		}
		result, err := value.Encode(v)
		if err != nil {
			return nil, fmt.Errorf("result of the transaction: %w", err)
		}
		return [][]byte{result}, nil
	})
	switch end := ends[0]; end.Outcome {
	case Committed:
		return v, nil
	case Done:
		var earlier T
		if len(end.Result) == 0 {
			return earlier, nil
		}
		if err := value.Decode(end.Result, &earlier); err != nil {
			return earlier, fmt.Errorf("task %s is done, but its result does not decode as %T: %w", l.TaskID, earlier, err)
		}
		return earlier, nil
	default:
		var zero T
		return zero, end.Err
	}
}

// TxMany is Tx for many tasks in one transaction: those of leases that are not
// done yet, and that no later lease has been used for, are fresh. f has the
// effects of the fresh ones and returns a result for each, in their order, or
// nil for none at all. It is not run when none is fresh.
//
// A task that was done before, or was refused, keeps no other from its end: the
// answer has one End for each lease, in order, and what f or the server says
// against the transaction concerns the fresh ones only. A task that is named
// twice is run once, under the lease with the greatest fence, and has the same
// End twice. The error is queue.ErrInvalidTask, for more than MaxBatch leases.
func TxMany(ctx context.Context, s *Store, leases []queue.Lease,
	f func(ctx context.Context, tx pgx.Tx, fresh []queue.Lease) ([][]byte, error),
) ([]End, error) {
	if len(leases) > MaxBatch {
		return nil, &queue.FieldError{Field: "leases", Remedy: fmt.Sprintf("use at most %d, got %d", MaxBatch, len(leases)), Kind: queue.ErrInvalidTask}
	}
	if len(leases) == 0 {
		return nil, nil
	}
	return s.run(ctx, leases, func(ctx context.Context, tx pgx.Tx, fresh []int) ([][]byte, error) {
		chosen := make([]queue.Lease, len(fresh))
		for i, n := range fresh {
			chosen[i] = leases[n]
		}
		results, err := f(ctx, tx, chosen)
		if err == nil && results != nil && len(results) != len(fresh) {
			err = fmt.Errorf("%d results for %d tasks", len(results), len(fresh))
		}
		return results, err
	}), nil
}

// guarded keeps the function of a Tx from ending its transaction: what it had
// done would be there, and the record of it half written.
type guarded struct{ pgx.Tx }

var errNotYours = errors.New("the transaction is ended by the one who began it: return, with or without an error")

func (guarded) Commit(context.Context) error   { return errNotYours }
func (guarded) Rollback(context.Context) error { return errNotYours }

// Hold compares the fence of a lease inside a transaction of the caller's own:
// for tables that have no column for it. When it returns nil, no later lease has
// been used with this Store, and none can be until the transaction has ended:
// its holder waits. ErrFenced: roll back. Other errors are the server's.
func (s *Store) Hold(ctx context.Context, tx pgx.Tx, l queue.Lease) error {
	tag, err := tx.Exec(ctx, s.sql(sqlHold), l.Queue, string(l.TaskID), int64(l.Fence))
	if err != nil {
		return said(err, false)
	}
	return Changed(tag, l)
}

// Changed turns a write that compares the fence ("… where fence <= $n") and
// that changed no row into ErrFenced.
func Changed(tag pgconn.CommandTag, l queue.Lease) error {
	if tag.RowsAffected() == 0 {
		return &FencedError{TaskID: l.TaskID, Fence: l.Fence}
	}
	return nil
}
