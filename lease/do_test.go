package lease_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/claimq/claimq/lease"
	"github.com/claimq/claimq/queue"
)

func newLocker(t *testing.T, store lease.Store, edit ...func(*lease.Config)) *lease.Locker {
	t.Helper()
	var cfg lease.Config
	for _, f := range edit {
		f(&cfg)
	}
	l, err := lease.New(store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// The lease is renewed a third into its length, for as long as it takes.
func TestDoRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		err := newLocker(t, m).Do(t.Context(), "n", func(ctx context.Context, _ lease.Lease) error {
			time.Sleep(time.Minute - time.Second)
			return context.Cause(ctx)
		})
		if err != nil {
			t.Error(err)
		}
		_, released, extends := m.counts()
		var want []time.Duration
		for d := 5 * time.Second; d < 59*time.Second; d += 5 * time.Second {
			want = append(want, d)
		}
		if !slices.Equal(extends, want) {
			t.Errorf("renewed at %v, want %v", extends, want)
		}
		if released != 1 {
			t.Errorf("released %d times", released)
		}
	})
}

// A function that cleans up after its context has ended still has the lease.
func TestDoRenewsAfterTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		ctx, cancel := context.WithCancel(t.Context())
		err := newLocker(t, m).Do(ctx, "n", func(ctx context.Context, _ lease.Lease) error {
			cancel()
			<-ctx.Done()
			time.Sleep(time.Minute)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if _, _, extends := m.counts(); len(extends) < 11 {
			t.Errorf("renewed %d times in a minute", len(extends))
		}
	})
}

// A renewal that takes long counts from the moment before it was sent.
func TestDoCountsFromBeforeTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.onExtend = func(_ context.Context, _ int, apply func() (lease.Lease, error)) (lease.Lease, error) {
			l, err := apply()
			time.Sleep(4 * time.Second)
			return l, err
		}
		_ = newLocker(t, m).Do(t.Context(), "n", func(context.Context, lease.Lease) error {
			time.Sleep(16 * time.Second)
			return nil
		})
		_, _, extends := m.counts()
		if want := []time.Duration{5 * time.Second, 10 * time.Second, 15 * time.Second}; !slices.Equal(extends, want) {
			t.Errorf("renewed at %v, want %v", extends, want)
		}
	})
}

// A server that is away for less than the trust costs nothing; for longer, the
// context ends when trust does, before the server's end of the lease.
func TestDoWithoutRenewals(t *testing.T) {
	for _, tt := range []struct {
		away time.Duration
		lost bool
	}{{8 * time.Second, false}, {time.Minute, true}} {
		synctest.Test(t, func(t *testing.T) {
			m := newMemory()
			m.onExtend = func(_ context.Context, _ int, apply func() (lease.Lease, error)) (lease.Lease, error) {
				if time.Since(m.began) < 5*time.Second+tt.away {
					return lease.Lease{}, lease.ErrUnavailable
				}
				return apply()
			}
			var ended time.Duration
			err := newLocker(t, m).Do(t.Context(), "n", func(ctx context.Context, held lease.Lease) error {
				select {
				case <-ctx.Done():
				case <-time.After(30 * time.Second):
				}
				ended = time.Since(m.began)
				return context.Cause(ctx)
			})
			if errors.Is(err, lease.ErrLost) != tt.lost {
				t.Errorf("away for %v: %v", tt.away, err)
			}
			if want := lease.DefaultLength - queue.Margin(lease.DefaultLength); tt.lost && ended != want {
				t.Errorf("the context ended after %v, want %v", ended, want)
			}
		})
	}
}

