package postgres_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/claimq/claimq/dedupe/postgres"
	"github.com/claimq/claimq/internal/pgtest"
	"github.com/claimq/claimq/queue"
)

// ended collects how Tx ended.
type ended struct {
	mu   sync.Mutex
	list []postgres.Outcome
}

func (e *ended) add(end postgres.End) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, end.Outcome)
}

func (e *ended) count(o postgres.Outcome) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, x := range e.list {
		if x == o {
			n++
		}
	}
	return n
}

// TestSecondRunGetsTheFirstsResult, whoever it is and however late.
func TestSecondRunGetsTheFirstsResult(t *testing.T) {
	pool := pgtest.Shared(t).Pool(t)
	var e ended
	s := newStore(t, pool, postgres.Config{Ended: e.add})
	l := lease("T1", 7)
	for _, l := range []queue.Lease{l, l, after(l)} {
		if got, err := postgres.Tx(t.Context(), s, l, effect(l)); err != nil || got != "receipt of T1" {
			t.Errorf("%q, %v", got, err)
		}
	}
	if n := effects(t, pool, "T1"); n != 1 || e.count(postgres.Committed) != 1 || e.count(postgres.Done) != 2 {
		t.Errorf("%d effects, ends %v", n, e.list)
	}
	done, err := s.Completed(t.Context(), "billing", "T1", "T2")
	if c := done["T1"]; err != nil || len(done) != 1 || c.Fence != 7 || string(c.Result) != "receipt of T1" || time.Since(c.DoneAt) > time.Minute {
		t.Errorf("%+v, %v", done, err)
	}
	other := l
	other.Queue = "mail" // another queue's task of the same name
	if _, err := postgres.Tx(t.Context(), s, other, effect(other)); err != nil || effects(t, pool, "T1") != 2 {
		t.Errorf("the same ID in another queue: %v", err)
	}
}

// TestRolledBackLeavesNothing: neither effect nor record, and the next attempt
// may do it.
func TestRolledBackLeavesNothing(t *testing.T) {
	pool := pgtest.Shared(t).Pool(t)
	declined := errors.New("declined")
	s := newStore(t, pool, postgres.Config{})
	l := lease("T1", 7)
	fails := map[string]func(ctx context.Context, tx pgx.Tx) error{
		"an error":      func(context.Context, pgx.Tx) error { return declined },
		"a long result": nil,
		"a broken rule": func(ctx context.Context, tx pgx.Tx) error {
			return exec(ctx, tx, "insert into effects values (null, 1)")
		},
		"an error hidden": func(ctx context.Context, tx pgx.Tx) error { _ = exec(ctx, tx, "select 1/0"); return nil },
		"its own commit":  func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		"its own end":     func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
	}
	for name, fail := range fails {
		got, err := postgres.Tx(t.Context(), s, l, func(ctx context.Context, tx pgx.Tx) (string, error) {
			if _, err := effect(l)(ctx, tx); err != nil {
				return "", err
			}
			if fail == nil {
				return strings.Repeat("x", queue.MaxResultBytes+1), nil
			}
			return "receipt", fail(ctx, tx)
		})
		if !errors.Is(err, postgres.ErrRolledBack) || errors.Is(err, queue.ErrIndefinite) || got != "" || effects(t, pool, "T1") != 0 {
			t.Errorf("%s: %q, %v, %d effects", name, got, err, effects(t, pool, "T1"))
		}
		if name == "an error" && !errors.Is(err, declined) {
			t.Errorf("the function's error is gone: %v", err)
		}
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = postgres.Tx(t.Context(), s, l, func(ctx context.Context, tx pgx.Tx) (string, error) {
			_, _ = effect(l)(ctx, tx)
			panic("boom")
		})
	}()
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := postgres.Tx(ctx, s, l, func(ctx context.Context, tx pgx.Tx) (string, error) {
		got, err := effect(l)(ctx, tx)
		cancel(stopped) // the lease was lost before the commit
		return got, err
	})
	if !errors.Is(err, stopped) || !errors.Is(err, postgres.ErrRolledBack) {
		t.Errorf("a context that ended before the commit: %v", err)
	}
	if done, err := s.Completed(t.Context(), "billing", "T1"); err != nil || len(done) != 0 || effects(t, pool, "T1") != 0 {
		t.Fatalf("%v, %v", done, err)
	}
	l = after(l)
	if got, err := postgres.Tx(t.Context(), s, l, effect(l)); err != nil || got == "" || effects(t, pool, "T1") != 1 {
		t.Errorf("the next attempt: %q, %v", got, err)
	}
	if pool.Stat().AcquiredConns() != 0 {
		t.Errorf("%d connections were not given back", pool.Stat().AcquiredConns())
	}
}

