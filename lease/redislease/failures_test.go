package redislease_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/internal/faultredis"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/lease"
	"github.com/claimq/claimq/lease/redislease"
)

const token = lease.Token("abcdefghijklmnop")

func request(name string) lease.Request {
	return lease.Request{Name: name, Token: token, Length: time.Minute}
}

// rig is a store whose calls a test can break, and a client to look with.
type rig struct {
	*redislease.Store
	hook *faultredis.Hook
	look *redis.Client
}

func newRig(t *testing.T) rig {
	t.Helper()
	server := redistest.Shared(t)
	c := server.Client()
	return rig{Store: open(t, c, redistest.Prefix(t)), hook: faultredis.New(c), look: server.Client()}
}

func (r rig) acquire(t *testing.T, req lease.Request) lease.Lease {
	t.Helper()
	l, err := r.Acquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (r rig) field(t *testing.T, name, field string) string {
	t.Helper()
	v, err := r.look.HGet(t.Context(), r.Key(name), field).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	return v
}

// TestTwoVersions breaks every verb before and after it was applied, asks again
// with the same token, and wants the answer that the first call would have had.
func TestTwoVersions(t *testing.T) {
	for name, fault := range map[string]func(faultredis.Match) faultredis.Fault{
		"not applied": faultredis.FailBefore, "reply lost": faultredis.LoseReply,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			// Once each, so that the server knows the scripts: a fault is for one
			// command, and a script it does not know takes two.
			first := r.acquire(t, request("first"))
			if _, err := r.Extend(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			if err := r.Release(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			fail := func(verb string, call func() error) {
				t.Helper()
				r.hook.Inject(fault(nil).Once())
				if err := call(); !errors.Is(err, lease.ErrIndefinite) {
					t.Errorf("%s: %v, want ErrIndefinite", verb, err)
				}
				if err := call(); err != nil {
					t.Errorf("%s, asked again: %v", verb, err)
				}
			}
			var l lease.Lease
			fail("acquire", func() (err error) { l, err = r.Acquire(t.Context(), request("n")); return err })
			if f := r.field(t, "n", "fence"); l.Fence == 0 || f == "" {
				t.Errorf("fence %d, on the server %q", l.Fence, f)
			}
			fence := r.field(t, "n", "fence")
			if _, err := r.Acquire(t.Context(), request("n")); err != nil || r.field(t, "n", "fence") != fence {
				t.Errorf("the fence went from %s to %s with the same token: %v", fence, r.field(t, "n", "fence"), err)
			}
			fail("extend", func() error { _, err := r.Extend(t.Context(), l); return err })
			fail("release", func() error { return r.Release(t.Context(), l) })
			if holder := r.field(t, "n", "token"); holder != "" {
				t.Errorf("held by %s after the release", holder)
			}
		})
	}
}

// A refusal by the server changes nothing, and says so.
func TestRefusals(t *testing.T) {
	r := newRig(t)
	l := r.acquire(t, request("n"))
	for name, fault := range map[string]faultredis.Fault{
		"an error":      faultredis.ReplyError(nil, "LOADING Redis is loading the dataset in memory"),
		"no connection": faultredis.FailBefore(nil).With(faultredis.ErrRefused),
	} {
		for verb, call := range map[string]func() error{
			"acquire": func() error { _, err := r.Acquire(t.Context(), request("m")); return err },
			"extend":  func() error { _, err := r.Extend(t.Context(), l); return err },
			"release": func() error { return r.Release(t.Context(), l) },
		} {
			f := r.hook.Inject(fault)
			if err := call(); !errors.Is(err, lease.ErrUnavailable) {
				t.Errorf("%s, %s: %v, want ErrUnavailable", verb, name, err)
			}
			f.Remove()
		}
	}
	if err := r.Release(t.Context(), l); err != nil {
		t.Errorf("after refusals: %v", err)
	}
}

// What a client that repeats commands reports says nothing of what its first
// attempt did.
func TestRepeatingClient(t *testing.T) {
	c := redistest.Shared(t).Client(func(o *redis.Options) { o.MaxRetries = 2 })
	hook := faultredis.New(c)
	s := open(t, c, redistest.Prefix(t))
	hook.Inject(faultredis.FailBefore(nil).With(faultredis.ErrRefused).Once())
	if _, err := s.Acquire(t.Context(), request("n")); !errors.Is(err, lease.ErrIndefinite) {
		t.Errorf("no connection: %v, want ErrIndefinite", err)
	}
	hook.Inject(faultredis.ReplyError(nil, "OOM command not allowed").Once())
	if _, err := s.Acquire(t.Context(), request("n")); !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("full: %v, want ErrUnavailable", err)
	}
}

// A release is answered the same again, for a holder and for one that was
// replaced, also when others were there in between.
func TestReleaseIsRemembered(t *testing.T) {
	r := newRig(t)
	late := r.acquire(t, lease.Request{Name: "n", Token: "late-late-late-l", Length: time.Minute})
	expire(t, r.look, r.Key("n"))
	l := r.acquire(t, request("n"))
	if err := r.Release(t.Context(), late); !errors.Is(err, lease.ErrLost) {
		t.Errorf("late: %v, want ErrLost", err)
	}
	if err := r.Release(t.Context(), l); err != nil {
		t.Error(err)
	}
	for n := range 10 {
		other := r.acquire(t, lease.Request{Name: "n", Token: lease.Token("other-other-oth" + string(rune('a'+n))), Length: time.Minute})
		if err := r.Release(t.Context(), other); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Release(t.Context(), l); err != nil {
		t.Errorf("again: %v", err)
	}
	if err := r.Release(t.Context(), late); !errors.Is(err, lease.ErrLost) {
		t.Errorf("late, again: %v, want ErrLost", err)
	}
	if n := len(r.field(t, "n", "released")); n > 16*18 {
		t.Errorf("%d bytes of traces", n)
	}
}

// An acquire that was given up and arrives late holds nobody up.
func TestLateAcquireComesToNothing(t *testing.T) {
	r := newRig(t)
	held := r.hook.Inject(faultredis.HoldBefore(faultredis.Mentions(string(token))).Once())
	answer := make(chan error, 1)
	go func() { _, err := r.Acquire(t.Context(), request("n")); answer <- err }()
	<-held.Reached()
	if err := r.Release(t.Context(), lease.Lease{Name: "n", Token: token}); !errors.Is(err, lease.ErrLost) {
		t.Errorf("release of what was not granted: %v, want ErrLost", err)
	}
	held.Release()
	if err := <-answer; !errors.Is(err, lease.ErrLost) {
		t.Errorf("the late acquire: %v, want ErrLost", err)
	}
	if holder := r.field(t, "n", "token"); holder != "" {
		t.Errorf("held by %s", holder)
	}
}
