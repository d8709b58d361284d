package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/claimq/claimq/internal/faultredis"
	"github.com/claimq/claimq/internal/pgtest"
	"github.com/claimq/claimq/lease"
	"github.com/claimq/claimq/queue"
)

// A server that dies ends the context long before the next renewal is due, and
// the fence goes on when it is back.
func TestServerDies(t *testing.T) {
	server := pgtest.Start(t)
	p := newProcess(t, server.DSN(t))
	setUp(t, p.Store)
	l := newLocker(t, p.Store, lease.Config{Length: time.Hour})
	var fence queue.Fence
	err := l.Do(t.Context(), "n", func(ctx context.Context, held lease.Lease) error {
		fence = held.Fence
		server.Kill()
		late := time.NewTimer(20 * time.Second)
		defer late.Stop()
		select {
		case <-ctx.Done():
		case <-late.C:
			t.Error("not told")
		}
		return context.Cause(ctx)
	})
	if !errors.Is(err, lease.ErrLost) {
		t.Errorf("%v, want ErrLost", err)
	}
	if _, err := l.Try(t.Context(), "n"); !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("while it is down: %v, want ErrUnavailable", err)
	}
	server.Restart()
	next, err := l.Acquire(t.Context(), "n")
	if err != nil || next.Fence <= fence {
		t.Errorf("fence %d after %d: %v", next.Fence, fence, err)
	}
}

// A holder that is cut off stops trusting its lease in time, and what it holds
// is left to it: the server knows nothing of it yet.
func TestHolderIsCutOff(t *testing.T) {
	server := pgtest.Shared(t)
	dsn := server.DSN(t)
	setUp(t, newProcess(t, dsn).Store)
	proxy := faultredis.NewProxy(t, server.Addr())
	p := newProcess(t, strings.Replace(dsn, server.Addr(), proxy.Addr(), 1))
	const length = time.Second
	began := time.Now()
	err := newLocker(t, p.Store, lease.Config{Length: length}).Do(t.Context(), "n", func(ctx context.Context, _ lease.Lease) error {
		proxy.BlackholeReplies()
		<-ctx.Done()
		if took := time.Since(began); took < length/2 {
			t.Errorf("lost after %v already", took)
		}
		return context.Cause(ctx)
	})
	if !errors.Is(err, lease.ErrLost) {
		t.Errorf("%v, want ErrLost", err)
	}
}

// Both versions of a failure of every statement: whatever the caller is told,
// nothing of it keeps others out.
func TestTwoVersions(t *testing.T) {
	server := pgtest.Shared(t)
	dsn := server.DSN(t)
	other := newProcess(t, dsn)
	setUp(t, other.Store)
	for i, statement := range []string{"pg_try_advisory_lock", "pg_advisory_lock", "INSERT INTO", "pg_is_in_recovery", "pg_advisory_unlock"} {
		for version, cut := range map[string]func(*faultredis.Proxy){
			"not applied": (*faultredis.Proxy).BlackholeRequests, "reply lost": (*faultredis.Proxy).BlackholeReplies,
		} {
			t.Run(statement+"/"+version, func(t *testing.T) {
				t.Parallel() // what they do is to wait
				name := fmt.Sprintf("n%d-%s", i, version[:3])
				proxy := faultredis.NewProxy(t, server.Addr())
				p := newProcess(t, strings.Replace(dsn, server.Addr(), proxy.Addr(), 1))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				broken := make(chan struct{})
				p.cutAt(statement, func() {
					cut(proxy)
					close(broken)
					time.AfterFunc(500*time.Millisecond, cancel) // the caller's patience
				})
				r := request(name, time.Minute)
				if statement == "pg_advisory_lock" {
					r.Wait = time.Minute
				}
				l, err := p.Acquire(ctx, r)
				if statement == "pg_advisory_unlock" {
					if err != nil {
						t.Fatal(err)
					}
					if err := p.Release(ctx, l); !errors.Is(err, lease.ErrIndefinite) {
						t.Errorf("release: %v, want ErrIndefinite", err)
					}
				} else if !errors.Is(err, lease.ErrUnavailable) {
					t.Errorf("acquire: %v, want ErrUnavailable", err)
				}
				select {
				case <-broken:
				default:
					t.Fatal("nothing was broken")
				}
				if err := p.Release(t.Context(), l); !errors.Is(err, lease.ErrLost) {
					t.Errorf("release of what is not held: %v, want ErrLost", err)
				}
				proxy.Heal()
				got, err := newLocker(t, other.Store, lease.Config{}).Acquire(t.Context(), name)
				if err != nil {
					t.Fatalf("somebody else: %v", err)
				}
				if err := other.Release(t.Context(), got); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// A function that returns while a renewal is on its way has lost nothing.
func TestEndDuringARenewal(t *testing.T) {
	server := pgtest.Shared(t)
	dsn := server.DSN(t)
	setUp(t, newProcess(t, dsn).Store)
	proxy := faultredis.NewProxy(t, server.Addr())
	p := newProcess(t, strings.Replace(dsn, server.Addr(), proxy.Addr(), 1))
	const length = 3 * time.Second
	err := newLocker(t, p.Store, lease.Config{Length: length}).Do(t.Context(), "n", func(ctx context.Context, held lease.Lease) error {
		proxy.BlackholeReplies()
		// The renewal is due after a third, and trust ends after four fifths.
		timer := time.NewTimer(length / 2)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		return context.Cause(ctx)
	})
	if err != nil {
		t.Errorf("Do: %v", err)
	}
	proxy.Heal()
	other := newProcess(t, dsn)
	if _, err := newLocker(t, other.Store, lease.Config{}).Acquire(t.Context(), "n"); err != nil {
		t.Errorf("somebody else, afterwards: %v", err)
	}
}
