package redislease_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/lease"
	"github.com/claimq/claimq/lease/redislease"
	"github.com/claimq/claimq/queue"
)

// The fence grows when the key was lost, and when the clock is behind it.
func TestFenceSurvives(t *testing.T) {
	r := newRig(t)
	first := r.acquire(t, request("n"))
	if err := r.look.Del(t.Context(), r.Key("n")).Err(); err != nil {
		t.Fatal(err)
	}
	second := r.acquire(t, request("n"))
	if second.Fence <= first.Fence {
		t.Errorf("fence %d after %d and a lost key", second.Fence, first.Fence)
	}
	ahead := uint64(time.Now().Add(time.Hour).UnixMicro())
	if err := r.look.HSet(t.Context(), r.Key("n"), "fence", ahead, "ends", 1).Err(); err != nil {
		t.Fatal(err)
	}
	if third := r.acquire(t, request("n")); third.Fence != queue.Fence(ahead+1) {
		t.Errorf("fence %d, want %d", third.Fence, ahead+1)
	}
	if err := r.look.HSet(t.Context(), r.Key("n"), "fence", "9007199254740991", "ends", 1).Err(); err != nil {
		t.Fatal(err)
	}
	if l, err := r.Acquire(t.Context(), request("n")); !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("fence %d, %v, where two would be one", l.Fence, err)
	}
}

// A clock that is stepped back leaves nobody waiting for the time it showed.
func TestClockSteppedBack(t *testing.T) {
	r := newRig(t)
	l := r.acquire(t, request("n"))
	future := time.Now().Add(24 * time.Hour).UnixMilli()
	if err := r.look.HSet(t.Context(), r.Key("n"), "ends", future).Err(); err != nil {
		t.Fatal(err)
	}
	other := lease.Request{Name: "n", Token: "somebody-else-00", Length: time.Hour}
	for range 2 { // the second must not put it off
		if _, err := r.Acquire(t.Context(), other); !errors.Is(err, lease.ErrHeld) {
			t.Fatalf("somebody else: %v, want ErrHeld", err)
		}
		ends, err := strconv.ParseInt(r.field(t, "n", "ends"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if ends >= future || time.Until(time.UnixMilli(ends)) > l.Length {
			t.Errorf("it lasts for another %v, it was asked for %v", time.Until(time.UnixMilli(ends)), l.Length)
		}
		future = ends + 1
	}
	if err := r.Release(t.Context(), l); err != nil {
		t.Error(err)
	}
}

// A key goes when it has been of no use for long, and not before.
func TestKeysExpire(t *testing.T) {
	r := newRig(t)
	left := func() time.Duration {
		t.Helper()
		d, err := r.look.PTTL(t.Context(), r.Key("n")).Result()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	want := func(when string, at least) {
		t.Helper()
		if d := left(); d < time.Duration(at)-10*time.Second || d > time.Duration(at) {
			t.Errorf("%s: %v left, want %v", when, d, time.Duration(at))
		}
	}
	l := r.acquire(t, request("n"))
	want("held", least(redislease.DefaultKeep+l.Length))
	if _, err := r.Extend(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	want("extended", least(redislease.DefaultKeep+l.Length))
	if err := r.Release(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	want("released", least(redislease.DefaultKeep+l.Length))
	if err := r.look.Del(t.Context(), r.Key("n")).Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.Release(t.Context(), l); !errors.Is(err, lease.ErrLost) {
		t.Error(err)
	}
	want("a trace alone", least(redislease.DefaultKeep))
}

type least time.Duration

// A full server grants nothing, but keeps and ends what it has granted.
func TestFullServer(t *testing.T) {
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	c := server.Client()
	s := open(t, c, "full")
	l, err := s.Acquire(t.Context(), request("n"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Acquire(t.Context(), request("m")); !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("acquire: %v, want ErrUnavailable", err)
	}
	if l, err = s.Extend(t.Context(), l); err != nil {
		t.Errorf("extend: %v", err)
	}
	if err := s.Release(t.Context(), l); err != nil {
		t.Errorf("release: %v", err)
	}
}

// A server that restarts with its log knows the leases.
func TestRestart(t *testing.T) {
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	s := open(t, server.Client(), "restart")
	l, err := s.Acquire(t.Context(), request("n"))
	if err != nil {
		t.Fatal(err)
	}
	server.Kill()
	if _, err := s.Extend(t.Context(), l); !errors.Is(err, lease.ErrUnavailable) && !errors.Is(err, lease.ErrIndefinite) {
		t.Errorf("extend while the server is down: %v", err)
	}
	server.Restart()
	other := open(t, server.Client(), "restart")
	_, err = other.Acquire(t.Context(), lease.Request{Name: "n", Token: "somebody-else-00", Length: time.Minute})
	if !errors.Is(err, lease.ErrHeld) {
		t.Errorf("somebody else, after the restart: %v, want ErrHeld", err)
	}
	if err := s.Release(t.Context(), l); err != nil {
		t.Error(err)
	}
}

// What is trusted is less than what the server grants, by its own clock.
func TestTrustIsShorter(t *testing.T) {
	r := newRig(t)
	for range 20 {
		l := r.acquire(t, request("n"))
		ends, err := strconv.ParseInt(r.field(t, "n", "ends"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		// Both clocks are this machine's; the server rounds down to milliseconds.
		if spare := time.UnixMilli(ends).Sub(l.TrustedUntil); spare < queue.Margin(l.Length)-time.Millisecond {
			t.Errorf("trusted until %v before the end, want %v at least", spare, queue.Margin(l.Length))
		}
	}
}

func TestInvalidConfig(t *testing.T) {
	_, err := redislease.New(redislease.Config{Prefix: "a b", Keep: time.Second})
	for _, field := range []string{"Client", "Prefix", "Keep"} {
		if err == nil || !errors.Is(err, queue.ErrInvalidConfig) || !strings.Contains(err.Error(), ": "+field+": ") {
			t.Errorf("%s is not complained about: %v", field, err)
		}
	}
}
