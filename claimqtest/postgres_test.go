package claimqtest_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/claimq/claimq/claimqtest"
	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/dedupe"
	"github.com/claimq/claimq/dedupe/postgres"
	"github.com/claimq/claimq/internal/pgtest"
	"github.com/claimq/claimq/queue"
)

// database is a database with the tables of the ledger, and one of a user's.
func database(t *testing.T) (*pgxpool.Pool, *claimqtest.Table) {
	t.Helper()
	pool := pgtest.Shared(t).Pool(t)
	if _, err := newStore(t, pool).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), "create table bookings (task text not null)"); err != nil {
		t.Fatal(err)
	}
	return pool, &claimqtest.Table{
		Label: "booking",
		Rows: func(ctx context.Context) (n int, err error) {
			err = pool.QueryRow(ctx, "select count(*) from bookings").Scan(&n)
			return n, err
		},
		Empty: func(ctx context.Context) error {
			_, err := pool.Exec(ctx, "delete from bookings")
			return err
		},
	}
}

func newStore(t *testing.T, pool *pgxpool.Pool) *postgres.Store {
	t.Helper()
	s, err := postgres.New(pool, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func book(ctx context.Context, tx pgx.Tx, l queue.Lease) error {
	_, err := tx.Exec(ctx, "insert into bookings (task) values ($1)", string(l.TaskID))
	return err
}

// TestRightWithThePostgresLedger: a recorded step with one key.
func TestRightWithThePostgresLedger(t *testing.T) {
	t.Parallel()
	pool, _ := database(t)
	charges := &claimqtest.Gateway{Label: "charge", HonoursKeys: true}
	claimqtest.Run(t, claimqtest.Plan{
		Task: task, Effects: []claimqtest.Effect{charges}, RedisForgets: true,
		Handler: func(w *claimqtest.Worker) consumer.Handler {
			ledger := w.Named(newStore(t, w.Pool(pool)).Ledger(w.Queue().Name()))
			return handle(func(ctx context.Context, l queue.Lease) error {
				_, err := dedupe.Step(ctx, ledger, l, "charge", charge(charges.For(w)))
				return err
			})
		},
	})
}

// TestRightWithATransaction: the effect and its record in one transaction.
func TestRightWithATransaction(t *testing.T) {
	t.Parallel()
	pool, bookings := database(t)
	r := claimqtest.Run(t, claimqtest.Plan{
		Task: task, Effects: []claimqtest.Effect{bookings}, RedisForgets: true,
		Handler: func(w *claimqtest.Worker) consumer.Handler {
			store := newStore(t, w.Pool(pool))
			return handle(func(ctx context.Context, l queue.Lease) error {
				_, err := postgres.Tx(ctx, store, l, func(ctx context.Context, tx pgx.Tx) (string, error) {
					return "", book(ctx, tx, l)
				})
				return err
			})
		},
	})
	want := []string{
		"the lease of the task", "the start of the handler", "begin", "insert into claimq.tasks", "insert into bookings",
		"commit", "the return of the handler", "the completion of the task",
	}
	if !slices.Equal(r.Points, want) {
		t.Errorf("%q", r.Points)
	}
}

// TestTransactionWithoutARecord: the handler's own transaction recognises no
// second run.
func TestTransactionWithoutARecord(t *testing.T) {
	t.Parallel()
	pool, bookings := database(t)
	r := checked(t, claimqtest.Plan{
		Task: task, Effects: []claimqtest.Effect{bookings},
		Handler: func(w *claimqtest.Worker) consumer.Handler {
			own := w.Pool(pool)
			return handle(func(ctx context.Context, l queue.Lease) error {
				return pgx.BeginFunc(ctx, own, func(tx pgx.Tx) error { return book(ctx, tx, l) })
			})
		},
	})
	wantFindings(t, r, []string{
		"reply lost, at commit: booking 1, 2",
		"killed, between commit and the return of the handler: booking 1, 2",
		"killed, between the return of the handler and the completion of the task: booking 1, 2",
		"paused past its lease, between commit and the return of the handler: booking 1, 2",
	}, func(f claimqtest.Finding) bool {
		return f.Lost() || strings.HasSuffix(f.Where, " and commit") || strings.HasSuffix(f.Where, " and insert into bookings")
	})
}

// TestGatewayWithoutTheKey: the ledger in PostgreSQL does not make up for it.
func TestGatewayWithoutTheKey(t *testing.T) {
	t.Parallel()
	pool, _ := database(t)
	charges := &claimqtest.Gateway{Label: "charge", HonoursKeys: true}
	r := checked(t, claimqtest.Plan{
		Task: task, Effects: []claimqtest.Effect{charges},
		Faults: []claimqtest.Fault{claimqtest.Killed, claimqtest.ReplyLost},
		Handler: func(w *claimqtest.Worker) consumer.Handler {
			ledger := w.Named(newStore(t, w.Pool(pool)).Ledger(w.Queue().Name()))
			return handle(func(ctx context.Context, l queue.Lease) error {
				_, err := dedupe.Step(ctx, ledger, l, "charge", func(ctx context.Context, _ dedupe.Key) (string, error) {
					return charges.For(w).Call(ctx, "")
				})
				return err
			})
		},
	})
	wantFindings(t, r, []string{
		"reply lost, at the call of charge: charge 1, 2",
		"killed, between the call of charge and begin for the result of step charge: charge 1, 2",
		"killed, between select from claimq.steps for the result of step charge and commit for the result of step charge: charge 1, 2",
	}, func(f claimqtest.Finding) bool {
		return f.Lost() || strings.HasPrefix(f.Where, "between commit for the result")
	})
}

// TestTwoTransactions: the mark is committed before the effect.
func TestTwoTransactions(t *testing.T) {
	t.Parallel()
	pool, bookings := database(t)
	if _, err := pool.Exec(t.Context(), "create table marks (task text primary key)"); err != nil {
		t.Fatal(err)
	}
	r := checked(t, claimqtest.Plan{
		Task: task, Effects: []claimqtest.Effect{bookings},
		Faults: []claimqtest.Fault{claimqtest.Killed, claimqtest.ReplyLost, claimqtest.ServerAway},
		Reset: func(ctx context.Context) error {
			_, err := pool.Exec(ctx, "delete from marks")
			return err
		},
		Handler: func(w *claimqtest.Worker) consumer.Handler {
			own := w.Pool(pool)
			return handle(func(ctx context.Context, l queue.Lease) error {
				tag, err := own.Exec(ctx, "insert into marks (task) values ($1) on conflict do nothing", string(l.TaskID))
				if err != nil || tag.RowsAffected() == 0 {
					return err
				}
				_, err = own.Exec(ctx, "insert into bookings (task) values ($1)", string(l.TaskID))
				return err
			})
		},
	})
	wantFindings(t, r, []string{
		"reply lost, at insert into marks: booking 1, 0",
		"killed, between insert into marks and insert into bookings: booking 1, 0",
		"server away, at insert into bookings: booking 1, 0",
	}, claimqtest.Finding.Doubled)
}
