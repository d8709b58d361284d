// Package postgres keeps what was done in PostgreSQL, beside the effects
// themselves: it still holds when Redis has forgotten everything.
//
//	store, err := postgres.New(pool, postgres.Config{})
//	_, err = store.Migrate(ctx) // once, or `worker migrate`
//	…
//	receipt, err := postgres.Tx(ctx, store, lease, func(ctx context.Context, tx pgx.Tx) (string, error) {
//		_, err := tx.Exec(ctx, "update accounts set balance = balance - $1 where id = $2", cents, account)
//		return receiptID, err
//	})
//
// Tx runs the handler's own SQL and the record that the task is done in one
// transaction. A second run of the task, at the same time or a year later, gets
// the result of the first and changes nothing. For effects elsewhere there is
// Ledger, to be used with dedupe.Step.
//
// # How a Tx ends
//
//	Committed   effect and record are there; return nil, and the task is completed
//	Done        they were there before; the result on record is returned, no SQL was run
//	Fenced      a later lease on the task has been here; nothing changed (ErrFenced)
//	RolledBack  nothing changed (ErrRolledBack); the error of the handler's SQL is wrapped
//	Unknown     the server was asked to commit and nobody could be asked what
//	            became of it (queue.ErrIndefinite); the next attempt finds out
//
// Deadlocks, serialisation failures and connections that broke before the
// commit are tried again, with the whole function.
//
// # When the answer to COMMIT is lost
//
// Store reads on another connection, and never guesses. The transaction may
// still be running on the server, and a plain SELECT would then see nothing and
// call it rolled back. So the reader inserts the row of the task itself: the
// unique key makes it wait until the first transaction has ended, either way.
// Then it looks for the token of this attempt, and rolls its own insert back.
//
// # Two at the same time
//
// The row of the task is written first, before the handler's SQL, so of two
// transactions for one task the second waits for the first to end. From the
// second attempt of a task on, its fence is put on record beforehand, in a
// transaction of its own; a holder that was replaced is refused from then on. A
// client that froze with a transaction open holds others up for
// Config.IdleTimeout at most.
//
// The package starts no goroutine and never closes the pool.
package postgres
