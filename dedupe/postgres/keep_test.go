package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/claimq/claimq/dedupe/postgres"
	"github.com/claimq/claimq/internal/pgtest"
	"github.com/claimq/claimq/queue"
)

// TestMigrateAtOnce: many processes at the same moment; one works, and all find
// the tables.
func TestMigrateAtOnce(t *testing.T) {
	pool := pgtest.Shared(t).Pool(t)
	worked := 0
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			s, err := postgres.New(pool, postgres.Config{Schema: "other_name"})
			if err != nil {
				t.Error(err)
				return
			}
			applied, err := s.Migrate(t.Context())
			if err != nil {
				t.Error(err)
			}
			if err := s.Check(t.Context()); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if len(applied) > 0 {
				worked++
			}
		})
	}
	wg.Wait()
	if worked != 1 {
		t.Errorf("%d applied something", worked)
	}
}

// TestMigrateWaits for one that is at it.
func TestMigrateWaits(t *testing.T) {
	pool := pgtest.Shared(t).Pool(t)
	s, err := postgres.New(pool, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if err := exec(t.Context(), tx, "select pg_advisory_xact_lock($1)", s.MigrateLock()); err != nil {
			return err
		}
		wg.Go(func() {
			if _, err := s.Migrate(t.Context()); err != nil {
				t.Error(err)
			}
		})
		waitsForLock(t, pool)
		if err := s.Check(t.Context()); !errors.Is(err, postgres.ErrSchema) {
			t.Errorf("it did not wait: %v", err)
		}
		return nil
	})
	wg.Wait()
	if err != nil {
		t.Error(err)
	}
}

