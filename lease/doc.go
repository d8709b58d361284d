// Package lease gives the right to be the only one for a while: for a cron
// that must not run twice at a time, for a call that must be serialised.
// Tasks of a queue need none of it, they have leases already.
//
//	store, err := redislease.New(redislease.Config{Client: rdb})
//	locker, err := lease.New(store, lease.Config{})
//	err = locker.Do(ctx, "rates.import", func(ctx context.Context, l lease.Lease) error {
//		return importRates(ctx, l.Fence) // ctx ends once the lease may be somebody else's
//	})
//
// # Stores
//
// A [Store] says where leases are kept, and with that what they are worth:
// lease/redislease on one Redis server, lease/quorum on a majority of
// independent ones, lease/pglock in sessions of PostgreSQL. docs/leases.md
// compares them, and says when none is needed.
//
// # What a holder may rely on
//
// While its lease is trusted nobody else is given it, as far as the store
// keeps its promise. The holder trusts a lease until the moment before the
// request was sent, plus the lease length, less a margin (queue.Margin), by
// the monotonic and the wall clock ([Lease.Trusted]). So it may stop sooner
// than the store thinks, never later. A function that does not look at its
// context goes on all the same, as does a request that has left: what stops
// these is the fence, compared by whatever is written to.
//
// # Waiting
//
// A wait is bounded by [Config.Wait] and by the context, and ends with
// [ErrHeld] or with the cause of the context. Who waits asks again with
// backoff and jitter, or queues at the server where the store can do that.
// Nobody's turn is promised: who came first may be last.
//
// # Re-entrance
//
// [Locker.Do], [Locker.Acquire] and [Locker.Try] with a context from inside Do
// for the same store and name answer [ErrReentrant] at once. It is the context
// that tells: a call that does not pass it on waits for itself until
// Config.Wait is over.
//
// # Goroutines
//
// Do runs two beside the caller's function, and returns when both have ended:
//
//	watch  ends the function's context when trust runs out. It makes no calls,
//	       so nothing can hold it up.
//	renew  extends the lease a third into its length. Its last call is waited
//	       for, so a client without timeouts of its own holds up Do.
//
// Nothing else here starts a goroutine, and there is no package-level state.
package lease
