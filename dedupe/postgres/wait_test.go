package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// eventually waits until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(30 * time.Second)
	defer late.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-late.C:
			t.Fatalf("not within 30s: %s", what)
		}
	}
}

// waitsForLock waits until somebody in this database waits for a lock.
func waitsForLock(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	waitsForLocks(t, pool, 1)
}

// waitsForLocks is waitsForLock for as many.
func waitsForLocks(t *testing.T, pool *pgxpool.Pool, many int) {
	t.Helper()
	eventually(t, "somebody waits for a lock", func() bool {
		var n int
		err := pool.QueryRow(context.Background(),
			"select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'").Scan(&n)
		return err == nil && n >= many
	})
}
