package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/claimq/claimq/queue"
)

// Completion is the record that a task is done.
type Completion struct {
	TaskID queue.TaskID
	Fence  queue.Fence // of the lease under which it was done, or of a later one
	DoneAt time.Time   // server's clock, beginning of the transaction
	Result []byte
}

// Completed returns the completions of those tasks that are done, by ID. A job
// that enqueues again what is not done asks this first.
func (s *Store) Completed(ctx context.Context, queueName string, ids ...queue.TaskID) (map[queue.TaskID]Completion, error) {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = string(id)
	}
	found := map[queue.TaskID]Completion{}
	rows, err := s.pool.Query(ctx, s.sql(sqlCompleted), queueName, texts)
	if err != nil {
		return nil, said(causeOf(ctx, err), false)
	}
	var id string
	var fence int64
	var c Completion
	_, err = pgx.ForEachRow(rows, []any{&id, &fence, &c.DoneAt, &c.Result}, func() error {
		c.TaskID, c.Fence = queue.TaskID(id), queue.Fence(fence)
		found[c.TaskID] = c
		return nil
	})
	if err != nil {
		return nil, said(causeOf(ctx, err), false)
	}
	return found, nil
}

// Forget removes what is known of a task, so that its ID can be used for
// another one. Leases on it up to the fence last are refused from now on: a run
// that is under way when the task is deleted leaves nothing behind. Ask
// queue.Queue.Inspect for that fence before queue.Queue.Delete, and call this
// after it. A run that has committed has had its effect, and that stays.
//
// It may be called again. Other errors than those of the server do not occur.
func (s *Store) Forget(ctx context.Context, queueName string, id queue.TaskID, last queue.Fence) error {
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: s.beginSQL()})
	if err != nil {
		return said(causeOf(ctx, err), false)
	}
	defer rollBack(ctx, tx)
	if _, err := tx.Exec(ctx, s.sql(sqlForget), queueName, string(id), int64(last)+1); err != nil {
		return said(causeOf(ctx, err), false)
	}
	if _, err := tx.Exec(ctx, s.sql(sqlForgetSteps), queueName, string(id)); err != nil {
		return said(causeOf(ctx, err), false)
	}
	return said(tx.Commit(ctx), true)
}
