package quorum_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/internal/faultredis"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/lease"
	"github.com/claimq/claimq/lease/quorum"
	"github.com/claimq/claimq/queue"
)

func request(name string, token lease.Token) lease.Request {
	return lease.Request{Name: name, Token: token, Length: 5 * time.Second}
}

const (
	mine   = lease.Token("mine-mine-mine-m")
	theirs = lease.Token("theirs-theirs-th")
)

// verbs acquires, extends and releases, while somebody else is refused.
func verbs(t *testing.T, a, b *quorum.Store, name string) {
	t.Helper()
	l, err := a.Acquire(t.Context(), request(name, mine))
	if err != nil {
		t.Fatalf("acquire: %v", err)
	}
	if _, err := b.Acquire(t.Context(), request(name, theirs)); !errors.Is(err, lease.ErrHeld) {
		t.Errorf("somebody else: %v, want ErrHeld", err)
	}
	if l, err = a.Extend(t.Context(), l); err != nil || !l.Trusted(time.Now()) {
		t.Errorf("extend: %v", err)
	}
	if err := a.Release(t.Context(), l); err != nil {
		t.Errorf("release: %v", err)
	}
}

// A minority that is gone, hangs or has lost its memory changes nothing.
func TestMinority(t *testing.T) {
	servers := start(t)
	a, _ := servers.open(t, "q")
	b, _ := servers.open(t, "q")
	verbs(t, a, b, "all")

	servers[1].Stop()
	began := time.Now()
	verbs(t, a, b, "one-hangs")
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("took %v with one server that hangs", took)
	}
	servers[1].Cont()

	l, err := a.Acquire(t.Context(), request("forgotten", mine))
	if err != nil {
		t.Fatal(err)
	}
	servers[1].Kill()
	servers[1].Restart() // it keeps nothing
	if _, err := b.Acquire(t.Context(), request("forgotten", theirs)); !errors.Is(err, lease.ErrHeld) {
		t.Errorf("somebody else, with one server that forgot: %v, want ErrHeld", err)
	}
	if err := a.Release(t.Context(), l); err != nil {
		t.Errorf("release: %v", err)
	}

	servers[1].Kill()
	verbs(t, a, b, "one-gone")
}

// Without a majority nobody is given anything, and nobody is told of a loss
// that is none.
func TestMajority(t *testing.T) {
	servers := start(t)
	a, _ := servers.open(t, "q")
	l, err := a.Acquire(t.Context(), request("n", mine))
	if err != nil {
		t.Fatal(err)
	}
	servers[0].Kill()
	servers[1].Kill()
	if _, err := a.Acquire(t.Context(), request("m", mine)); !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("acquire: %v, want ErrUnavailable", err)
	}
	if _, err := a.Extend(t.Context(), l); !errors.Is(err, lease.ErrIndefinite) {
		t.Errorf("extend: %v, want ErrIndefinite", err)
	}
	if err := a.Release(t.Context(), l); !errors.Is(err, lease.ErrIndefinite) {
		t.Errorf("release: %v, want ErrIndefinite", err)
	}
}

// Both versions of a failure at one server, and at a majority of them.
func TestTwoVersions(t *testing.T) {
	servers := start(t)
	for name, fault := range map[string]func(faultredis.Match) faultredis.Fault{
		"not-applied": faultredis.FailBefore, "reply-lost": faultredis.LoseReply,
	} {
		t.Run(name, func(t *testing.T) {
			a, hooks := servers.open(t, "q")
			b, _ := servers.open(t, "q")
			hooks[0].Inject(fault(nil))
			verbs(t, a, b, name)
			hooks[0].Clear()

			acquire := fault(faultredis.Command("set", "setnx"))
			hooks[0].Inject(acquire)
			hooks[1].Inject(acquire)
			if _, err := a.Acquire(t.Context(), request(name, mine)); !errors.Is(err, lease.ErrUnavailable) {
				t.Errorf("acquire: %v, want ErrUnavailable", err)
			}
			if left := servers.keys(t, a.Key(name)); !slices.Equal(left, []string{"", "", ""}) {
				t.Errorf("left behind: %q", left)
			}
			hooks[0].Clear()
			hooks[1].Clear()

			l, err := a.Acquire(t.Context(), request(name, mine))
			if err != nil {
				t.Fatal(err)
			}
			hooks[0].Inject(fault(nil))
			hooks[1].Inject(fault(nil))
			if again, err := a.Extend(t.Context(), l); !errors.Is(err, lease.ErrIndefinite) || again.TrustedUntil != l.TrustedUntil {
				t.Errorf("extend: %v, want ErrIndefinite and the same trust", err)
			}
			hooks[0].Clear()
			hooks[1].Clear()
			if l, err = a.Extend(t.Context(), l); err != nil {
				t.Errorf("extend, asked again: %v", err)
			}
			hooks[0].Inject(fault(nil))
			hooks[1].Inject(fault(nil))
			if err := a.Release(t.Context(), l); !errors.Is(err, lease.ErrIndefinite) {
				t.Errorf("release: %v, want ErrIndefinite", err)
			}
			hooks[0].Clear()
			hooks[1].Clear()
			_ = a.Release(t.Context(), l) // as the documents say, it may be answered as lost
			verbs(t, a, b, name)
		})
	}
}

// Nobody has a majority: all are told that it is held, and nobody holds it.
func TestSplitVote(t *testing.T) {
	servers := start(t)
	a, _ := servers.open(t, "q")
	for i, token := range []string{"x", "y", "z"} {
		if err := servers[i].Client().Set(t.Context(), a.Key("n"), token, 2*time.Second).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.Acquire(t.Context(), request("n", mine)); !errors.Is(err, lease.ErrHeld) {
		t.Errorf("%v, want ErrHeld", err)
	}
	locker, err := lease.New(a, lease.Config{Length: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := locker.Acquire(t.Context(), "n"); err != nil {
		t.Errorf("when what the others left has ended: %v", err)
	}
}

// Drift counts where it is more than the margin.
func TestTrustCountsDrift(t *testing.T) {
	servers := start(t)
	a, _ := servers.open(t, "q")
	r := lease.Request{Name: "n", Token: mine, Length: time.Hour}
	before := time.Now()
	l, err := a.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if most := before.Add(time.Hour - 36*time.Second).Add(time.Second); l.TrustedUntil.After(most) {
		t.Errorf("trusted for %v of an hour, a hundredth of it is drift", l.TrustedUntil.Sub(before))
	}
}

func TestInvalidConfig(t *testing.T) {
	server := redistest.Shared(t)
	_, err := quorum.New(quorum.Config{Prefix: "a b", Clients: []*redis.Client{
		server.Client(heeding),
		server.Client(func(o *redis.Options) { o.Addr = "127.0.0.1:2"; o.MaxRetries = 3 }),
		server.Client(heeding), nil,
	}})
	for _, what := range []string{"Clients: give an odd number", "Clients[1]: set ContextTimeoutEnabled", "Clients[1]: set MaxRetries",
		"Clients[2]: name each server once", "Clients[3]: give a", "Prefix: use"} {
		if err == nil || !errors.Is(err, queue.ErrInvalidConfig) || !strings.Contains(err.Error(), what) {
			t.Errorf("%q is not complained about: %v", what, err)
		}
	}
}