// A call that hangs cannot keep the context from ending in time.
func TestDoWithACallThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.onExtend = func(context.Context, int, func() (lease.Lease, error)) (lease.Lease, error) {
			time.Sleep(20 * time.Second) // deaf to its context
			return lease.Lease{}, lease.ErrIndefinite
		}
		var ended time.Duration
		err := newLocker(t, m).Do(t.Context(), "n", func(ctx context.Context, _ lease.Lease) error {
			<-ctx.Done()
			ended = time.Since(m.began)
			return nil
		})
		if !errors.Is(err, lease.ErrLost) {
			t.Errorf("%v, want ErrLost", err)
		}
		if want := lease.DefaultLength - queue.Margin(lease.DefaultLength); ended != want {
			t.Errorf("the context ended after %v, want %v", ended, want)
		}
	})
}

// A renewal is given the time for which the lease is trusted, and no more.
func TestDoBoundsItsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.onExtend = func(ctx context.Context, _ int, _ func() (lease.Lease, error)) (lease.Lease, error) {
			<-ctx.Done()
			return lease.Lease{}, lease.ErrIndefinite
		}
		began := time.Now()
		_ = newLocker(t, m).Do(t.Context(), "n", func(ctx context.Context, _ lease.Lease) error {
			<-ctx.Done()
			return nil
		})
		if took := time.Since(began); took != 14*time.Second {
			t.Errorf("Do took %v, want 14s", took)
		}
	})
}

// A store that sees a loss as it happens is believed at once.
func TestDoIsToldOfALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watched{newMemory(), make(chan struct{})}
		began := time.Now()
		err := newLocker(t, w).Do(t.Context(), "n", func(ctx context.Context, _ lease.Lease) error {
			time.Sleep(7 * time.Second) // one renewal in between
			close(w.lost)
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if took := time.Since(began); !errors.Is(err, lease.ErrLost) || took != 7*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
		if n := strings.Count(err.Error(), lease.ErrLost.Error()); n > 2 {
			t.Errorf("said %d times: %v", n, err)
		}
		if _, _, extends := w.counts(); !slices.Equal(extends, []time.Duration{5 * time.Second}) {
			t.Errorf("renewed at %v, want once", extends)
		}
	})
}

// A function that returns after trust ran out has run unguarded, whether or not
// anybody has looked meanwhile.
func TestDoJudgesTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.onAcquire = func(_ int, apply func() (lease.Lease, error)) (lease.Lease, error) {
			l, err := apply()
			l.TrustedUntil = time.Now().Add(time.Millisecond)
			return l, err
		}
		m.onExtend = func(context.Context, int, func() (lease.Lease, error)) (lease.Lease, error) {
			return lease.Lease{}, lease.ErrUnavailable
		}
		err := newLocker(t, m).Do(t.Context(), "n", func(context.Context, lease.Lease) error {
			time.Sleep(time.Millisecond)
			return nil
		})
		if !errors.Is(err, lease.ErrLost) {
			t.Errorf("%v, want ErrLost", err)
		}
	})
}

// What Do makes of the answers to its release.
func TestDoGivesBack(t *testing.T) {
	for _, tt := range []struct {
		name    string
		answers []error // nil: what the store says
		calls   int
		lost    bool
	}{
		{"at once", []error{nil}, 1, false},
		{"the server forgot it", []error{lease.ErrLost}, 1, true},
		{"a lost reply", []error{lease.ErrIndefinite, nil}, 2, false},
		{"a lost reply, and its echo", []error{lease.ErrIndefinite, lease.ErrLost}, 2, false},
		{"nobody answers", []error{lease.ErrUnavailable, lease.ErrUnavailable, lease.ErrUnavailable}, 3, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemory()
				m.onRelease = func(n int, apply func() error) error {
					if tt.answers[n-1] == nil {
						return apply()
					}
					return tt.answers[n-1]
				}
				err := newLocker(t, m).Do(t.Context(), "n", func(context.Context, lease.Lease) error { return nil })
				if errors.Is(err, lease.ErrLost) != tt.lost || err != nil && !tt.lost {
					t.Errorf("Do: %v", err)
				}
				if _, calls, _ := m.counts(); calls != tt.calls {
					t.Errorf("asked %d times, want %d", calls, tt.calls)
				}
			})
		})
	}
}
