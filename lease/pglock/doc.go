// Package pglock keeps leases as advisory locks of PostgreSQL 12 or newer.
//
//	conn, err := pgx.ParseConfig(url)
//	store, err := pglock.New(pglock.Config{Conn: conn})
//	defer store.Close()
//	err = store.Setup(ctx) // makes the table of fences, once
//	locker, err := lease.New(store, lease.Config{})
//
// # Session scope
//
// Each lease has a connection of its own, opened for it and closed with it. It
// is in no pool: a lock on a pooled connection stays behind when the connection
// is handed back, and another part of the program then has it unknowingly.
// Connect to the primary itself. A pooler that changes sessions between
// transactions gives the lock to somebody else's session; that is seen at the
// next renewal, and the lease is then lost.
//
// # What it promises
//
// The lock is held as long as its session lives, however long its holder is
// paused. Nobody else gets it meanwhile.
//
// # What it does not
//
// It does not expire. A holder whose process is gone loses its session at once,
// since the operating system closes the connection. One whose machine is gone
// or cut off loses it when the server has heard nothing for the lease length
// (TCP keepalives, set for each session; at most four seconds more). One that
// merely hangs keeps its lock until somebody ends its session
// (pg_terminate_backend; application_name says whose it is).
//
// Where the server ends the session (a restart, an order), the lock is free at
// once. The holder sees its connection close, as a rule within milliseconds;
// when the way is cut as well, its trust runs out within the length. Locks are
// not replicated, so after a failover the new primary knows of none: a holder
// that the old primary goes on answering is then a second one, until that is
// shut down. Locks of one database do not concern another.
//
// # Fence
//
// Advisory locks have none. The session that holds the lock takes one from a
// table, the larger of the last one plus one and the server's microseconds, and
// commits it at once. A row may be removed when nobody holds its name; the clock
// goes on from there. Config.NoFence does without the table, and leases then
// have the fence 0.
//
// # Keys
//
// A lock has a number, not a name. [Store.Key] is the first eight bytes of the
// SHA-256 of prefix, ":" and name. Two names with one number would exclude each
// other and nothing worse; among a million names that has a chance of one in
// thirty million.
//
// # Transaction scope
//
// [Store.LockTx] serialises the rest of a transaction that the caller has. The
// lock ends with the transaction, needs no renewal and no fence: a transaction
// whose session is gone cannot commit.
//
// The package starts no goroutines. Its state is the sessions of the leases it
// gave out; Close ends them.
package pglock
