package postgres_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/claimq/claimq/dedupe/postgres"
	"github.com/claimq/claimq/internal/faultredis"
	"github.com/claimq/claimq/internal/pgtest"
	"github.com/claimq/claimq/queue"
)

// atCommit is a tracer that does something when COMMIT is about to be sent, and
// after it has ended.
type atCommit struct{ before, after func() }

type committing struct{}

func (a *atCommit) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if d.SQL != "commit" {
		return ctx
	}
	if f := a.before; f != nil {
		a.before = nil // once
		f()
	}
	return context.WithValue(ctx, committing{}, true)
}

func (a *atCommit) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if f := a.after; f != nil && ctx.Value(committing{}) != nil {
		a.after = nil
		f()
	}
}

// proxied is a database behind a proxy, and beside it.
type proxied struct {
	proxy        *faultredis.Proxy
	direct, pool *pgxpool.Pool
	trace        *atCommit
}

func newProxied(t *testing.T, srv *pgtest.Server) proxied {
	t.Helper()
	dsn := srv.DSN(t)
	p := proxied{proxy: faultredis.NewProxy(t, srv.Addr()), direct: pgtest.Connect(t, dsn), trace: &atCommit{}}
	host, port, err := net.SplitHostPort(p.proxy.Addr())
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	p.pool = pgtest.Connect(t, dsn, func(c *pgxpool.Config) {
		c.ConnConfig.Host, c.ConnConfig.Port, c.ConnConfig.Tracer = host, uint16(n), p.trace
	})
	return p
}

// there reports whether the effect of T1 can be seen.
func (p proxied) there(t *testing.T) bool { return effects(t, p.direct, "T1") > 0 }

// TestCutAroundCommit: the connection breaks before COMMIT arrives, while the
// server works on it, and before its answer arrives. Store finds out what
// became of it, and the effect is there once.
func TestCutAroundCommit(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(t *testing.T, p proxied)
		runs int // of the function
	}{
		{"before", func(_ *testing.T, p proxied) { p.proxy.Cut() }, 2},
		{"on the way", func(_ *testing.T, p proxied) {
			p.proxy.BlackholeRequests() // sent, and never arrives
			p.trace.after = p.proxy.Heal
			time.AfterFunc(50*time.Millisecond, p.proxy.Cut)
		}, 2},
		{"after", func(t *testing.T, p proxied) {
			p.proxy.BlackholeReplies() // applied, and nobody is told
			p.trace.after = p.proxy.Heal
			go func() {
				eventually(t, "it is committed", func() bool { return p.there(t) })
				p.proxy.Cut()
			}()
		}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newProxied(t, pgtest.Shared(t))
			s := newStore(t, p.pool, postgres.Config{})
			p.trace.before = func() { c.do(t, p) }
			l, runs := lease("T1", 7), 0
			got, err := postgres.Tx(t.Context(), s, l, func(ctx context.Context, tx pgx.Tx) (string, error) {
				runs++
				return effect(l)(ctx, tx)
			})
			if err != nil || got != "receipt of T1" || runs != c.runs {
				t.Errorf("%q, %v after %d runs, want %d", got, err, runs, c.runs)
			}
			if n := effects(t, p.direct, "T1"); n != 1 {
				t.Errorf("%d effects", n)
			}
		})
	}
}

// slowCommit makes commits wait for an advisory lock, and then succeed or fail.
func slowCommit(t *testing.T, p proxied, fails bool) (release func()) {
	t.Helper()
	then := "return null;"
	if fails {
		then = "raise exception 'refused late';"
	}
	// The client asks the server to cancel when its connection breaks, once or more
	// often, which may or may not come in time: here it does not.
	must(t, p.direct, `create function wait() returns trigger language plpgsql as $$ begin
		loop
			begin
				perform pg_advisory_xact_lock(42);
				exit;
			exception when query_canceled then null;
			end;
		end loop;
		`+then+` end $$`)
	must(t, p.direct, "create constraint trigger slow after insert on effects deferrable initially deferred for each row execute function wait()")
	conn, err := p.direct.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "select pg_advisory_lock(42)"); err != nil {
		t.Fatal(err)
	}
	release = sync.OnceFunc(func() {
		if _, err := conn.Exec(context.Background(), "select pg_advisory_unlock(42)"); err != nil {
			t.Error(err)
		}
		conn.Release()
	})
	t.Cleanup(release)
	return release
}

// TestCommitStillRunning: the connection breaks while the server works on the
// commit. A transaction that cannot be seen yet is not one that has failed:
// Store waits for it.
func TestCommitStillRunning(t *testing.T) {
	for _, fails := range []bool{false, true} {
		p := newProxied(t, pgtest.Shared(t))
		s := newStore(t, p.pool, postgres.Config{MaxTries: 1})
		release := slowCommit(t, p, fails)
		p.trace.before = func() {
			p.trace.after = func() { // the client knows that the connection is gone
				go func() {
					waitsForLocks(t, p.direct, 2) // the commit, and the one who looks for it
					release()
				}()
			}
			go func() {
				waitsForLocks(t, p.direct, 1)
				p.proxy.Cut()
			}()
		}
		l := lease("T1", 7)
		got, err := postgres.Tx(t.Context(), s, l, effect(l))
		switch {
		case !fails && (err != nil || got != "receipt of T1" || !p.there(t)):
			t.Errorf("it was committed: %q, %v", got, err)
		case fails && (!errors.Is(err, postgres.ErrRolledBack) || p.there(t)):
			t.Errorf("it was rolled back: %q, %v", got, err)
		}
	}
}

