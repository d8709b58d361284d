package lease

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/claimq/claimq/queue"
)

// Do runs f while it holds the lease on name. It waits for the lease as Acquire
// does, and has its errors. Then it renews the lease until f returns, whatever
// becomes of ctx, and gives it back, also when f panics.
//
// The context of f ends with a cause that matches ErrLost once the lease may
// be somebody else's. Do waits for f all the same.
//
// The error is that of f. It matches ErrLost too if, when f returned, the
// lease was not known to be held to that moment: then f may have run beside
// somebody else, whatever it returned. That the lease could not be given back
// is no error; it ends by itself as the store says.
func (l *Locker) Do(ctx context.Context, name string, f func(ctx context.Context, held Lease) error) (err error) {
	held, err := l.Acquire(ctx, name)
	if err != nil {
		return err
	}
	k := &keeper{store: l.store, lease: held}
	inside, end := context.WithCancelCause(context.WithValue(ctx, mark{l.store, name}, k))
	k.end = end
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var both sync.WaitGroup
	both.Go(func() { k.watch(background) })
	both.Go(func() { k.renew(background) })
	defer func() {
		lost := k.finish(time.Now())
		stop()
		both.Wait()
		end(nil)
		if gone := l.giveBack(ctx, k.current()); lost == nil {
			lost = gone
		}
		if lost != nil && !errors.Is(err, ErrLost) {
			err = errors.Join(err, lost)
		}
	}()
	return f(inside, held)
}

// mark is how the context of Do remembers what is held.
type mark struct {
	store Store
	name  string
}

func holds(ctx context.Context, store Store, name string) bool {
	k, ok := ctx.Value(mark{store, name}).(*keeper)
	return ok && !k.over.Load()
}

// Holds reports whether ctx comes from inside Do for this store and name, so
// that asking for the lease would be waiting for oneself. It is for stores
// with verbs of their own.
func Holds(ctx context.Context, store Store, name string) bool { return holds(ctx, store, name) }

// keeper keeps one lease while a function runs.
type keeper struct {
	store Store
	end   context.CancelCauseFunc // of the function's context
	over  atomic.Bool             // the function has returned

	mu    sync.Mutex
	lease Lease
	lost  error
}

func (k *keeper) current() Lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lease
}

func (k *keeper) lose(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lost == nil {
		k.lost = err
		k.end(err)
	}
}

// extended notes the answer of a renewal. One that came after trust had run
// out changes nothing for the function, whose context has ended.
func (k *keeper) extended(l Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lease = l
}

// finish notes that the function has returned, and what is known of the lease
// at that moment.
func (k *keeper) finish(now time.Time) error {
	k.over.Store(true)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lost == nil && !k.lease.Trusted(now) {
		k.lost = lost(k.lease.Name, "not renewed in time")
	}
	return k.lost
}

// watch ends the function's context when trust runs out. It looks often, for a
// timer does not know of a machine that was suspended or of a stepped clock.
func (k *keeper) watch(ctx context.Context) {
	for {
		l, now := k.current(), time.Now()
		if !l.Trusted(now) {
			k.lose(lost(l.Name, "not renewed in time"))
			return
		}
		if !sleep(ctx, min(l.TrustedUntil.Sub(now), l.Length/10)) {
			return
		}
	}
}

// renew extends the lease a third into its length, and soon again after a call
// that did not come through.
func (k *keeper) renew(ctx context.Context) {
	l := k.current()
	for wait := dueIn(l); k.rest(ctx, wait); {
		l = k.current()
		asked, cancel := context.WithDeadline(ctx, l.TrustedUntil)
		next, err := k.store.Extend(asked, l)
		cancel()
		switch {
		case err == nil:
			k.extended(next)
			wait = dueIn(next)
		case errors.Is(err, ErrLost):
			k.lose(about(l.Name, err))
			return
		default:
			wait = halved(l.Length / 15)
		}
	}
}

// dueIn is how long it is until a third of the length has passed since the
// request that gave the lease or kept it.
func dueIn(l Lease) time.Duration {
	return time.Until(l.TrustedUntil) - (l.Length - queue.Margin(l.Length)) + l.Length/3
}

// rest waits, and is false when the work or the lease is over.
func (k *keeper) rest(ctx context.Context, d time.Duration) bool {
	w, ok := k.store.(Watcher)
	if !ok {
		return sleep(ctx, d)
	}
	waiting, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	l := k.current()
	if err := w.Watch(waiting, l); err != nil {
		k.lose(lost(l.Name, err.Error()))
		return false
	}
	return ctx.Err() == nil
}

// giveBack releases the lease, on a context of its own. An answer that it was
// lost counts if it is the first: after a call whose outcome is unknown it may
// be the echo of that call.
func (l *Locker) giveBack(ctx context.Context, held Lease) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWithin)
	defer cancel()
	for try := 1; try <= releaseTries; try++ {
		err := l.store.Release(ctx, held)
		switch {
		case err == nil, errors.Is(err, ErrLost) && try > 1:
			return nil
		case errors.Is(err, ErrLost):
			return about(held.Name, err)
		case !sleep(ctx, releasePause):
			return nil
		}
	}
	return nil
}
