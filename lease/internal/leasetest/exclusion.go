package leasetest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/claimq/claimq/lease"
	"github.com/claimq/claimq/queue"
)

// oneHolder: many ask for one name, and each runs alone.
func oneHolder(t *testing.T, s Subject) {
	const clients, runs = 6, 5
	var inside, total atomic.Int64
	var fences []queue.Fence // written inside only: the race detector watches too
	var all sync.WaitGroup
	for range clients {
		l := s.locker(t, long)
		all.Go(func() {
			for range runs {
				err := l.Do(t.Context(), "one", func(_ context.Context, held lease.Lease) error {
					if n := inside.Add(1); n != 1 {
						t.Errorf("%d run at once", n)
					}
					fences = append(fences, held.Fence)
					total.Add(1)
					inside.Add(-1)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := total.Load(); n != clients*runs {
		t.Errorf("ran %d times, want %d", n, clients*runs)
	}
	checkFences(t, s, fences)
}

func checkFences(t *testing.T, s Subject, fences []queue.Fence) {
	t.Helper()
	for i, f := range fences {
		switch {
		case !s.Fenced && f != 0:
			t.Errorf("fence %d from a store that has none", f)
		case s.Fenced && f == 0:
			t.Error("fence 0 was granted")
		case s.Fenced && i > 0 && f <= fences[i-1]:
			t.Errorf("fence %d after %d", f, fences[i-1])
		}
	}
}

// fencesGrow, whatever ended the lease before.
func fencesGrow(t *testing.T, s Subject) {
	a, b := s.locker(t, long), s.locker(t, long)
	var fences []queue.Fence
	for _, end := range []func(lease.Lease){
		func(held lease.Lease) { release(t, a, held) },
		func(lease.Lease) { s.End("f") },
		func(held lease.Lease) { release(t, a, held) },
	} {
		held := acquire(t, a, "f")
		fences = append(fences, held.Fence)
		end(held)
		other := acquire(t, b, "f")
		fences = append(fences, other.Fence)
		release(t, b, other)
	}
	checkFences(t, s, fences)
}

// heldAtOnce: Try, and Do with NoWait, do not wait.
func heldAtOnce(t *testing.T, s Subject) {
	a, b := s.locker(t, long), s.locker(t, long, wait(lease.NoWait))
	held := acquire(t, a, "h")
	_, err := b.Try(t.Context(), "h")
	wantError(t, "Try", err, lease.ErrHeld)
	err = b.Do(t.Context(), "h", func(context.Context, lease.Lease) error {
		t.Error("ran although somebody has the lease")
		return nil
	})
	wantError(t, "Do", err, lease.ErrHeld)
	release(t, a, held)
	got, err := b.Try(t.Context(), "h")
	if err != nil {
		t.Fatalf("after the release: %v", err)
	}
	release(t, b, got)
}

// namesApart: a name concerns no other, and one that cannot be is refused.
func namesApart(t *testing.T, s Subject) {
	a, b := s.locker(t, long), s.locker(t, long)
	x, y := acquire(t, a, "x"), acquire(t, b, "y:1/2")
	release(t, b, y)
	release(t, a, x)
	for _, name := range []string{"", "a b", "a}b", "{a", "ä", string(make([]byte, lease.MaxNameBytes+1))} {
		_, err := a.Acquire(t.Context(), name)
		wantError(t, "name "+name, err, lease.ErrInvalidName)
	}
}

// renewedWhileItRuns: work that takes several lengths is not joined by others.
func renewedWhileItRuns(t *testing.T, s Subject) {
	a, b := s.locker(t), s.locker(t, wait(lease.NoWait))
	err := a.Do(t.Context(), "r", func(ctx context.Context, held lease.Lease) error {
		end := time.Now().Add(5 * Length / 2)
		for time.Now().Before(end) {
			if _, err := b.Try(t.Context(), "r"); !errors.Is(err, lease.ErrHeld) {
				t.Errorf("somebody else is told %v", err)
			}
			passed(t, time.Now().Add(Length/10))
		}
		return context.Cause(ctx)
	})
	if err != nil {
		t.Error(err)
	}
}

// reentrance is refused with the context of Do, and only with that.
func reentrance(t *testing.T, s Subject) {
	store := s.Open()
	a, again := on(t, store, long), on(t, store, long)
	var after context.Context
	err := a.Do(t.Context(), "re", func(ctx context.Context, _ lease.Lease) error {
		after = ctx
		err := again.Do(ctx, "re", func(context.Context, lease.Lease) error {
			t.Error("ran inside itself")
			return nil
		})
		wantError(t, "Do in Do", err, lease.ErrReentrant)
		_, err = again.Acquire(ctx, "re")
		wantError(t, "Acquire in Do", err, lease.ErrReentrant)
		_, err = a.Try(ctx, "re")
		wantError(t, "Try in Do", err, lease.ErrReentrant)
		return a.Do(ctx, "other", func(ctx context.Context, _ lease.Lease) error {
			_, err := a.Try(ctx, "re")
			wantError(t, "Try in Do in Do", err, lease.ErrReentrant)
			return nil
		})
	})
	if err != nil {
		t.Error(err)
	}
	held, err := a.Try(context.WithoutCancel(after), "re")
	if err != nil {
		t.Fatalf("with the context of a Do that is over: %v", err)
	}
	release(t, a, held)
}

// givenBack: also after an error and a panic, and whatever became of the
// context, the name is free at once.
func givenBack(t *testing.T, s Subject) {
	a, b := s.locker(t, long), s.locker(t, long, wait(lease.NoWait))
	free := func(after string) {
		t.Helper()
		held, err := b.Try(t.Context(), "g")
		if err != nil {
			t.Fatalf("after %s: %v", after, err)
		}
		release(t, b, held)
	}
	err := a.Do(t.Context(), "g", func(context.Context, lease.Lease) error { return errStop })
	wantError(t, "Do", err, errStop)
	if errors.Is(err, lease.ErrLost) {
		t.Errorf("lost: %v", err)
	}
	free("an error")

	ctx, stop := stopped(t)
	err = a.Do(ctx, "g", func(ctx context.Context, _ lease.Lease) error {
		stop()
		<-ctx.Done()
		return context.Cause(ctx)
	})
	wantError(t, "Do", err, errStop)
	free("the end of the context")

	func() {
		defer func() {
			if recover() != errStop {
				t.Error("the panic did not come through")
			}
		}()
		_ = a.Do(t.Context(), "g", func(context.Context, lease.Lease) error { panic(errStop) })
	}()
	free("a panic")
}

// askedAgain: what a store answers to the same request, sent twice.
func askedAgain(t *testing.T, s Subject) {
	store := s.Open()
	r := lease.Request{Name: "again", Token: "abcdefghijklmnop", Length: time.Minute}
	first, err := store.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	switch second, err := store.Acquire(t.Context(), r); {
	case s.AcquireAgain && (err != nil || second.Fence != first.Fence):
		t.Errorf("asked again: fence %d, %v, want %d", second.Fence, err, first.Fence)
	case !s.AcquireAgain && err != nil: // that has given it back
		if first, err = store.Acquire(t.Context(), r); err != nil {
			t.Fatalf("asked a third time: %v", err)
		}
	}
	if err := store.Release(t.Context(), first); err != nil {
		t.Error(err)
	}
	switch err := store.Release(t.Context(), first); {
	case s.ReleaseAgain && err != nil:
		t.Errorf("released again: %v", err)
	case !s.ReleaseAgain && !errors.Is(err, lease.ErrLost):
		t.Errorf("released again: %v, want ErrLost", err)
	}
}
