package pgtest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// callTimeout bounds what the helpers themselves ask of the server.
const callTimeout = 30 * time.Second

// Server is a running PostgreSQL as one test sees it. Its methods fail that
// test, so they are called from the test's own goroutine.
type Server struct {
	tb     testing.TB
	p      *process
	shared bool
}

// Start runs a server of the test's own and ends it with the test. settings
// are configuration ("max_connections=20") and win over the defaults.
func Start(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	p, err := newProcess(settings)
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("pgtest: log of postgres at %s:\n%s", p.addr(), p.log())
		}
		if err := p.close(); err != nil {
			tb.Errorf("pgtest: %v", err)
		}
	})
	return &Server{tb: tb, p: p}
}

var common struct {
	sync.Mutex
	p   *process
	err error
}

// Shared returns the server that all tests of the test binary share. It is
// started by the first call and stopped by Main, and it cannot be killed or
// restarted: that is what Start is for.
func Shared(tb testing.TB) *Server {
	tb.Helper()
	common.Lock()
	defer common.Unlock()
	if common.p == nil && common.err == nil {
		common.p, common.err = newProcess(nil)
	}
	if common.err != nil {
		tb.Fatalf("pgtest: %v", common.err)
	}
	return &Server{tb: tb, p: common.p, shared: true}
}

// stopShared ends the shared server, if there is one.
func stopShared() error {
	common.Lock()
	defer common.Unlock()
	if common.p == nil {
		return nil
	}
	p := common.p
	common.p = nil
	return p.close()
}

// Addr returns host and port; the host is an IP literal.
func (s *Server) Addr() string { return s.p.addr() }

// Log returns the end of the server's log.
func (s *Server) Log() string { return s.p.log() }

// PID returns the process ID of the server's first process, also of a server
// that was killed.
func (s *Server) PID() int { return s.p.pid() }

// databases numbers the databases of the whole test binary.
var databases atomic.Int64

// DSN makes an empty database and returns its URL. On the shared server the
// database is dropped, whoever is connected, when tb ends.
func (s *Server) DSN(tb testing.TB) string {
	tb.Helper()
	name := fmt.Sprintf("t%d", databases.Add(1))
	if err := s.admin("create database " + name); err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	if s.shared {
		tb.Cleanup(func() {
			if err := s.admin("drop database " + name + " with (force)"); err != nil {
				tb.Errorf("pgtest: %v", err)
			}
		})
	}
	return s.p.dsn(name)
}

func (s *Server) admin(sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.p.dsn("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, sql)
	return err
}

// Pool makes an empty database and returns connections to it, closed when tb
// ends. edit changes the settings of the pool first.
func (s *Server) Pool(tb testing.TB, edit ...func(*pgxpool.Config)) *pgxpool.Pool {
	tb.Helper()
	return Connect(tb, s.DSN(tb), edit...)
}

// Connect returns connections to the database at a URL, closed when tb ends.
// edit changes the settings of the pool first.
func Connect(tb testing.TB, dsn string, edit ...func(*pgxpool.Config)) *pgxpool.Pool {
	tb.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	for _, f := range edit {
		f(config)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// Kill ends all processes of the server at once (SIGKILL) and returns when
// they are gone.
func (s *Server) Kill() {
	s.tb.Helper()
	s.own("Kill")
	s.check(s.p.kill())
}

// Restart starts the server again on the same port, with the same databases,
// and returns when it answers. One that still runs is shut down first, without
// waiting for its clients (SIGINT).
func (s *Server) Restart() {
	s.tb.Helper()
	s.own("Restart")
	s.check(s.p.shutdown())
	s.check(s.p.start())
}

func (s *Server) own(method string) {
	s.tb.Helper()
	if s.shared {
		s.tb.Fatalf("pgtest: %s on the shared server would fail its other tests: use Start", method)
	}
}

func (s *Server) check(err error) {
	s.tb.Helper()
	if err != nil {
		s.tb.Fatalf("pgtest: %v", err)
	}
}