// TestWithoutTables: the error names the remedy, and a program that is too old
// for the tables goes on.
func TestWithoutTables(t *testing.T) {
	pool := pgtest.Shared(t).Pool(t)
	s, err := postgres.New(pool, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	l := lease("T1", 7)
	if err := s.Check(t.Context()); !errors.Is(err, postgres.ErrSchema) {
		t.Errorf("check: %v", err)
	}
	if _, err := postgres.Tx(t.Context(), s, l, effect(l)); !errors.Is(err, postgres.ErrSchema) || !errors.Is(err, postgres.ErrRolledBack) {
		t.Errorf("tx: %v", err)
	}
	if _, err := s.Ledger("billing").Intend(t.Context(), l, "charge", "key", "call"); !errors.Is(err, postgres.ErrSchema) {
		t.Errorf("intend: %v", err)
	}
	if _, err := s.Completed(t.Context(), "billing", "T1"); !errors.Is(err, postgres.ErrSchema) {
		t.Errorf("completed: %v", err)
	}
	// A schema that somebody else made, for a user who may not make any.
	must(t, pool, "create schema claimq")
	if err := s.Check(t.Context()); !errors.Is(err, postgres.ErrSchema) {
		t.Errorf("check of an empty schema: %v", err)
	}
	if applied, err := s.Migrate(t.Context()); err != nil || len(applied) == 0 {
		t.Errorf("%v, %v", applied, err)
	}
	must(t, pool, "insert into claimq.dedupe_migrations (version, name) values (1000, 'of a later release')")
	if applied, err := s.Migrate(t.Context()); err != nil || len(applied) != 0 {
		t.Errorf("newer tables: %v, %v", applied, err)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("newer tables: %v", err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	pool := pgtest.Shared(t).Pool(t)
	for _, cfg := range []postgres.Config{
		{Schema: "Upper"}, {Schema: `a"; drop`}, {Retention: time.Second}, {IdleTimeout: time.Millisecond}, {MaxTries: -1}, {Isolation: "chaos"},
	} {
		if _, err := postgres.New(pool, cfg); !errors.Is(err, queue.ErrInvalidConfig) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	if _, err := postgres.New(nil, postgres.Config{}); !errors.Is(err, queue.ErrInvalidConfig) {
		t.Errorf("no pool: %v", err)
	}
}

// age makes all rows that are there older.
func age(t *testing.T, pool *pgxpool.Pool, d time.Duration) {
	t.Helper()
	must(t, pool, "update claimq.tasks set touched_at = touched_at - $1::interval", d)
	must(t, pool, "update claimq.steps set changed_at = changed_at - $1::interval", d)
}

// TestSweep removes what is old, in small deletes and by one worker at a time,
// passes over what a transaction has open, and nothing else.
func TestSweep(t *testing.T) {
	pool := pgtest.Shared(t).Pool(t)
	s := newStore(t, pool, postgres.Config{Retention: time.Hour})
	const old = postgres.SweepBatch*3 + 7
	must(t, pool, "insert into claimq.tasks (queue, task_id, fence, touched_at) select 'billing', 'old-' || n, 1, now() from generate_series(1, $1::int) n", old)
	l := lease("old-step", 7)
	if _, err := s.Ledger("billing").Intend(t.Context(), l, "charge", "key", "call"); err != nil {
		t.Fatal(err)
	}
	age(t, pool, 61*time.Minute)
	young := lease("young", 7)
	if _, err := postgres.Tx(t.Context(), s, young, effect(young)); err != nil {
		t.Fatal(err)
	}
	total := 0
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if err := exec(t.Context(), tx, "select from claimq.tasks where task_id = 'old-5' for update"); err != nil {
			return err
		}
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range 4 { // workers
			wg.Go(func() {
				n, _, err := s.Sweep(t.Context())
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				total += n
			})
		}
		wg.Wait()
		n, more, err := s.Sweep(t.Context())
		total += n
		if more {
			t.Error("more is left")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	left := func() (ids []string) {
		rows, err := pool.Query(t.Context(), "select task_id from claimq.tasks union all select task_id from claimq.steps order by 1")
		if err != nil {
			t.Fatal(err)
		}
		ids, err = pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return ids
	}
	if total != old+2-1 || fmt.Sprint(left()) != "[old-5 young]" { // the step and its task, without the one that was open
		t.Errorf("%d removed, left %v", total, left())
	}
	if n, _, err := s.Sweep(t.Context()); err != nil || n != 1 || fmt.Sprint(left()) != "[young]" {
		t.Errorf("%d removed, left %v, %v", n, left(), err)
	}
}

// TestSweepInTurn: while one removes, the others leave it alone.
func TestSweepInTurn(t *testing.T) {
	pool := pgtest.Shared(t).Pool(t)
	s := newStore(t, pool, postgres.Config{Retention: time.Hour})
	must(t, pool, "insert into claimq.tasks (queue, task_id, fence, touched_at) values ('billing', 'old', 1, now() - interval '1 day')")
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if err := exec(t.Context(), tx, "select pg_advisory_xact_lock($1)", s.SweepLock()); err != nil {
			return err
		}
		n, more, err := s.Sweep(t.Context())
		if n != 0 || more {
			t.Errorf("%d removed beside another, more %v", n, more)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if n, _, err := s.Sweep(t.Context()); err != nil || n != 1 {
		t.Errorf("%d removed, %v", n, err)
	}
}

// TestSweepIsBounded: one call is over soon, and says that there is more.
func TestSweepIsBounded(t *testing.T) {
	pool := pgtest.Shared(t).Pool(t)
	s := newStore(t, pool, postgres.Config{Retention: time.Hour})
	const most = postgres.SweepBatch * postgres.SweepBatches
	must(t, pool, "insert into claimq.tasks (queue, task_id, fence, touched_at) select 'billing', 'old-' || n, 1, now() - interval '1 day' + n * interval '1 ms' from generate_series(1, $1::int) n", most+3)
	if n, more, err := s.Sweep(t.Context()); n != most || !more || err != nil {
		t.Errorf("%d, %v, %v", n, more, err)
	}
	if n, more, err := s.Sweep(t.Context()); n != 3 || more || err != nil {
		t.Errorf("%d, %v, %v", n, more, err)
	}
}

// TestF4ForgottenTask: a run that is under way when its task is deleted leaves
// nothing behind, neither a completion nor a step, and the ID is free.
func TestF4ForgottenTask(t *testing.T) {
	pool := pgtest.Shared(t).Pool(t)
	s := newStore(t, pool, postgres.Config{})
	g := s.Ledger("billing")
	running := lease("T1", 7)
	if _, err := g.Intend(t.Context(), running, "charge", "key", g.NewCall()); err != nil {
		t.Fatal(err)
	}
	for range 2 { // asked again, it changes nothing more
		if err := s.Forget(t.Context(), "billing", "T1", running.Fence); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := postgres.Tx(t.Context(), s, running, effect(running)); !errors.Is(err, postgres.ErrFenced) {
		t.Errorf("the run commits: %v", err)
	}
	if _, err := g.Record(t.Context(), running, "charge", queue.StepDone, []byte("ch_1")); !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("the run records its step: %v", err)
	}
	if _, err := g.Intend(t.Context(), running, "mail", "key", g.NewCall()); !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("the run begins another step: %v", err)
	}
	if _, err := g.Steps(t.Context(), "T1"); !errors.Is(err, queue.ErrNotFound) {
		t.Errorf("steps of a deleted task: %v", err)
	}
	anew := lease("T1", 8) // fences only grow
	for n := 1; n <= 2; n++ {
		if _, err := postgres.Tx(t.Context(), s, anew, effect(anew)); err != nil || effects(t, pool, "T1") != n {
			t.Errorf("the ID used again: %v, %d effects", err, effects(t, pool, "T1"))
		}
		if err := s.Forget(t.Context(), "billing", "T1", anew.Fence); err != nil { // done, and forgotten
			t.Fatal(err)
		}
		anew.Fence++
	}
}

// TestHoldWaits: while a transaction has compared its fence, no later holder
// gets by; afterwards the earlier one does not.
func TestHoldWaits(t *testing.T) {
	pool := pgtest.Shared(t).Pool(t)
	s := newStore(t, pool, postgres.Config{})
	first := lease("T1", 7)
	second := after(first)
	hold := func(l queue.Lease, f func()) error {
		return pgx.BeginFunc(context.Background(), pool, func(tx pgx.Tx) error {
			err := s.Hold(context.Background(), tx, l)
			if err == nil && f != nil {
				f()
			}
			return err
		})
	}
	var wg sync.WaitGroup
	var over atomic.Bool
	if err := hold(first, func() {
		wg.Go(func() {
			if err := hold(second, func() {
				if !over.Load() {
					t.Error("the second did not wait")
				}
			}); err != nil {
				t.Error(err)
			}
		})
		waitsForLock(t, pool)
		over.Store(true) // before the commit, which the second waits for
	}); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if err := hold(first, nil); !errors.Is(err, postgres.ErrFenced) || !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("the first again: %v", err)
	}
}