func exec(ctx context.Context, tx pgx.Tx, sql string, args ...any) error {
	_, err := tx.Exec(ctx, sql, args...)
	return err
}

// TestReplacedHolderIsFenced: from the second attempt on, a fence is on record
// before the transaction, and stays there when that is rolled back.
func TestReplacedHolderIsFenced(t *testing.T) {
	pool := pgtest.Shared(t).Pool(t)
	var e ended
	s := newStore(t, pool, postgres.Config{Ended: e.add})
	first := lease("T1", 7)
	second := after(first)
	if _, err := postgres.Tx(t.Context(), s, second, func(context.Context, pgx.Tx) (string, error) { return "", errors.New("failed") }); !errors.Is(err, postgres.ErrRolledBack) {
		t.Fatal(err)
	}
	_, err := postgres.Tx(t.Context(), s, first, effect(first))
	fenced, ok := errors.AsType[*postgres.FencedError](err)
	if !ok || !errors.Is(err, postgres.ErrFenced) || !errors.Is(err, queue.ErrLeaseLost) || fenced.Seen != second.Fence || fenced.Fence != first.Fence {
		t.Errorf("%v", err)
	}
	if n := effects(t, pool, "T1"); n != 0 || e.count(postgres.Fenced) != 1 {
		t.Errorf("%d effects, %v", n, e.list)
	}
	if _, err := postgres.Tx(t.Context(), s, second, effect(second)); err != nil {
		t.Errorf("the holder itself: %v", err)
	}
}

// TestF3TwoAtOnce: of two transactions for one task at the same moment, the
// second waits for the first to end. When that commits, the second gets its
// result; when it is rolled back, the second has the effect.
func TestF3TwoAtOnce(t *testing.T) {
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		for _, commits := range []bool{true, false} {
			pool := pgtest.Shared(t).Pool(t)
			var e ended
			s := newStore(t, pool, postgres.Config{Ended: e.add, Isolation: level})
			first, second := lease("T1", 7), lease("T1", 8)
			inside, goOn := make(chan struct{}), make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				_, err := postgres.Tx(t.Context(), s, first, func(ctx context.Context, tx pgx.Tx) (string, error) {
					close(inside)
					<-goOn
					if !commits {
						return "", errors.New("failed")
					}
					return effect(first)(ctx, tx)
				})
				if (err == nil) != commits {
					t.Errorf("the first: %v", err)
				}
			})
			<-inside
			wg.Go(func() {
				if got, err := postgres.Tx(t.Context(), s, second, effect(second)); err != nil || got != "receipt of T1" {
					t.Errorf("the second: %q, %v", got, err)
				}
			})
			waitsForLock(t, pool)
			close(goOn)
			wg.Wait()
			if n := effects(t, pool, "T1"); n != 1 || e.count(postgres.Committed) != 1 {
				t.Errorf("%s, commits %v: %d effects, %v", level, commits, n, e.list)
			}
		}
	}
}

