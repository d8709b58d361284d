package lease_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/claimq/claimq/lease"
	"github.com/claimq/claimq/queue"
)

// A reply that was lost is asked for again with the same token.
func TestAcquireAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		var first lease.Lease
		m.onAcquire = func(n int, apply func() (lease.Lease, error)) (l lease.Lease, err error) {
			l, err = apply()
			if n == 1 {
				first, err = l, lease.ErrIndefinite
			}
			return l, err
		}
		l, err := newLocker(t, m).Acquire(t.Context(), "n")
		if err != nil || l.Token != first.Token || l.Fence != first.Fence {
			t.Errorf("%+v, %v, want the lease that was granted unseen: %+v", l, err, first)
		}
	})
}

// A lease that was granted unseen is given back by who gives up.
func TestAcquireGivesUpCleanly(t *testing.T) {
	for _, tt := range []struct {
		name     string
		last     error
		released int
	}{{"indefinite", lease.ErrIndefinite, 1}, {"held after all", lease.ErrHeld, 0}, {"unavailable since", lease.ErrUnavailable, 1}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemory()
				m.onAcquire = func(n int, apply func() (lease.Lease, error)) (lease.Lease, error) {
					if n == 1 {
						l, _ := apply()
						return l, lease.ErrIndefinite
					}
					return lease.Lease{}, tt.last
				}
				_, err := newLocker(t, m).Acquire(t.Context(), "n")
				if !errors.Is(err, tt.last) {
					t.Errorf("%v, want %v", err, tt.last)
				}
				if _, released, _ := m.counts(); released != tt.released {
					t.Errorf("released %d times, want %d", released, tt.released)
				}
			})
		})
	}
}

// An answer that comes when the lease is not to be trusted any more is none.
func TestAcquireWithALateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.onAcquire = func(n int, apply func() (lease.Lease, error)) (lease.Lease, error) {
			l, err := apply()
			if n == 1 {
				time.Sleep(lease.DefaultLength)
			}
			return l, err
		}
		l, err := newLocker(t, m, func(c *lease.Config) { c.Wait = time.Minute }).Acquire(t.Context(), "n")
		if err != nil || !l.Trusted(time.Now()) {
			t.Errorf("trusted until %v, %v", l.TrustedUntil, err)
		}
		if asked, _, _ := m.counts(); asked != 2 {
			t.Errorf("asked %d times, want twice", asked)
		}
	})
}

// Who waits asks ever less often, within bounds, and stops in time.
func TestAcquireBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		var at []time.Duration
		m.onAcquire = func(int, func() (lease.Lease, error)) (lease.Lease, error) {
			at = append(at, time.Since(m.began))
			return lease.Lease{}, lease.ErrHeld
		}
		_, err := newLocker(t, m).Acquire(t.Context(), "n")
		if !errors.Is(err, lease.ErrHeld) {
			t.Error(err)
		}
		nominal := lease.DefaultPoll / 10
		for i := 1; i < len(at)-1; i++ { // the last pause is cut to the bound
			if d := at[i] - at[i-1]; d < nominal/2 || d > nominal {
				t.Errorf("pause %d is %v, want %v to %v", i, d, nominal/2, nominal)
			}
			nominal = min(2*nominal, lease.DefaultPoll)
		}
		if end := at[len(at)-1]; end != lease.DefaultWait {
			t.Errorf("asked last after %v, want %v", end, lease.DefaultWait)
		}
	})
}

// Every error but these ends the wait at once.
func TestAcquireEndsAtOnce(t *testing.T) {
	odd := errors.New("odd")
	for _, answer := range []error{odd, lease.ErrLost} {
		m := newMemory()
		m.onAcquire = func(int, func() (lease.Lease, error)) (lease.Lease, error) { return lease.Lease{}, answer }
		_, err := newLocker(t, m).Acquire(t.Context(), "n")
		if asked, _, _ := m.counts(); !errors.Is(err, answer) || asked != 1 {
			t.Errorf("asked %d times: %v, want %v", asked, err, answer)
		}
	}
}

// Trust ends by the wall clock too: a suspended machine stops the other one.
func TestTrustedByBothClocks(t *testing.T) {
	sent := time.Now()
	l := lease.Lease{Length: time.Minute}.Since(sent)
	if !l.Trusted(sent.Add(59*time.Second - 1)) {
		t.Error("not trusted within the length less the margin")
	}
	for name, now := range map[string]time.Time{
		"by the monotonic clock": sent.Add(59 * time.Second),
		"by the wall clock":      sent.Round(0).Add(59 * time.Second),
	} {
		if l.Trusted(now) {
			t.Errorf("trusted when it has ended %s", name)
		}
	}
}

func TestInvalidConfig(t *testing.T) {
	_, err := lease.New(nil, lease.Config{Length: time.Millisecond, Wait: -2, Poll: time.Hour})
	for _, field := range []string{"store", "Length", "Wait", "Poll"} {
		if err == nil || !errors.Is(err, queue.ErrInvalidConfig) || !strings.Contains(err.Error(), ": "+field+": ") {
			t.Errorf("%s is not complained about: %v", field, err)
		}
	}
	if _, err := lease.New(odd{map[string]int{}}, lease.Config{}); err == nil {
		t.Error("a store that cannot be compared is accepted")
	}
}

// odd cannot be compared.
type odd struct{ m map[string]int }

func (odd) Acquire(context.Context, lease.Request) (lease.Lease, error) {
	return lease.Lease{}, lease.ErrHeld
}
func (odd) Extend(context.Context, lease.Lease) (lease.Lease, error) {
	return lease.Lease{}, lease.ErrHeld
}
func (odd) Release(context.Context, lease.Lease) error { return nil }

// Tokens come from the given source, and each acquire has its own.
func TestTokens(t *testing.T) {
	l := newLocker(t, newMemory(), func(c *lease.Config) { c.Rand = bytes.NewReader([]byte("abcdefghijklmnopqrstuvwx")) })
	a, err := l.Try(t.Context(), "a")
	if err != nil || a.Token != "YWJjZGVmZ2hpamts" {
		t.Errorf("token %s, %v", a.Token, err)
	}
	if b, err := l.Try(t.Context(), "b"); err != nil || b.Token == a.Token {
		t.Errorf("token %s again, %v", b.Token, err)
	}
}
