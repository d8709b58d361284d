package pglock_test

import (
	"bytes"
	"context"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/claimq/claimq/internal/pgtest"
	"github.com/claimq/claimq/lease"
	"github.com/claimq/claimq/lease/internal/leasetest"
	"github.com/claimq/claimq/lease/pglock"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// process is a store and the connections that it has opened, so that a test can
// end it as the operating system does.
type process struct {
	*pglock.Store
	mu    sync.Mutex
	conns []net.Conn
	at    string // before the statement with this text is sent …
	cut   func() // … this is done, once
}

// cutAt breaks something when a statement is sent.
func (p *process) cutAt(text string, cut func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at, p.cut = text, cut
}

// wire is a connection of a process.
type wire struct {
	net.Conn
	p *process
}

func (w wire) Write(b []byte) (int, error) {
	w.p.mu.Lock()
	cut := w.p.cut
	if cut == nil || !bytes.Contains(b, []byte(w.p.at)) {
		cut = func() {}
	} else {
		w.p.cut = nil
	}
	w.p.mu.Unlock()
	cut()
	return w.Conn.Write(b)
}

func (p *process) crash() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close() // it may be closed already
	}
}

func newProcess(t *testing.T, dsn string, edit ...func(*pglock.Config)) *process {
	t.Helper()
	conn, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{}
	dial := conn.DialFunc
	conn.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.conns = append(p.conns, c)
		return wire{c, p}, nil
	}
	cfg := pglock.Config{Conn: conn}
	for _, f := range edit {
		f(&cfg)
	}
	if p.Store, err = pglock.New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// terminate ends every session that has a lock on a key, as an operator does,
// and returns when the locks are free.
func terminate(t *testing.T, look *pgx.Conn, key int64) {
	_, err := look.Exec(t.Context(), `SELECT pg_terminate_backend(pid, 10000) FROM pg_locks
		WHERE locktype = 'advisory' AND granted AND objsubid = 1
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND (classid::bigint << 32) + objid::bigint = $1`, key)
	if err != nil {
		t.Error(err)
	}
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return c
}

func setUp(t *testing.T, s *pglock.Store) {
	t.Helper()
	if err := s.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestSuite(t *testing.T) {
	leasetest.Run(t, func(t *testing.T) leasetest.Subject {
		dsn := pgtest.Shared(t).DSN(t)
		look := connect(t, dsn)
		key := newProcess(t, dsn)
		setUp(t, key.Store)
		processes := map[lease.Store]*process{}
		var mu sync.Mutex // the history ends leases from several goroutines
		return leasetest.Subject{
			Promises: leasetest.Promises{Fenced: true, ErrHeldProves: true, AcquireAgain: true, CrashFrees: time.Second},
			Open: func() lease.Store {
				p := newProcess(t, dsn)
				processes[p.Store] = p
				return p.Store
			},
			Crash: func(s lease.Store) { processes[s].crash() },
			End: func(name string) {
				mu.Lock()
				defer mu.Unlock()
				terminate(t, look, key.Key(name))
			},
		}
	})
}
