package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Bounds on giving back.
const (
	// releaseWithin bounds a release that Do makes, and that of a lease which
	// was perhaps granted. It does not end with the caller's context.
	releaseWithin = 2 * time.Second
	releaseTries  = 3
	releasePause  = 50 * time.Millisecond
)

// Try asks once, without waiting. ErrHeld: somebody else has the lease.
func (l *Locker) Try(ctx context.Context, name string) (Lease, error) {
	return l.acquire(ctx, name, 0)
}

// Acquire asks for the lease until it has it, for Config.Wait at most. A reply
// that was lost is asked for again with the same token.
//
// The error matches ErrHeld when the wait is over, the cause of ctx when that
// has ended, or what the store answered last: ErrUnavailable or ErrIndefinite,
// in which case a lease that was granted unseen has been given back or ends
// within its length. ErrReentrant and ErrInvalidName come at once.
//
// The lease has to be extended in time, and released. Do does both.
func (l *Locker) Acquire(ctx context.Context, name string) (Lease, error) {
	return l.acquire(ctx, name, max(l.cfg.Wait, 0))
}

func (l *Locker) acquire(ctx context.Context, name string, wait time.Duration) (Lease, error) {
	if err := checkName(name); err != nil {
		return Lease{}, err
	}
	if holds(ctx, l.store, name) {
		return Lease{}, about(name, ErrReentrant)
	}
	r := Request{Name: name, Token: l.newToken(), Length: l.cfg.Length}
	until := time.Now().Add(wait)
	unseen := false // a grant may be on the server that nobody knows of
	for n := 0; ; n++ {
		if ctx.Err() != nil {
			return Lease{}, l.given(ctx, r, unseen, about(name, context.Cause(ctx)))
		}
		r.Wait = max(time.Until(until), 0)
		got, err := l.store.Acquire(ctx, r)
		if err == nil && !got.Trusted(time.Now()) {
			err = fmt.Errorf("%w: the answer came too late to be relied on", ErrIndefinite)
		}
		if err == nil {
			return got, nil
		}
		unseen = errors.Is(err, ErrIndefinite) || unseen && !errors.Is(err, ErrHeld)
		left := time.Until(until)
		if left <= 0 || !asksAgain(err) {
			return Lease{}, l.given(ctx, r, unseen, about(name, err))
		}
		if !sleep(ctx, min(l.pause(n), left)) {
			return Lease{}, l.given(ctx, r, unseen, fmt.Errorf("lease %q: %w; last answer: %w", name, context.Cause(ctx), err))
		}
	}
}

// asksAgain reports whether another question can be answered otherwise.
func asksAgain(err error) bool {
	return errors.Is(err, ErrHeld) || errors.Is(err, ErrUnavailable) || errors.Is(err, ErrIndefinite)
}

// given gives back what may have been granted unseen, and passes err on.
func (l *Locker) given(ctx context.Context, r Request, unseen bool, err error) error {
	if unseen {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWithin)
		defer cancel()
		// Without an answer it ends by itself.
		_ = l.store.Release(ctx, Lease{Name: r.Name, Token: r.Token, Length: r.Length})
	}
	return err
}

// pause is the wait after the nth question, n from 0.
func (l *Locker) pause(n int) time.Duration {
	d := l.cfg.Poll / 10
	for range n {
		if d *= 2; d >= l.cfg.Poll {
			break
		}
	}
	return halved(min(max(d, MinPoll), l.cfg.Poll))
}

// halved is d less up to half of it, so that those who began to wait together
// do not ask together.
func halved(d time.Duration) time.Duration { return d - rand.N(d/2+1) }

// Extend makes the lease last for its length from now, and returns it as it is
// trusted then. ErrLost: it had ended; stop. ErrUnavailable or ErrIndefinite:
// it is trusted as before; ask again.
func (l *Locker) Extend(ctx context.Context, held Lease) (Lease, error) {
	got, err := l.store.Extend(ctx, held)
	if err != nil {
		return held, about(held.Name, err)
	}
	return got, nil
}

// Release ends the lease. ErrLost: it had ended already, so the end of the work
// may have been done beside somebody else. ErrUnavailable or ErrIndefinite: ask
// again, or leave it; it ends by itself as the store says.
func (l *Locker) Release(ctx context.Context, held Lease) error {
	if err := l.store.Release(ctx, held); err != nil {
		return about(held.Name, err)
	}
	return nil
}

// sleep reports whether it slept to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
