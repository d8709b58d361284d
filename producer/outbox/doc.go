// Package outbox enqueues tasks in database transactions: what a transaction
// writes and its task come about together, or not at all.
//
//	box, err := outbox.New(outbox.Config{Queue: "invoices"})
//	…
//	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		if _, err := tx.Exec(ctx, "insert into invoices …"); err != nil {
//			return err
//		}
//		return box.Add(ctx, tx, queue.Task{ID: "invoice-4821-send", Kind: "invoice.send"})
//	})
//
// Add writes a row in PostgreSQL. A Relay, in this program or as `producer
// relay`, moves rows of committed transactions to the queue. Migrate makes the
// tables.
//
// # What it gives
//
// A committed row is enqueued, once, however often relays die on the way: the
// row is deleted after the queue has accepted its task, and a task that is sent
// a second time is known by its ID. That holds as long as the queue remembers
// the ID: while the task is live, and for queue.Config.Retention after it is
// done. A row is sent again at most seconds after a relay died, and later only
// if the database was away.
//
// What Redis forgets after it accepted a task, Relay.Resend sends again.
//
// # Order
//
// A relay sends rows in the order in which they were written: the rows of one
// transaction in their order, and those of a transaction that began to write
// after another had committed, after those of the other. A row that the queue
// does not take for the moment (it is full, say) stays, and is overtaken by
// later ones that it takes. With several relays, batches that are on their way
// at the same time overtake each other. Tasks in a queue are not ordered
// anyway: they start roughly in the order in which they came.
//
// # Waking
//
// Add tells listening relays that there are rows (NOTIFY). Nothing depends on
// it: each relay looks once in RelayConfig.Poll.
//
// The package starts no goroutine, logs nothing and closes nothing it was given.
package outbox
