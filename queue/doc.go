// Package queue is the protocol: tasks on Redis Streams under short leases,
// every change of place one script on the server.
//
// # Identities
//
// A [TaskID] is chosen by the producer from the business action and stays the
// same at every retry and re-send. An [EntryID] is a position in a stream; a
// retried task gets a new one. A [Token] is random, made by the caller for
// every call that takes leases. A [Fence] grows with every lease on a task ID;
// handlers hand it to their own database. What one [Queue.Begin] call is given
// in one partition is a [Grant]: leases that share token, fence and end.
//
// # Places
//
// An accepted task that is not done is in exactly one place (invariant I1):
//
//	Enqueue ───▶ waiting ── Read, Begin ──▶ pending ── Complete ──▶ done
//	             ▲  ▲  ▲                     │  Renew keeps it
//	             │  │  └────── Release ──────┤
//	             │  └ Promote ─ scheduled ◀── Retry
//	             └─── Redrive ─ dead ◀─── DeadLetter
//
// A pending task is held (leased, handler not started) or started. A worker
// that dies while holding a task costs it nothing; one that dies after [Queue.Start]
// costs it an interruption.
//
// # Trust
//
// The server's clock decides every lease. A holder trusts its lease until the
// moment before the request was sent, plus the lease length, less a margin, by
// the larger of monotonic and wall time elapsed ([Lease.Trusted]); it may only
// stop sooner than the server thinks, never later.
//
// # Failures
//
// Every call ends in one of three ways: the answer; a definite refusal
// ([ErrUnavailable] and the others: nothing changed); or [ErrIndefinite], after
// which asking again with the same arguments gives the answer of the first
// (invariant I7). The package starts no goroutines, retries nothing, logs
// nothing; package consumer does.
//
// # Events
//
// What has happened to a task is told by [Queue.Timeline]: what is rare always,
// every step where Config.Trace is set. The scripts write it down, in a bounded
// place, and go on where they cannot.
//
// # Invariants
//
// I1 one place, I2 one holder, I3 the fence grows, I4 only the holder settles,
// I5 done is final, I6 on record before it happens, I7 safe to ask again, I8
// bounded, I9 soon. docs/protocol.md states them; comments say where each is
// kept.
package queue
