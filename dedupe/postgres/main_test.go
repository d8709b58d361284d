package postgres_test

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/claimq/claimq/dedupe/postgres"
	"github.com/claimq/claimq/internal/ledgertest"
	"github.com/claimq/claimq/internal/pgtest"
	"github.com/claimq/claimq/queue"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// newStore has its tables, and one of users' own for the effects.
func newStore(t *testing.T, pool *pgxpool.Pool, cfg postgres.Config) *postgres.Store {
	t.Helper()
	s, err := postgres.New(pool, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	must(t, pool, "create table if not exists effects (task text not null, by bigint not null)")
	return s
}

func must(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func lease(id string, fence queue.Fence) queue.Lease {
	return queue.Lease{Queue: "billing", TaskID: queue.TaskID(id), Kind: "invoice.send", Fence: fence, Attempt: 1}
}

// after is the lease of the next attempt.
func after(l queue.Lease) queue.Lease {
	l.Fence, l.Attempt = l.Fence+1, l.Attempt+1
	return l
}

// effect is the SQL of a handler.
func effect(l queue.Lease) func(context.Context, pgx.Tx) (string, error) {
	return func(ctx context.Context, tx pgx.Tx) (string, error) {
		_, err := tx.Exec(ctx, "insert into effects (task, by) values ($1, $2)", string(l.TaskID), int64(l.Fence))
		return "receipt of " + string(l.TaskID), err
	}
}

// effects counts what handlers did for a task.
func effects(t *testing.T, pool *pgxpool.Pool, id string) (n int) {
	t.Helper()
	if err := pool.QueryRow(context.Background(), "select count(*) from effects where task = $1", id).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestPostgresLedger: the ledger keeps the contract of dedupe.Ledger.
func TestPostgresLedger(t *testing.T) {
	ledgertest.Run(t, func(t *testing.T) ledgertest.Bench {
		pool := pgtest.Shared(t).Pool(t)
		s := newStore(t, pool, postgres.Config{})
		return ledgertest.Bench{
			Ledger: s.Ledger("billing"),
			Begin:  func(id queue.TaskID) queue.Lease { return lease(string(id), 7) },
			Replace: func(l queue.Lease) queue.Lease {
				next := after(l)
				if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return s.Hold(t.Context(), tx, next) }); err != nil {
					t.Fatal(err)
				}
				return next
			},
		}
	})
}
