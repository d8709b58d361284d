// Package dedupe makes the effect of a task happen once although its handler
// may run more than once.
//
// A Step is one call to the outside: a charge, a mail, a message. Its life is
// kept in a Ledger, under the task's ID and the step's name:
//
//	(nothing) ──Intend──▶ sent ──Record──▶ done
//	                       ▲ │
//	                Intend │ │ the call, or a check, says: it did not happen
//	                       │ ▼
//	                     pending
//
// and Step goes through it in this order:
//
//  1. Intend: the ledger notes that the call is about to go out and answers
//     what it knew before. Only the holder of the lease may do this.
//  2. If a result is on record, return it. Nothing is called.
//  3. If an earlier call went out and its outcome is unknown, and there is a
//     Check, ask it. If the effect is there, go to 5.
//  4. Call, with a Key that is the same at every attempt.
//  5. Record the result. It is offered even when the handler's context has
//     ended or the lease was lost: of the two errors, forgetting a charge that
//     was made and keeping one by a worker that was replaced, the first is
//     worse.
//
// # Where a crash leaves it
//
//	before 1            nothing on record; the next attempt starts afresh
//	after 1, before 4   sent, though nothing went out; the next attempt calls
//	                    (or checks first): the effect is there once
//	during or after 4   sent, and the effect may be there; the next attempt
//	                    calls again with the same key, or checks first
//	after 5             done; the next attempt returns the result, no call
//
// The second and third rows look the same from outside, which is why the key
// has to be the same, and why a side that ignores keys needs a Check.
//
// # What guards, and what each guard leaves open
//
//	guard                           stops                                   leaves open
//	the context of the lease        a replaced holder, most of the time     a request that has left already
//	the step on record              repeating a call that was finished      a crash between call and record
//	the same key to the other side  that crash, if the other side           what happens once it has forgotten the
//	                                remembers keys                          key: keep all retries shorter than that
//	a Check before a second call    that crash, where keys are ignored      a first request that is still on its way
//	the fence in your own writes    a late holder that overwrites           stores that do not compare it
//
// The Redis ledger lives where the tasks live. A server that loses
// acknowledged writes (failover, an older snapshot) loses steps with them;
// then only the key, or a Check, prevents a second effect. The ledger of package
// dedupe/postgres outlives that, and for effects in the same database its Tx
// leaves no gap at all.
//
// The package starts no goroutine and keeps no state.
package dedupe
