package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/claimq/claimq/dedupe/postgres"
	"github.com/claimq/claimq/internal/pgtest"
	"github.com/claimq/claimq/queue"
)

// settle has the effects of many tasks in one statement.
func settle(ctx context.Context, tx pgx.Tx, fresh []queue.Lease) ([][]byte, error) {
	var ids []string
	var results [][]byte
	for _, l := range fresh {
		ids, results = append(ids, string(l.TaskID)), append(results, []byte("receipt of "+l.TaskID))
	}
	return results, exec(ctx, tx, "insert into effects select unnest($1::text[]), 0", ids)
}

// TestBatchWithDuplicates: tasks that are done, that a later lease has been
// here for, and that are named twice neither fail the others nor lose one.
func TestBatchWithDuplicates(t *testing.T) {
	pool := pgtest.Shared(t).Pool(t)
	s := newStore(t, pool, postgres.Config{})
	done, taken, newer := lease("done", 5), lease("taken", 5), lease("taken", 9)
	if _, err := postgres.Tx(t.Context(), s, done, effect(done)); err != nil {
		t.Fatal(err)
	}
	if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return s.Hold(t.Context(), tx, newer) }); err != nil {
		t.Fatal(err)
	}
	leases := []queue.Lease{lease("new-2", 7), done, lease("twice", 7), taken, lease("twice", 8), lease("new-1", 7), lease("twice", 8)}
	var fresh []queue.Lease
	ends, err := postgres.TxMany(t.Context(), s, leases, func(ctx context.Context, tx pgx.Tx, f []queue.Lease) ([][]byte, error) {
		fresh = f
		return settle(ctx, tx, f)
	})
	if err != nil || len(ends) != len(leases) {
		t.Fatalf("%d ends, %v", len(ends), err)
	}
	want := []postgres.Outcome{postgres.Committed, postgres.Done, postgres.Committed, postgres.Fenced, postgres.Committed, postgres.Committed, postgres.Committed}
	for i, e := range ends {
		if e.Outcome != want[i] || e.Lease.TaskID != leases[i].TaskID || (e.Err == nil) != (want[i] != postgres.Fenced) {
			t.Errorf("%d: %+v, want %s", i, e, want[i])
		}
		if e.Err == nil && string(e.Result) != "receipt of "+string(e.Lease.TaskID) {
			t.Errorf("%d: result %q", i, e.Result)
		}
	}
	if len(fresh) != 3 || fresh[1].Fence != 8 {
		t.Errorf("fresh: %+v", fresh)
	}
	for id, n := range map[string]int{"new-1": 1, "new-2": 1, "twice": 1, "done": 1, "taken": 0} {
		if got := effects(t, pool, id); got != n {
			t.Errorf("%s: %d effects, want %d", id, got, n)
		}
	}
	// What fails concerns the fresh ones only.
	boom := errors.New("boom")
	ends, err = postgres.TxMany(t.Context(), s, []queue.Lease{done, lease("new-3", 7)}, func(context.Context, pgx.Tx, []queue.Lease) ([][]byte, error) { return nil, boom })
	if err != nil || ends[0].Outcome != postgres.Done || ends[1].Outcome != postgres.RolledBack || !errors.Is(ends[1].Err, boom) {
		t.Errorf("%+v, %v", ends, err)
	}
	ends, err = postgres.TxMany(t.Context(), s, []queue.Lease{done, done}, func(context.Context, pgx.Tx, []queue.Lease) ([][]byte, error) {
		t.Error("nothing is fresh")
		return nil, nil
	})
	if err != nil || ends[0].Outcome != postgres.Done || ends[1].Outcome != postgres.Done {
		t.Errorf("%+v, %v", ends, err)
	}
	// A server that cannot be asked any more has still said what is done.
	ends, err = postgres.TxMany(t.Context(), s, []queue.Lease{done, lease("new-4", 7)}, func(ctx context.Context, tx pgx.Tx, _ []queue.Lease) ([][]byte, error) {
		go pool.Close()
		eventually(t, "the pool is closed", func() bool { return pool.Ping(ctx) != nil })
		return nil, exec(ctx, tx, "do $$ begin raise serialization_failure; end $$")
	})
	if err != nil || ends[0].Outcome != postgres.Done || ends[1].Outcome != postgres.RolledBack {
		t.Errorf("%+v, %v", ends, err)
	}
	if _, err := postgres.TxMany(t.Context(), s, make([]queue.Lease, postgres.MaxBatch+1), nil); !errors.Is(err, queue.ErrInvalidTask) {
		t.Errorf("too many: %v", err)
	}
}

// TestBatchesOverlap: workers that settle the same tasks in any order, at the
// same time, have each effect once, and every lease gets an end.
func TestBatchesOverlap(t *testing.T) {
	const workers, tasks, rounds = 4, 40, 5
	pool := pgtest.Shared(t).Pool(t)
	s := newStore(t, pool, postgres.Config{})
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(w)))
			for round := range rounds {
				var leases []queue.Lease
				for _, n := range random.Perm(tasks) {
					leases = append(leases, lease(fmt.Sprintf("T%d-%d", round, n), 7))
				}
				ends, err := postgres.TxMany(t.Context(), s, leases[:tasks*3/4], settle)
				if err != nil {
					t.Error(err)
				}
				for _, e := range ends {
					if e.Outcome != postgres.Committed && e.Outcome != postgres.Done {
						t.Errorf("%+v", e)
					}
				}
			}
		})
	}
	wg.Wait()
	var most, all int
	if err := pool.QueryRow(t.Context(), "select max(n), count(*) from (select count(*) n from effects group by task) x").Scan(&most, &all); err != nil || most != 1 || all == 0 {
		t.Errorf("at most %d effects of %d tasks, %v", most, all, err)
	}
}
