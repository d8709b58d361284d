package leasetest

import (
	"context"
	"testing"
	"time"

	"github.com/claimq/claimq/lease"
)

// lossEndsContext: a holder that is replaced is told by its context, and Do
// says so whatever the function returns.
func lossEndsContext(t *testing.T, s Subject) {
	for _, returns := range []error{nil, errStop} {
		a := s.locker(t)
		err := a.Do(t.Context(), "l", func(ctx context.Context, _ lease.Lease) error {
			s.End("l")
			until(t, "the end of the context", ctx.Done())
			wantError(t, "cause", context.Cause(ctx), lease.ErrLost)
			return returns
		})
		wantError(t, "Do", err, lease.ErrLost)
		if returns != nil {
			wantError(t, "Do", err, returns)
		}
	}
}

// lateVerbs: who lost a lease gets nothing back, nor takes anything from its
// successor.
func lateVerbs(t *testing.T, s Subject) {
	a, b := s.locker(t, long), s.locker(t, long)
	held := acquire(t, a, "v")
	s.End("v")
	_, err := a.Extend(t.Context(), held)
	wantError(t, "Extend with nobody else there", err, lease.ErrLost)

	next := acquire(t, b, "v")
	_, err = a.Extend(t.Context(), held)
	wantError(t, "Extend with a successor", err, lease.ErrLost)
	wantError(t, "Release with a successor", a.Release(t.Context(), held), lease.ErrLost)
	if next, err = b.Extend(t.Context(), next); err != nil {
		t.Errorf("the successor cannot extend: %v", err)
	}
	_, err = a.Try(t.Context(), "v")
	wantError(t, "Try beside the successor", err, lease.ErrHeld)
	release(t, b, next)

	held = acquire(t, a, "v")
	s.End("v")
	wantError(t, "Release with nobody else there", a.Release(t.Context(), held), lease.ErrLost)
	release(t, b, acquire(t, b, "v"))
}

// pause: a holder that shows no sign of life for longer than its lease.
func pause(t *testing.T, s Subject) {
	const short = 500 * time.Millisecond
	a := s.locker(t, length(short))
	held := acquire(t, a, "p")
	if !s.Expires {
		b := s.locker(t, wait(lease.NoWait))
		passed(t, time.Now().Add(3*short))
		_, err := b.Acquire(t.Context(), "p")
		wantError(t, "somebody else, while the connection lives", err, lease.ErrHeld)
		if held, err = a.Extend(t.Context(), held); err != nil || !held.Trusted(time.Now()) {
			t.Errorf("the holder, when it comes back: %v", err)
		}
		release(t, a, held)
		return
	}
	b := s.locker(t)
	next := acquire(t, b, "p")
	if now := time.Now(); held.Trusted(now) {
		t.Errorf("somebody else has it %v before the first stopped trusting it", held.TrustedUntil.Sub(now))
	}
	_, err := a.Extend(t.Context(), held)
	wantError(t, "late Extend", err, lease.ErrLost)
	wantError(t, "late Release", a.Release(t.Context(), held), lease.ErrLost)
	release(t, b, next)

	// Nobody took it: it is gone all the same.
	held = acquire(t, a, "p")
	passed(t, held.TrustedUntil.Add(2*short))
	_, err = a.Extend(t.Context(), held)
	wantError(t, "Extend of what has ended", err, lease.ErrLost)
	wantError(t, "Release of what has ended", a.Release(t.Context(), held), lease.ErrLost)
}

// crash: the process of a holder is gone.
func crash(t *testing.T, s Subject) {
	store := s.Open()
	a, b := on(t, store), s.locker(t)
	held := acquire(t, a, "k")
	bound := s.CrashFrees
	if bound == 0 {
		bound = Length
	}
	began := time.Now()
	s.Crash(store)
	next := acquire(t, b, "k")
	if took := time.Since(began); took > bound+Length {
		t.Errorf("free after %v, want %v and a little more", took, bound)
	}
	_, err := a.Extend(t.Context(), held)
	wantError(t, "Extend", err, lease.ErrLost)
	release(t, b, next)
}
