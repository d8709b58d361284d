package pglock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/claimq/claimq/internal/pgtest"
	"github.com/claimq/claimq/lease"
	"github.com/claimq/claimq/lease/pglock"
)

type txRig struct {
	*process
	dsn string
}

func newTxRig(t *testing.T) txRig {
	t.Helper()
	dsn := pgtest.Shared(t).DSN(t)
	return txRig{newProcess(t, dsn, func(c *pglock.Config) { c.NoFence = true }), dsn}
}

func (r txRig) begin(t *testing.T) pgx.Tx {
	t.Helper()
	tx, err := connect(t, r.dsn).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

// usable reports whether a transaction goes on, and with which lock_timeout.
func usable(t *testing.T, tx pgx.Tx) string {
	t.Helper()
	var timeout string
	if err := tx.QueryRow(t.Context(), "SELECT current_setting('lock_timeout')").Scan(&timeout); err != nil {
		t.Errorf("the transaction is of no use any more: %v", err)
	}
	return timeout
}

// A transaction that has the lock keeps out leases and other transactions,
// until it ends, one way or the other.
func TestLockTx(t *testing.T) {
	r := newTxRig(t)
	l := newLocker(t, r.Store, lease.Config{Wait: lease.NoWait})
	for name, end := range map[string]func(pgx.Tx) error{
		"commit":   func(tx pgx.Tx) error { return tx.Commit(t.Context()) },
		"rollback": func(tx pgx.Tx) error { return tx.Rollback(t.Context()) },
	} {
		for _, wait := range []time.Duration{0, time.Minute} {
			a, b := r.begin(t), r.begin(t)
			for range 2 { // a second time does nothing
				if err := r.LockTx(t.Context(), a, "n", wait); err != nil {
					t.Fatal(err)
				}
			}
			if got := usable(t, a); got != "0" {
				t.Errorf("lock_timeout is left at %s", got)
			}
			if _, err := l.Try(t.Context(), "n"); !errors.Is(err, lease.ErrHeld) {
				t.Errorf("a lease beside it: %v, want ErrHeld", err)
			}
			if err := r.LockTx(t.Context(), b, "other", 0); err != nil {
				t.Errorf("another name: %v", err)
			}
			for _, wait := range []time.Duration{0, 100 * time.Millisecond} {
				began := time.Now()
				if err := r.LockTx(t.Context(), b, "n", wait); !errors.Is(err, lease.ErrHeld) {
					t.Errorf("a transaction beside it: %v, want ErrHeld", err)
				}
				if took := time.Since(began); took < wait {
					t.Errorf("waited %v, want %v", took, wait)
				}
				if got := usable(t, b); got != "0" {
					t.Errorf("lock_timeout is left at %s", got)
				}
			}
			if err := end(a); err != nil {
				t.Fatal(err)
			}
			if err := r.LockTx(t.Context(), b, "n", 0); err != nil {
				t.Errorf("after %s: %v", name, err)
			}
			if err := b.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			held, err := l.Try(t.Context(), "n")
			if err != nil {
				t.Fatalf("a lease after %s: %v", name, err)
			}
			if err := l.Release(t.Context(), held); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Who waits in a transaction gets the lock when it is free.
func TestLockTxWaits(t *testing.T) {
	r := newTxRig(t)
	a, b := r.begin(t), r.begin(t)
	if err := r.LockTx(t.Context(), a, "n", 0); err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() { got <- r.LockTx(t.Context(), b, "n", time.Minute) }()
	look := connect(t, r.dsn)
	for waiting := 0; waiting == 0; { // until the server says that it waits
		if err := look.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
	if err := b.Commit(t.Context()); err != nil {
		t.Error(err)
	}
}

// Inside Do the lock would be waited for in vain: its session is another.
func TestLockTxInsideDo(t *testing.T) {
	r := newTxRig(t)
	tx := r.begin(t)
	err := newLocker(t, r.Store, lease.Config{}).Do(t.Context(), "n", func(ctx context.Context, _ lease.Lease) error {
		if err := r.LockTx(ctx, tx, "n", time.Minute); !errors.Is(err, lease.ErrReentrant) {
			t.Errorf("%v, want ErrReentrant", err)
		}
		return r.LockTx(ctx, tx, "other", time.Minute)
	})
	if err != nil {
		t.Error(err)
	}
	usable(t, tx)
	for _, wait := range []time.Duration{-1, 2 * time.Hour} {
		if err := r.LockTx(t.Context(), tx, "n", wait); err == nil {
			t.Errorf("a wait of %v is accepted", wait)
		}
	}
}