// TestConflictsAreTriedAgain: two that deadlock, and two of which only one can
// be serialised, both have their effect, and the function of one was run twice.
func TestConflictsAreTriedAgain(t *testing.T) {
	type conflict struct {
		name  string
		level pgx.TxIsoLevel
		steps func(n int) [2]string // what task n does before and after it meets the other
	}
	for _, c := range []conflict{
		{"deadlock", pgx.ReadCommitted, func(n int) [2]string {
			one, two := "update accounts set balance = balance + 1 where id = 1", "update accounts set balance = balance + 1 where id = 2"
			if n == 1 {
				one, two = two, one
			}
			return [2]string{one, two}
		}},
		{"serialisation", pgx.Serializable, func(n int) [2]string {
			return [2]string{"select sum(balance) from accounts", "insert into accounts select max(id) + 1, sum(balance) from accounts"}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			pool := pgtest.Shared(t).Pool(t)
			s := newStore(t, pool, postgres.Config{Isolation: c.level})
			must(t, pool, "create table accounts (id int, balance int)")
			must(t, pool, "insert into accounts values (1, 0), (2, 0)")
			var runs [2]int
			var meet sync.WaitGroup
			meet.Add(2)
			var wg sync.WaitGroup
			for n := range 2 {
				wg.Go(func() {
					l := lease([]string{"T1", "T2"}[n], 7)
					_, err := postgres.Tx(t.Context(), s, l, func(ctx context.Context, tx pgx.Tx) (string, error) {
						runs[n]++
						do := c.steps(n)
						if err := exec(ctx, tx, do[0]); err != nil {
							return "", err
						}
						if runs[n] == 1 {
							meet.Done()
							meet.Wait()
						}
						if err := exec(ctx, tx, do[1]); err != nil {
							return "", err
						}
						return effect(l)(ctx, tx)
					})
					if err != nil {
						t.Errorf("task %d: %v", n, err)
					}
				})
			}
			wg.Wait()
			if runs[0]+runs[1] < 3 {
				t.Errorf("%v runs: there was no conflict", runs)
			}
			if effects(t, pool, "T1") != 1 || effects(t, pool, "T2") != 1 {
				t.Errorf("effects %d and %d", effects(t, pool, "T1"), effects(t, pool, "T2"))
			}
		})
	}
}

// TestConflictsEnd: one that never gets through is rolled back, and says after
// how many tries.
func TestConflictsEnd(t *testing.T) {
	pool := pgtest.Shared(t).Pool(t)
	s := newStore(t, pool, postgres.Config{MaxTries: 3})
	l, runs := lease("T1", 7), 0
	_, err := postgres.Tx(t.Context(), s, l, func(ctx context.Context, tx pgx.Tx) (string, error) {
		runs++
		return "", exec(ctx, tx, "do $$ begin raise serialization_failure; end $$")
	})
	e, ok := errors.AsType[*postgres.RolledBackError](err)
	if !ok || e.Tries != 3 || runs != 3 {
		t.Errorf("%v after %d runs", err, runs)
	}
}

// TestFrozenClientLetsGo: a client that froze inside its transaction holds its
// successor up for the idle timeout, no longer.
func TestFrozenClientLetsGo(t *testing.T) {
	pool := pgtest.Shared(t).Pool(t)
	s := newStore(t, pool, postgres.Config{IdleTimeout: time.Second, MaxTries: 1})
	first := lease("T1", 7)
	second := after(first)
	_, err := postgres.Tx(t.Context(), s, first, func(ctx context.Context, tx pgx.Tx) (string, error) {
		if _, err := effect(first)(ctx, tx); err != nil {
			return "", err
		}
		// It does nothing more until its successor is done.
		got, err := postgres.Tx(t.Context(), s, second, effect(second))
		if err != nil || got != "receipt of T1" {
			t.Errorf("the successor: %q, %v", got, err)
		}
		return "receipt of a frozen one", nil
	})
	if !errors.Is(err, postgres.ErrRolledBack) || effects(t, pool, "T1") != 1 {
		t.Errorf("%v, %d effects", err, effects(t, pool, "T1"))
	}
}
