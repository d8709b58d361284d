package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/claimq/claimq/queue"
)

// taken is a row as it was read, and the task that it says.
type taken struct {
	id     int64
	task   queue.Task
	sentAt time.Time // of rows that were sent before
	err    error     // why it is no task
}

// batch takes rows, sends them, and deletes those that the queue has accepted,
// in one transaction. In which order is everything here:
//
//   - A relay that dies before the queue has the tasks has changed nothing.
//   - One that dies after that, or whose commit fails or is not answered, may
//     leave the rows where they are. The next one sends them again, and the
//     queue, which knows their IDs, adds nothing.
//
// The rows stay locked meanwhile, so that no other relay sends them as well.
// Deleting first and sending after the commit would lose what a crash between
// the two had in hand.
func (r *Relay) batch(ctx context.Context, db beginner, round *Round) {
	tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		round.Err = err
		return
	}
	defer func() { _ = tx.Rollback(ctx) }() // does nothing after a commit; if it fails, it closes the connection
	rows, err := r.take(ctx, tx)
	if err != nil || len(rows) == 0 {
		round.Err = err
		return
	}
	round.Taken = len(rows)
	r.at("taken")
	sent, refused := r.send(ctx, rows, round)
	r.at("sent")
	if len(sent)+len(refused) == 0 {
		return
	}
	if err := r.settle(ctx, tx, sent, refused); err != nil {
		round.Err = fmt.Errorf("deleting what was sent: %w", err)
		return
	}
	r.at("settled")
	if err := tx.Commit(ctx); err != nil {
		round.Err = fmt.Errorf("committing what was sent: %w", err)
		return
	}
	round.moved = len(sent) + len(refused)
	r.at("committed")
}

// beginner is a connection or a pool.
type beginner interface {
	BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error)
}

// take locks the first rows that nobody else has.
func (r *Relay) take(ctx context.Context, tx pgx.Tx) ([]taken, error) {
	b := &pgx.Batch{}
	b.Queue(sqlBegin, strconv.FormatInt(r.cfg.Timeout.Milliseconds(), 10), r.lock)
	b.Queue(r.schema.sql(sqlTake), r.q.Name(), r.cfg.Batch)
	answers := tx.SendBatch(ctx, b)
	defer answers.Close()
	if _, err := answers.Exec(); err != nil {
		return nil, err
	}
	rows, err := answers.Query()
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t taken, err error) { return t, t.scan(row) })
	return all, errors.Join(err, answers.Close())
}

// scan reads a row of the columns in task, and of further ones. A row that is
// no task is no error: it would be in the way of the others for ever.
func (t *taken) scan(row pgx.CollectableRow, more ...any) error {
	var id string
	var headers []byte
	var delay int64
	var due, deadline *time.Time
	to := []any{&t.id, &id, &t.task.Kind, &t.task.Payload, &t.task.ContentType, &headers, &delay, &due, &deadline}
	if err := row.Scan(append(to, more...)...); err != nil {
		return err
	}
	t.task.ID = queue.TaskID(id)
	t.task.Delay = time.Duration(delay) * time.Millisecond
	if due != nil {
		t.task.Due = *due
	}
	if deadline != nil {
		t.task.Deadline = *deadline
	}
	if len(headers) > 0 {
		if err := json.Unmarshal(headers, &t.task.Headers); err != nil {
			t.err = fmt.Errorf("%w: headers: the values are strings: %w", queue.ErrInvalidTask, err)
		}
	}
	return nil
}

// send enqueues the rows in their order and tells apart what has become of
// them.
func (r *Relay) send(ctx context.Context, rows []taken, round *Round) (sent []int64, refused map[int64]error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout/2) // the rest is for the commit
	defer cancel()
	refused = map[int64]error{}
	var at []int
	var tasks []queue.Task
	for i, row := range rows {
		if row.err != nil {
			refused[row.id] = row.err
			continue
		}
		at, tasks = append(at, i), append(tasks, row.task)
	}
	receipts, _ := r.producer.EnqueueMany(ctx, tasks) // each receipt has its error
	var why error
	for n, receipt := range receipts {
		id := rows[at[n]].id
		switch {
		case receipt.Err == nil:
			sent = append(sent, id)
			if receipt.Added {
				round.Added++
			} else {
				round.Duplicate++
			}
		case errors.Is(receipt.Err, queue.ErrInvalidTask):
			refused[id] = receipt.Err
		default:
			round.Left++
			if why == nil || permanent(receipt.Err) {
				why = fmt.Errorf("task %s: %w", receipt.ID, receipt.Err)
			}
		}
	}
	round.Refused = len(refused)
	if why != nil {
		round.Err = fmt.Errorf("%d of %d tasks stay in the outbox: %w", round.Left, round.Taken, why)
	}
	return sent, refused
}

// settle moves the rows to where they belong now.
func (r *Relay) settle(ctx context.Context, tx pgx.Tx, sent []int64, refused map[int64]error) error {
	b := &pgx.Batch{}
	statement := sqlSent
	if r.cfg.Keep == 0 {
		statement = sqlDelete
	}
	if len(sent) > 0 {
		b.Queue(r.schema.sql(statement), sent)
	}
	if len(refused) > 0 {
		var ids []int64
		var why []string
		for id, err := range refused {
			ids, why = append(ids, id), append(why, err.Error())
		}
		b.Queue(r.schema.sql(sqlRefused), ids, why)
	}
	return tx.SendBatch(ctx, b).Close()
}

// forget deletes up to forgetRows sent rows that were kept long enough.
func (r *Relay) forget(ctx context.Context, db executor) (int64, error) {
	tag, err := db.Exec(ctx, r.schema.sql(sqlForget), r.q.Name(), r.cfg.Keep, forgetRows)
	return tag.RowsAffected(), err
}
