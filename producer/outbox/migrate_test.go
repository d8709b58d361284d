package outbox_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/claimq/claimq/internal/pgtest"
	"github.com/claimq/claimq/producer/outbox"
	"github.com/claimq/claimq/queue"
)

// TestMigrateFromManyProcesses: one makes the tables, the others find them.
func TestMigrateFromManyProcesses(t *testing.T) {
	pool := pgtest.Shared(t).Pool(t)
	var mu sync.Mutex
	var wg sync.WaitGroup
	applied := 0
	for range 8 {
		wg.Go(func() {
			names, err := outbox.Migrate(t.Context(), pool, "")
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			applied += len(names)
		})
	}
	wg.Wait()
	if applied != 1 {
		t.Errorf("%d migrations were applied", applied)
	}
	if _, err := outbox.Migrate(t.Context(), pool, "No"); !errors.Is(err, queue.ErrInvalidConfig) {
		t.Errorf("a bad name: %v", err)
	}
}

// TestMigrateBesideAnother that makes the same schema at the same time.
func TestMigrateBesideAnother(t *testing.T) {
	pool := pgtest.Shared(t).Pool(t)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "create schema claimq"); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := outbox.Migrate(t.Context(), pool, "")
		ended <- err
	}()
	waiting := func() (n int) {
		if err := pool.QueryRow(t.Context(), "select count(*) from pg_locks where not granted").Scan(&n); err != nil {
			t.Error(err)
		}
		return n
	}
	(&rig{t: t}).eventually("the other waits for this one", func() bool { return waiting() > 0 })
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestSQLIsWhatMigrateDoes: tables that were made from the text are those of
// Migrate, which finds nothing left to do.
func TestSQLIsWhatMigrateDoes(t *testing.T) {
	text, err := outbox.SQL("elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	pool := pgtest.Shared(t).Pool(t)
	if _, err := pool.Exec(t.Context(), text); err != nil {
		t.Fatal(err)
	}
	names, err := outbox.Migrate(t.Context(), pool, "elsewhere")
	if err != nil || len(names) != 0 {
		t.Errorf("%q, %v", names, err)
	}
	if _, err := outbox.Migrate(t.Context(), pool, "other"); err != nil {
		t.Fatal(err)
	}
	columns := func(schema string) (all string) {
		err := pool.QueryRow(t.Context(), `select string_agg(table_name || '.' || column_name || ' ' || data_type, E'\n' order by 1)
			from (select table_name, column_name, data_type from information_schema.columns where table_schema = $1 order by 1, 2) c`, schema).Scan(&all)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if a, b := columns("elsewhere"), columns("other"); a != b || !strings.Contains(a, "outbox_sent.sent_at") {
		t.Errorf("from the text:\n%s\nfrom Migrate:\n%s", a, b)
	}
}

// TestRightsThatAreNeeded are those that docs/outbox.md names: a program that
// adds cannot read, and a relay cannot change tables.
func TestRightsThatAreNeeded(t *testing.T) {
	r := newRig(t, queue.Config{})
	var db string
	if err := r.pool.QueryRow(t.Context(), "select current_database()").Scan(&db); err != nil {
		t.Fatal(err)
	}
	as := func(role string, grants ...string) *pgxpool.Pool {
		role += "_" + db
		r.exec("create role " + role + " login")
		t.Cleanup(func() {
			if _, err := r.pool.Exec(context.Background(), "drop owned by "+role+"; drop role "+role); err != nil {
				t.Error(err)
			}
		})
		for _, grant := range append(grants, "usage on schema claimq") {
			r.exec("grant " + grant + " to " + role)
		}
		conf := r.pool.Config()
		conf.ConnConfig.User = role
		return connectWith(t, conf)
	}
	adding := as("adding", "insert on claimq.outbox")
	err := pgx.BeginFunc(t.Context(), adding, func(tx pgx.Tx) error {
		return r.box.Add(t.Context(), tx, append(tasks("a", "b"), queue.Task{ID: "c", Kind: "k", Payload: make([]byte, 100)})...)
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := adding.Exec(t.Context(), "select from claimq.outbox"); err == nil {
		t.Error("who adds can read")
	}
	relaying := as("relaying", "select, insert, update, delete on claimq.outbox, claimq.outbox_sent, claimq.outbox_refused",
		"select on claimq.outbox_migrations")
	r.exec("update claimq.outbox set headers = '{\"a\": 1}' where task_id = 'c'")
	relay := r.relayOver(relaying, outbox.RelayConfig{})
	if round, err := relay.Once(t.Context()); err != nil || round.Added != 2 || round.Refused != 1 {
		t.Errorf("%+v", round)
	}
	if sum, err := relay.Resend(t.Context(), time.Hour); err != nil || sum.Duplicate != 2 {
		t.Errorf("%+v, %v", sum, err)
	}
	if n, err := outbox.RetryRefused(t.Context(), relaying, "", "q"); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := outbox.ReadStats(t.Context(), relaying, ""); err != nil {
		t.Error(err)
	}
	r.exec("update claimq.outbox_sent set sent_at = sent_at - interval '1 day'")
	r.started(relay)
	r.eventually("old rows are gone", func() bool { return r.rows("outbox_sent") == 0 })
}
