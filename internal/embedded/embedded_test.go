package embedded

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func connect(t *testing.T, s *Server) *redis.Client {
	t.Helper()
	opt, err := redis.ParseURL(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	if opt.Addr != s.Addr() {
		t.Errorf("URL names %s, Addr %s", opt.Addr, s.Addr())
	}
	c := redis.NewClient(opt)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestStartServesAndCloseLeavesNothing(t *testing.T) {
	before := goleak.IgnoreCurrent()
	s, err := Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := connect(t, s)
	if err := c.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	// A reader that waits must not keep the server from closing.
	read := make(chan error, 1)
	go func() { read <- c.BLPop(t.Context(), 0, "none").Err() }()
	s.Close()
	s.Close()
	if err := <-read; err == nil {
		t.Error("a blocked read of a closed server succeeded")
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
}

func TestKeysExpireWithTime(t *testing.T) {
	s, err := start("127.0.0.1:0", 5*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c := connect(t, s)
	began := time.Now()
	if err := errors.Join(
		c.Set(t.Context(), "short", "v", 50*time.Millisecond).Err(),
		c.Set(t.Context(), "long", "v", time.Hour).Err(),
	); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for c.Exists(t.Context(), "short").Val() != 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("a key with 50 ms to live is there after a minute")
		}
	}
	left := c.PTTL(t.Context(), "long").Val()
	// One tick early at most, and ticks come late on a busy machine.
	if passed := time.Since(began); left > time.Hour-30*time.Millisecond || left < time.Hour-passed-time.Second {
		t.Errorf("%v left of an hour after %v", left, passed)
	}
}

func TestStartRefusesWhatOthersCanReach(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "example.com:0"} {
		if s, err := Start(addr); !errors.Is(err, ErrNotLoopback) {
			t.Errorf("Start(%q) = %v, %v", addr, s, err)
		}
	}
	if _, err := Start("127.0.0.1"); err == nil {
		t.Error("an address without a port was taken")
	}
}

func TestStartReportsATakenPort(t *testing.T) {
	s, err := Start("localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if other, err := Start(s.Addr()); err == nil {
		other.Close()
		t.Error("two servers on one port")
	}
}
