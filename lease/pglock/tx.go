package pglock

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/claimq/claimq/lease"
)

// LockTx takes the lock of a name for the rest of tx, waiting for wait at most:
// 0 asks once, more than lease.MaxWait is refused. It excludes leases on the
// name and other transactions that ask for it, in the same database and with
// the same prefix. In a transaction that has it already it does nothing.
//
// Errors: lease.ErrHeld, after which tx goes on without the lock;
// lease.ErrReentrant when ctx comes from inside Do for the name, whose session
// is another; any other is that of tx, which can then only be rolled back.
func (s *Store) LockTx(ctx context.Context, tx pgx.Tx, name string, wait time.Duration) error {
	if lease.Holds(ctx, s, name) {
		return fmt.Errorf("lease %q: %w", name, lease.ErrReentrant)
	}
	if wait < 0 || wait > lease.MaxWait {
		return fmt.Errorf("lease %q: a wait of %v: use 0 to %v", name, wait, lease.MaxWait)
	}
	got, err := s.lockTx(ctx, tx, name, wait)
	if err != nil {
		return fmt.Errorf("lease %q: %w", name, err)
	}
	if !got {
		return fmt.Errorf("lease %q: %w", name, lease.ErrHeld)
	}
	return nil
}

func (s *Store) lockTx(ctx context.Context, tx pgx.Tx, name string, wait time.Duration) (got bool, err error) {
	key := s.Key(name)
	if wait == 0 {
		err := tx.QueryRow(ctx, "SELECT pg_try_advisory_xact_lock($1)", key).Scan(&got)
		return got, err
	}
	// A wait that ends in vain fails the transaction, but for a savepoint. The
	// lock outlives the savepoint that it was taken in, and lock_timeout would.
	inner, err := tx.Begin(ctx)
	if err != nil {
		return false, err
	}
	var before string
	if err := inner.QueryRow(ctx, "SELECT current_setting('lock_timeout')").Scan(&before); err != nil {
		return false, err
	}
	if err := lockTimeout(ctx, inner, strconv.FormatInt(max(wait.Milliseconds(), 1), 10)); err != nil {
		return false, err
	}
	_, err = inner.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", key)
	if timedOut(err) {
		return false, inner.Rollback(ctx)
	}
	if err != nil {
		return false, err
	}
	if err := lockTimeout(ctx, inner, before); err != nil {
		return false, err
	}
	return true, inner.Commit(ctx)
}

func lockTimeout(ctx context.Context, tx pgx.Tx, value string) error {
	_, err := tx.Exec(ctx, "SELECT set_config('lock_timeout', $1, true)", value)
	return err
}
