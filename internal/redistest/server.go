package redistest

import (
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Server is a running redis-server as one test sees it. Its methods fail that
// test, so they are called from the test's own goroutine.
type Server struct {
	tb     testing.TB
	p      *process
	shared bool
}

// Start runs a redis-server of the test's own and ends it with the test. args
// are configuration as on its command line ("--appendonly", "yes") and win
// over the defaults: loopback only, no snapshots, no append-only file.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return StartEnv(tb, nil, args...)
}

// StartEnv is Start with variables ("NAME=value") added to the server's
// environment: for a library to preload.
func StartEnv(tb testing.TB, env []string, args ...string) *Server {
	tb.Helper()
	p, err := newProcess(env, args)
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("redistest: log of redis-server at %s:\n%s", p.addr(), p.log())
		}
		if err := p.close(); err != nil {
			tb.Errorf("redistest: %v", err)
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
// started by the first call and stopped by Main, and it cannot be killed,
// stopped or restarted: that is what Start is for.
func Shared(tb testing.TB) *Server {
	tb.Helper()
	common.Lock()
	defer common.Unlock()
	if common.p == nil && common.err == nil {
		common.p, common.err = newProcess(nil, nil)
	}
	if common.err != nil {
		tb.Fatalf("redistest: %v", common.err)
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

// URL returns the address as redis.ParseURL takes it.
func (s *Server) URL() string { return "redis://" + s.p.addr() + "/0" }

// Dir returns the server's working directory, where its log and its
// append-only file are.
func (s *Server) Dir() string { return s.p.dir }

// PID returns the process ID, also of a server that was killed.
func (s *Server) PID() int { return s.p.pid() }

// Log returns the end of the server's log.
func (s *Server) Log() string { return s.p.log() }

// Options returns client options for this server. The client repeats nothing
// of itself: a test of a lost reply must see the loss, and a silently repeated
// command would be applied twice.
func (s *Server) Options() *redis.Options { return options(s.p.addr()) }

func options(addr string) *redis.Options {
	return &redis.Options{
		Addr:       addr,
		MaxRetries: -1,
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
	}
}

// Client returns a new client of this server, closed when the test ends. edit
// changes the options first.
func (s *Server) Client(edit ...func(*redis.Options)) *redis.Client {
	s.tb.Helper()
	return newClient(s.tb, s.Options(), edit...)
}

func newClient(tb testing.TB, opt *redis.Options, edit ...func(*redis.Options)) *redis.Client {
	for _, f := range edit {
		f(opt)
	}
	c := redis.NewClient(opt)
	// An error is of no interest: a test may have closed the client itself.
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// Kill ends the server at once (SIGKILL) and returns when it is gone.
func (s *Server) Kill() {
	s.tb.Helper()
	s.own("Kill")
	s.check(s.p.kill())
}

// Restart starts the server again on the same port and in the same directory,
// and returns when it answers. One that still runs is shut down in an orderly
// way first (SIGTERM).
func (s *Server) Restart() {
	s.tb.Helper()
	s.own("Restart")
	s.check(s.p.shutdown())
	s.check(s.p.start())
}

// Stop freezes the server (SIGSTOP): connections stay up and nothing answers.
func (s *Server) Stop() {
	s.tb.Helper()
	s.own("Stop")
	s.send(syscall.SIGSTOP)
}

// Cont lets a frozen server go on (SIGCONT).
func (s *Server) Cont() {
	s.tb.Helper()
	s.own("Cont")
	s.send(syscall.SIGCONT)
}

func (s *Server) send(sig os.Signal) {
	s.tb.Helper()
	_, err := s.p.signal(sig)
	s.check(err)
}

func (s *Server) own(method string) {
	s.tb.Helper()
	if s.shared {
		s.tb.Fatalf("redistest: %s on the shared server would fail its other tests: use Start", method)
	}
}

func (s *Server) check(err error) {
	s.tb.Helper()
	if err != nil {
		s.tb.Fatalf("redistest: %v", err)
	}
}
