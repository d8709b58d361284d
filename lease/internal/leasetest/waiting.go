package leasetest

import (
	"errors"
	"testing"
	"time"

	"github.com/claimq/claimq/lease"
)

// waitBounded: who waits in vain is told after the time it gave, not before.
func waitBounded(t *testing.T, s Subject) {
	const bound = 300 * time.Millisecond
	a, b := s.locker(t, long), s.locker(t, long, wait(bound))
	held := acquire(t, a, "w")
	began := time.Now()
	_, err := b.Acquire(t.Context(), "w")
	took := time.Since(began)
	wantError(t, "Acquire", err, lease.ErrHeld)
	if took < bound || took > bound+patience/2 {
		t.Errorf("waited %v, want %v and a little more", took, bound)
	}
	release(t, a, held)
}

// waitEnds: who waits gets the lease when it is given back.
func waitEnds(t *testing.T, s Subject) {
	a, b := s.locker(t, long), s.locker(t, long)
	held := acquire(t, a, "w")
	waiting, got := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(got)
		close(waiting)
		other, err := b.Acquire(t.Context(), "w")
		if err != nil {
			t.Error(err)
			return
		}
		if err := b.Release(t.Context(), other); err != nil {
			t.Error(err)
		}
	}()
	<-waiting
	passed(t, time.Now().Add(50*time.Millisecond)) // it most likely waits by then; either way it gets it
	select {
	case <-got:
		t.Error("somebody else got the lease before it was given back")
	default:
	}
	release(t, a, held)
	until(t, "the lease for who waits", got)
}

// cancelledWhileWaiting: the wait ends with the context, and leaves nothing
// behind that could hold the name.
func cancelledWhileWaiting(t *testing.T, s Subject) {
	a, b := s.locker(t, long), s.locker(t, long, wait(time.Hour))
	held := acquire(t, a, "c")
	ctx, stop := stopped(t)
	began, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		close(began)
		_, err := b.Acquire(ctx, "c")
		wantError(t, "Acquire", err, errStop)
	}()
	<-began
	passed(t, time.Now().Add(50*time.Millisecond)) // as above
	stop()
	until(t, "the end of the wait", ended)
	release(t, a, held)
	c := s.locker(t, long)
	got := acquire(t, c, "c")
	_, err := b.Try(t.Context(), "c")
	wantError(t, "Try of who had been cancelled", err, lease.ErrHeld)
	release(t, c, got)
}

// cancelledBefore: with a context that has ended nothing is taken.
func cancelledBefore(t *testing.T, s Subject) {
	a, b := s.locker(t, long), s.locker(t, long)
	ctx, stop := stopped(t)
	stop()
	_, err := a.Acquire(ctx, "c")
	wantError(t, "Acquire", err, errStop)
	if errors.Is(err, lease.ErrHeld) {
		t.Errorf("held: %v", err)
	}
	held, err := b.Try(t.Context(), "c")
	if err != nil {
		t.Fatal(err)
	}
	release(t, b, held)
}
