package lease

import (
	"context"
	"time"

	"github.com/claimq/claimq/queue"
)

// Token is the random proof of a lease: whoever has it is the holder. It is
// made by the caller, so that a call whose reply was lost can be asked again
// and is recognised.
type Token string

// Lease is the right to be the only one under a name for a while. It is a
// plain value; the verbs are on Locker, and each of them lets the store compare
// the token.
type Lease struct {
	Name  string
	Token Token
	// Fence is greater than that of every earlier lease on the name. Let
	// whatever you write to refuse a smaller one than it has seen. It is 0
	// where the store has none.
	Fence queue.Fence
	// Length is for how long one request keeps the lease.
	Length time.Duration
	// TrustedUntil is the local moment after which the holder must take the
	// lease for lost unless it was extended. It carries a monotonic reading;
	// use Trusted, which also watches the wall clock. Inside Do go by the
	// context: this is then the moment as of the first request.
	TrustedUntil time.Time
}

// Trusted reports whether the lease may still be relied on at now, by the
// larger of monotonic and wall time elapsed.
func (l Lease) Trusted(now time.Time) bool { return queue.Trusted(l.TrustedUntil, now) }

// Since returns the lease as it is trusted after a request that was sent at
// sent and came through: until then plus its length, less the margin.
func (l Lease) Since(sent time.Time) Lease {
	l.TrustedUntil = sent.Add(l.Length - queue.Margin(l.Length))
	return l
}

// Request asks for a lease.
type Request struct {
	Name   string
	Token  Token
	Length time.Duration // whole milliseconds
	// Wait is how long a store that can queue may let the caller wait before
	// it answers ErrHeld. Others answer at once. 0: nobody waits.
	Wait time.Duration
}

// Store keeps leases. It is a pointer, or another value that can be compared.
// Its methods are safe for concurrent use, retry nothing, and end when their
// context does or a little later.
//
// Errors match ErrHeld, ErrLost, ErrUnavailable or ErrIndefinite as the methods
// say; any other is a fault of the store, and nothing is known.
type Store interface {
	// Acquire grants the lease (Lease.Since the moment before it asked) or
	// answers ErrHeld. Asked again with the token of a lease that has not ended
	// it answers the same fence, unless the store says otherwise. An error
	// other than ErrIndefinite: the caller has nothing to give back.
	Acquire(ctx context.Context, r Request) (Lease, error)

	// Extend makes the lease last for its length from now. ErrLost: it had
	// ended, and is not revived.
	Extend(ctx context.Context, l Lease) (Lease, error)

	// Release ends the lease. ErrLost: it had ended before.
	Release(ctx context.Context, l Lease) error
}

// Watcher is a Store that can see a loss as it happens.
type Watcher interface {
	// Watch returns nil once ctx has ended, and an error as soon as the lease
	// is known to be lost. The lease is not extended or released meanwhile.
	Watch(ctx context.Context, l Lease) error
}
