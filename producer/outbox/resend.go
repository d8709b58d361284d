package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/queue"
)

// executor is a pool, a connection or a transaction.
type executor interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Resend sends everything again that the queue accepted within the last window
// of time, by the database's clock: after Redis has forgotten its last seconds
// or was restored from an older copy. Relays may go on meanwhile. What the
// queue still knows, live or done, it refuses as a duplicate; what it had
// forgotten is added, and counted as such.
//
// The window must leave room for RelayConfig.Timeout within the queue's
// Retention, or the IDs of finished tasks might be forgotten and these run
// again; queue.ErrInvalidConfig. Rows are there for RelayConfig.Keep. If Redis
// lost the record of a task that was done, the task is added and runs again,
// and so does one that was deleted from the queue on purpose.
//
// The summary counts what was sent, also with an error: a *producer.Error for
// the first tasks that were not added, after which the rest is not sent, or the
// database's. Calling again is safe.
func (r *Relay) Resend(ctx context.Context, window time.Duration) (producer.Summary, error) {
	var sum producer.Summary
	if retention := r.q.Config().Retention; window <= 0 || window+r.cfg.Timeout > retention {
		return sum, badConfig("window", "use a positive duration up to %v (the queue's Retention less Timeout), got %v", retention-r.cfg.Timeout, window)
	}
	conn, err := r.pool.Acquire(ctx)
	if err != nil {
		return sum, err
	}
	defer conn.Release()
	if err := r.schema.check(ctx, conn); err != nil {
		return sum, err
	}
	from, to, err := r.window(ctx, conn, window)
	if err != nil {
		return sum, err
	}
	for id := int64(0); ; {
		page, err := r.page(ctx, conn, from, id, to)
		if err != nil || len(page) == 0 {
			return sum, r.schema.said(err)
		}
		last := page[len(page)-1]
		from, id = last.sentAt, last.id
		if err := r.again(ctx, page, &sum); err != nil {
			return sum, err
		}
	}
}

// window returns the bounds of what is sent again. Batches that were being sent
// when it began are waited for, and so are within them or still in the outbox.
func (r *Relay) window(ctx context.Context, conn *pgxpool.Conn, window time.Duration) (from, to time.Time, err error) {
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, sqlWindow, window).Scan(&from, nil); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, sqlSettled, r.lock); err != nil {
			return err
		}
		return tx.QueryRow(ctx, sqlWindow, window).Scan(nil, &to)
	})
	return from, to, err
}

// page reads the sent rows that come after one.
func (r *Relay) page(ctx context.Context, db querier, from time.Time, id int64, to time.Time) ([]taken, error) {
	rows, err := db.Query(ctx, r.schema.sql(sqlPage), r.q.Name(), from, id, to, r.cfg.Batch)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (t taken, err error) { return t, t.scan(row, &t.sentAt) })
}

// again sends one page and adds up its answers.
func (r *Relay) again(ctx context.Context, page []taken, sum *producer.Summary) error {
	tasks := make([]queue.Task, len(page))
	for i, row := range page {
		tasks[i] = row.task
	}
	receipts, err := r.producer.EnqueueMany(ctx, tasks)
	s := producer.Summarize(receipts)
	sum.Added += s.Added
	sum.Duplicate += s.Duplicate
	sum.Refused += s.Refused
	sum.Full += s.Full
	sum.Indefinite += s.Indefinite
	sum.Unsent += s.Unsent
	if s.Full+s.Indefinite+s.Unsent == 0 && !errors.Is(err, queue.ErrMismatch) {
		return nil // what is refused now keeps no other from being sent
	}
	return fmt.Errorf("sending again: %w", err)
}

// RetryRefused puts the rows of a queue that were set aside back into the
// outbox, after what they were refused for was changed. It returns their
// number.
func RetryRefused(ctx context.Context, pool *pgxpool.Pool, schemaName, queueName string) (int64, error) {
	s, err := schemaNamed(schemaName)
	if err != nil {
		return 0, err
	}
	tag, err := pool.Exec(ctx, s.sql(sqlRetry), queueName)
	return tag.RowsAffected(), s.said(err)
}
