package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

func TestStartAnswersAndKeepsToItsDirectory(t *testing.T) {
	s := Start(t, "--maxmemory", "20mb")
	c := s.Client()
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	got := c.ConfigGet(t.Context(), "*").Val()
	for name, want := range map[string]string{"maxmemory": "20971520", "dir": s.Dir(), "save": "", "bind": "127.0.0.1"} {
		if got[name] != want {
			t.Errorf("%s = %q, want %q", name, got[name], want)
		}
	}
	if !strings.Contains(s.Log(), "Ready to accept connections") {
		t.Errorf("log does not tell of a start: %s", s.Log())
	}
}

func TestURLIsParsed(t *testing.T) {
	opt, err := redis.ParseURL(Shared(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	if opt.Addr != Shared(t).Addr() {
		t.Errorf("addr = %q, want %q", opt.Addr, Shared(t).Addr())
	}
}

func TestKillAndRestartKeepTheAppendOnlyFile(t *testing.T) {
	s := Start(t, "--appendonly", "yes", "--appendfsync", "always")
	c := s.Client()
	if err := c.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	pid, addr := s.PID(), s.Addr()
	s.Kill()
	if err := c.Get(t.Context(), "k").Err(); err == nil {
		t.Fatal("a killed server answered")
	}
	s.Restart()
	if s.Addr() != addr || s.PID() == pid {
		t.Errorf("after Restart: addr %s, pid %d; before: %s, %d", s.Addr(), s.PID(), addr, pid)
	}
	if got := c.Get(t.Context(), "k").Val(); got != "v" {
		t.Errorf("after Restart: %q, want the value from before", got)
	}
	s.Restart() // also of one that runs
	if got := c.Get(t.Context(), "k").Val(); got != "v" {
		t.Errorf("after the second Restart: %q", got)
	}
}

func TestStopFreezesAndContGoesOn(t *testing.T) {
	s := Start(t)
	c := s.Client(func(o *redis.Options) { o.ReadTimeout = 100 * time.Millisecond })
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	var timeout net.Error
	if err := c.Ping(t.Context()).Err(); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatalf("ping of a frozen server: %v, want a timeout", err)
	}
	s.Cont()
	patient := s.Client()
	if err := patient.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	s.Stop() // left frozen: Cleanup must end it all the same
}

func TestStartWithPassword(t *testing.T) {
	s := Start(t, "--requirepass", "secret")
	c := s.Client(func(o *redis.Options) { o.Password = "secret" })
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestSharedIsOneServer(t *testing.T) {
	a := Shared(t).PID()
	t.Run("again", func(t *testing.T) {
		if b := Shared(t).PID(); a != b {
			t.Errorf("two shared servers: %d and %d", a, b)
		}
	})
}

func TestSharedRefusesToBeKilled(t *testing.T) {
	for name, method := range map[string]func(*Server){
		"Kill": (*Server).Kill, "Restart": (*Server).Restart, "Stop": (*Server).Stop, "Cont": (*Server).Cont,
	} {
		if msg := fatalOf(t, func(tb testing.TB) { method(Shared(tb)) }); !strings.Contains(msg, name) {
			t.Errorf("%s on the shared server: %q, want a refusal", name, msg)
		}
	}
	if err := Shared(t).Client().Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestMissingServerIsFatalAndNamesTheRemedy(t *testing.T) {
	t.Setenv("CLAIMQ_REDIS_SERVER", t.TempDir()+"/redis-server")
	for _, ci := range []string{"", "true"} {
		t.Setenv("CI", ci)
		msg := fatalOf(t, func(tb testing.TB) { Start(tb) })
		if !strings.Contains(msg, "make deps") || !strings.Contains(msg, "apt-get install redis-server") {
			t.Errorf("CI=%q: %q, want the remedy", ci, msg)
		}
	}
}

func TestBadConfigurationShowsTheServersLog(t *testing.T) {
	msg := fatalOf(t, func(tb testing.TB) { Start(tb, "--no-such-option", "1") })
	if !strings.Contains(msg, "no-such-option") {
		t.Errorf("message = %q, want the server's complaint", msg)
	}
}

func TestAskTellsServersApart(t *testing.T) {
	s := Start(t)
	if err := s.p.ask(s.PID() + 1); err == nil || !strings.Contains(err.Error(), "another server") {
		t.Errorf("ask with another process ID: %v", err)
	}
}

func TestPrefixIsUniqueShortAndClean(t *testing.T) {
	valid := regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	t.Run("{odd} name: ü/"+strings.Repeat("x", 100), func(t *testing.T) {
		a, b := Prefix(t), Prefix(t)
		if a == b || !valid.MatchString(a) || !valid.MatchString(b) {
			t.Errorf("prefixes %q and %q", a, b)
		}
	})
}

func TestBothRunsOnBoth(t *testing.T) {
	var names []string
	Both(t, func(t *testing.T, b Backend) {
		names = append(names, fmt.Sprint(b.Name, b.Real))
		if err := b.Client.Set(t.Context(), Prefix(t), "v", time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
	})
	if got := strings.Join(names, " "); got != "redistrue miniredisfalse" {
		t.Errorf("ran on %q", got)
	}
}

func TestClientAndServerLeaveNoGoroutine(t *testing.T) {
	Shared(t)
	before := goleak.IgnoreCurrent()
	t.Run("used", func(t *testing.T) {
		if err := Start(t).Client().Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		goleakMustFind(t, before)
	})
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
}

// goleakMustFind shows that the check above can fail at all, and that
// IgnoreServers lets a running server pass.
func goleakMustFind(t *testing.T, opts ...goleak.Option) {
	t.Helper()
	if err := goleak.Find(append(opts, goleak.IgnoreTopFunction("none"))...); err == nil {
		t.Error("a running server's goroutine was not seen")
	}
}

func TestIgnoreServers(t *testing.T) {
	before := goleak.IgnoreCurrent()
	Start(t)
	if err := goleak.Find(before, IgnoreServers()); err != nil {
		t.Error(err)
	}
}

func TestFinishReportsALeak(t *testing.T) {
	stop := make(chan struct{})
	done := make(chan struct{})
	before := goleak.IgnoreCurrent()
	go func() { defer close(done); <-stop }()
	defer func() { close(stop); <-done }()
	// finish would stop the shared server under the other tests, so only the
	// part after it is tried here.
	if err := goleak.Find(before); err == nil {
		t.Error("a goroutine that was left was not seen")
	}
	if got := finishCode(2); got != 2 {
		t.Errorf("finish(2) = %d, want the tests' own code", got)
	}
}

// finishCode runs finish without a shared server.
func finishCode(code int) int {
	common.Lock()
	p := common.p
	common.p = nil
	common.Unlock()
	defer func() { common.Lock(); common.p = p; common.Unlock() }()
	return finish(code)
}

// fatalOf runs f with a TB that records the first Fatalf in place of failing.
func fatalOf(t *testing.T, f func(tb testing.TB)) (message string) {
	t.Helper()
	done := make(chan struct{})
	rec := &recorder{TB: t}
	go func() {
		defer close(done)
		f(rec)
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	select {
	case <-done:
	case <-ctx.Done():
		t.Fatal("no end in a minute")
	}
	return rec.message
}
