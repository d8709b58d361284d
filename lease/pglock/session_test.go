package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/claimq/claimq/internal/pgtest"
	"github.com/claimq/claimq/lease"
	"github.com/claimq/claimq/lease/pglock"
	"github.com/claimq/claimq/queue"
)

const token = lease.Token("abcdefghijklmnop")

func request(name string, length time.Duration) lease.Request {
	return lease.Request{Name: name, Token: token, Length: length}
}

func newLocker(t *testing.T, s lease.Store, cfg lease.Config) *lease.Locker {
	t.Helper()
	l, err := lease.New(s, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// What the server is told about when to take a holder for gone.
func TestKeepalives(t *testing.T) {
	p := newProcess(t, pgtest.Shared(t).DSN(t), func(c *pglock.Config) { c.NoFence = true })
	for _, length := range []time.Duration{lease.MinLength, 2500 * time.Millisecond, lease.DefaultLength, lease.MaxLength} {
		l, err := p.Acquire(t.Context(), request("n", length))
		if err != nil {
			t.Fatal(err)
		}
		setting := func(name string) time.Duration {
			t.Helper()
			var n, unit int
			text, err := p.Say(t.Context(), token, "SELECT setting || ' ' || CASE unit WHEN 's' THEN 1000 WHEN 'ms' THEN 1 ELSE 0 END FROM pg_settings WHERE name = '"+name+"'")
			if err == nil {
				_, err = fmt.Sscan(text, &n, &unit)
			}
			if err != nil {
				t.Fatal(err)
			}
			if unit == 0 {
				return time.Duration(n)
			}
			return time.Duration(n*unit) * time.Millisecond
		}
		total := setting("tcp_keepalives_idle") + setting("tcp_keepalives_count")*setting("tcp_keepalives_interval")
		if total < length || total > length+4*time.Second {
			t.Errorf("a lease of %v: taken for gone after %v", length, total)
		}
		if d := setting("tcp_user_timeout"); d != length {
			t.Errorf("a lease of %v: tcp_user_timeout is %v", length, d)
		}
		if err := p.Release(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
}

// What a pooler does to a session between two of its users takes the lock
// away, and the holder is told at its next renewal.
func TestPoolerTakesTheLock(t *testing.T) {
	p := newProcess(t, pgtest.Shared(t).DSN(t), func(c *pglock.Config) { c.NoFence = true })
	l, err := p.Acquire(t.Context(), request("n", time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Say(t.Context(), token, "SELECT pg_advisory_unlock_all()::text"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Extend(t.Context(), l); !errors.Is(err, lease.ErrLost) {
		t.Errorf("%v, want ErrLost", err)
	}
}

// A lease can be looked up at the server.
func TestSessionsAreNamed(t *testing.T) {
	dsn := pgtest.Shared(t).DSN(t)
	p := newProcess(t, dsn, func(c *pglock.Config) { c.NoFence = true })
	if _, err := p.Acquire(t.Context(), request("rates.import", time.Minute)); err != nil {
		t.Fatal(err)
	}
	var n int
	err := connect(t, dsn).QueryRow(t.Context(), `SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)
		WHERE locktype = 'advisory' AND application_name = 'claimq lease rates.import'
		AND (classid::bigint << 32) + objid::bigint = $1`, p.Key("rates.import")).Scan(&n)
	if err != nil || n != 1 {
		t.Errorf("%d sessions of that name have the lock, %v", n, err)
	}
	// A release that changes the number would let two holders in, one of each.
	if k := p.Key("rates.import"); k != 2685948308138198559 {
		t.Errorf("key %d", k)
	}
}

// A session lives no longer than the lease or the question that it is for.
func TestSessionsEnd(t *testing.T) {
	dsn := pgtest.Shared(t).DSN(t)
	look := connect(t, dsn)
	sessions := func(when string, want int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		for got := -1; got != want; { // the server takes its time to see an end
			err := look.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND application_name LIKE 'claimq lease %'`).Scan(&got)
			if err != nil {
				t.Fatalf("%s: %d sessions, want %d: %v", when, got, want, err)
			}
		}
	}
	p := newProcess(t, dsn)
	a := newLocker(t, p.Store, lease.Config{Wait: 100 * time.Millisecond})
	if _, err := a.Try(t.Context(), "n"); err == nil {
		t.Fatal("a fence from a table that is not there")
	}
	sessions("without a fence", 0)
	setUp(t, p.Store)
	held, err := a.Try(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Try(t.Context(), "n"); !errors.Is(err, lease.ErrHeld) {
		t.Error(err)
	}
	if _, err := a.Acquire(t.Context(), "n"); !errors.Is(err, lease.ErrHeld) {
		t.Error(err)
	}
	sessions("with one holder", 1)
	if err := a.Release(t.Context(), held); err != nil {
		t.Error(err)
	}
	sessions("after the release", 0)
	if _, err := a.Try(t.Context(), "n"); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	sessions("after Close", 0)
}

// Connections are bounded, and a store that is closed ends its leases.
func TestMaxSessionsAndClose(t *testing.T) {
	dsn := pgtest.Shared(t).DSN(t)
	p := newProcess(t, dsn, func(c *pglock.Config) { c.NoFence, c.MaxSessions = true, 2 })
	l := newLocker(t, p.Store, lease.Config{Wait: lease.NoWait})
	for range 3 { // what is over counts no more
		if err := l.Do(t.Context(), "a", func(context.Context, lease.Lease) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a", "b"} {
		if _, err := l.Try(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Try(t.Context(), "c"); !errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), "MaxSessions") {
		t.Errorf("a third: %v, want ErrUnavailable", err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Try(t.Context(), "a"); !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("of a closed store: %v, want ErrUnavailable", err)
	}
	other := newLocker(t, newProcess(t, dsn, func(c *pglock.Config) { c.NoFence = true }).Store, lease.Config{})
	for _, name := range []string{"a", "b"} {
		if got, err := other.Acquire(t.Context(), name); err != nil || got.Fence != 0 {
			t.Errorf("after Close: fence %d, %v", got.Fence, err)
		}
	}
}

// The table of fences is made once by many, and its absence is explained.
func TestSetup(t *testing.T) {
	dsn := pgtest.Shared(t).DSN(t)
	p := newProcess(t, dsn)
	l := newLocker(t, p.Store, lease.Config{Wait: lease.NoWait})
	if _, err := l.Try(t.Context(), "n"); err == nil || !strings.Contains(err.Error(), "Setup") {
		t.Errorf("without a table: %v", err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := p.Setup(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	first, err := l.Try(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	ahead := time.Now().Add(time.Hour).UnixMicro()
	for _, tt := range []struct {
		sql  string
		want func(queue.Fence) bool
	}{
		{"DELETE FROM claimq_lease_fences", func(f queue.Fence) bool { return f > first.Fence }},
		{fmt.Sprintf("UPDATE claimq_lease_fences SET fence = %d WHERE name = 'claimq:n'", ahead), func(f queue.Fence) bool { return f == queue.Fence(ahead+1) }},
	} {
		if _, err := connect(t, dsn).Exec(t.Context(), tt.sql); err != nil {
			t.Fatal(err)
		}
		next, err := l.Try(t.Context(), "n")
		if err != nil || !tt.want(next.Fence) {
			t.Errorf("%s: fence %d after %d, %v", tt.sql, next.Fence, first.Fence, err)
		}
		if err := l.Release(t.Context(), next); err != nil {
			t.Fatal(err)
		}
	}
}

func TestInvalidConfig(t *testing.T) {
	_, err := pglock.New(pglock.Config{Prefix: "a b", Table: "x; drop table y", MaxSessions: -1})
	for _, field := range []string{"Conn", "Prefix", "Table", "MaxSessions"} {
		if err == nil || !errors.Is(err, queue.ErrInvalidConfig) || !strings.Contains(err.Error(), ": "+field+": ") {
			t.Errorf("%s is not complained about: %v", field, err)
		}
	}
	if _, err := pglock.New(pglock.Config{Conn: &pgx.ConnConfig{}, Table: "own.fences"}); err == nil {
		t.Log("a table with its schema is accepted")
	} else {
		t.Error(err)
	}
}
