package pgtest_test

import (
	"os"
	"testing"

	"github.com/claimq/claimq/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// TestADatabaseEach: what one test writes another does not see.
func TestADatabaseEach(t *testing.T) {
	srv := pgtest.Shared(t)
	for range 2 {
		pool := srv.Pool(t)
		if _, err := pool.Exec(t.Context(), "create table x (n int)"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKilledServerKeepsWhatItCommitted, although it never waits for the disk.
func TestKilledServerKeepsWhatItCommitted(t *testing.T) {
	srv := pgtest.Start(t)
	pool := srv.Pool(t)
	if _, err := pool.Exec(t.Context(), "create table x as select generate_series(1, 100) n"); err != nil {
		t.Fatal(err)
	}
	first := srv.PID()
	srv.Kill()
	if err := pool.Ping(t.Context()); err == nil {
		t.Fatal("a killed server answers")
	}
	srv.Restart()
	pool.Reset()
	var n int
	if err := pool.QueryRow(t.Context(), "select count(*) from x").Scan(&n); err != nil || n != 100 {
		t.Errorf("%d rows, %v", n, err)
	}
	if srv.PID() == first {
		t.Error("the same process answers")
	}
	srv.Restart() // and in an orderly way
	pool.Reset()
	if err := pool.QueryRow(t.Context(), "select count(*) from x").Scan(&n); err != nil || n != 100 {
		t.Errorf("%d rows, %v", n, err)
	}
}