// TestOutcomeUnknown: nobody can be asked what became of the commit, so nobody
// says. The next attempt finds out.
func TestOutcomeUnknown(t *testing.T) {
	t.Parallel()
	p := newProxied(t, pgtest.Shared(t))
	var e ended
	s := newStore(t, p.pool, postgres.Config{Ended: e.add})
	ctx, cancel := context.WithCancel(t.Context())
	p.trace.before = func() {
		p.proxy.BlackholeReplies()
		go func() {
			eventually(t, "it is committed", func() bool { return p.there(t) })
			p.proxy.Refuse()
			p.proxy.Cut()
			cancel()
		}()
	}
	l := lease("T1", 7)
	_, err := postgres.Tx(ctx, s, l, effect(l))
	if !errors.Is(err, queue.ErrIndefinite) || errors.Is(err, postgres.ErrRolledBack) || e.count(postgres.Unknown) != 1 {
		t.Errorf("%v, %v", err, e.list)
	}
	p.proxy.Heal()
	l = after(l)
	if got, err := postgres.Tx(t.Context(), s, l, effect(l)); err != nil || got != "receipt of T1" || e.count(postgres.Done) != 1 {
		t.Errorf("the next attempt: %q, %v, %v", got, err, e.list)
	}
	if n := effects(t, p.direct, "T1"); n != 1 {
		t.Errorf("%d effects", n)
	}
}

// TestServerKilled inside the transaction, and at its commit.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	srv := pgtest.Start(t)
	p := newProxied(t, srv)
	s := newStore(t, p.pool, postgres.Config{MaxTries: 20})
	restart := func() {
		srv.Kill()
		srv.Restart()
		p.direct.Reset()
	}
	inside, l := 0, lease("T1", 7)
	if _, err := postgres.Tx(t.Context(), s, l, func(ctx context.Context, tx pgx.Tx) (string, error) {
		got, err := effect(l)(ctx, tx)
		if inside++; inside == 1 {
			restart()
		}
		return got, err
	}); err != nil || inside != 2 {
		t.Errorf("killed inside: %v after %d runs", err, inside)
	}
	p.trace.before = restart
	l = lease("T2", 7)
	if _, err := postgres.Tx(t.Context(), s, l, effect(l)); err != nil {
		t.Errorf("killed before the commit: %v", err)
	}
	p.trace.before = func() {
		p.proxy.BlackholeReplies()
		p.trace.after = p.proxy.Heal
		go func() {
			eventually(t, "it is committed", func() bool { return effects(t, p.direct, "T3") > 0 })
			p.proxy.Cut()
		}()
	}
	l = lease("T3", 7)
	if got, err := postgres.Tx(t.Context(), s, l, effect(l)); err != nil || !strings.Contains(got, "T3") {
		t.Errorf("answer lost: %q, %v", got, err)
	}
	restart()
	for _, id := range []string{"T1", "T2", "T3"} {
		if n := effects(t, p.direct, id); n != 1 {
			t.Errorf("%s: %d effects", id, n)
		}
	}
}

// TestLedgerErrorsSayWhatChanged: a question whose connection broke may have been
// applied, and asked again it has the same answer; one that did not get out was not.
func TestLedgerErrorsSayWhatChanged(t *testing.T) {
	p := newProxied(t, pgtest.Shared(t))
	s := newStore(t, p.pool, postgres.Config{})
	l, g := lease("T1", 7), s.Ledger("billing")
	p.trace.before = func() {
		p.proxy.BlackholeReplies()
		p.trace.after = p.proxy.Heal
		go func() {
			eventually(t, "the intent is on record", func() bool {
				var n int
				err := p.direct.QueryRow(context.Background(), "select count(*) from claimq.steps").Scan(&n)
				return err == nil && n == 1
			})
			p.proxy.Cut()
		}()
	}
	call := g.NewCall()
	if _, err := g.Intend(t.Context(), l, "charge", "key", call); !errors.Is(err, queue.ErrIndefinite) || !queue.IsRetryable(err) {
		t.Errorf("reply lost: %v", err)
	}
	if before, err := g.Intend(t.Context(), l, "charge", "key", call); err != nil || before.State != "" {
		t.Errorf("asked again: %+v, %v", before, err)
	}
	p.proxy.Refuse()
	p.proxy.Cut()
	if _, err := g.Intend(t.Context(), l, "charge", "key", call); !errors.Is(err, queue.ErrUnavailable) || errors.Is(err, queue.ErrIndefinite) {
		t.Errorf("server away: %v", err)
	}
}
