package postgres

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/claimq/claimq/dedupe"
	"github.com/claimq/claimq/queue"
)

// Ledger returns the ledger of one queue, for dedupe.Step. It behaves as the
// Redis ledger does, but for one thing: a holder that was replaced may still
// intend until its successor has used this Store, for only then does the
// database know of it.
func (s *Store) Ledger(queueName string) dedupe.Ledger { return ledger{s, queueName} }

type ledger struct {
	s     *Store
	queue string
}

func (ledger) NewCall() queue.Token { return queue.Token(rand.Text()) }

// row is a step with what recognises its last intent.
type row struct {
	queue.Step
	call, before string
}

// was is the step as it was before its last intent.
func (r row) was() queue.Step {
	if r.before == "" {
		return queue.Step{}
	}
	step := r.Step
	step.State, step.Calls = queue.StepState(r.before), step.Calls-1
	return step
}

func (g ledger) Intend(ctx context.Context, l queue.Lease, step string, key dedupe.Key, call queue.Token) (queue.Step, error) {
	if err := g.checkNames(l, step, key.String()); err != nil {
		return queue.Step{}, err
	}
	var before queue.Step
	err := g.inTx(ctx, func(tx pgx.Tx) error {
		// The row of the task first: it refuses who was replaced, and makes all
		// who ask about this task wait for one another.
		if err := g.s.Hold(ctx, tx, l); err != nil {
			return err
		}
		had, err := g.find(ctx, tx, sqlLockStep, l.TaskID, step)
		switch {
		case err != nil && !errors.Is(err, pgx.ErrNoRows):
			return err
		case err == nil && had.State == queue.StepDone:
			before = had.Step
			return nil
		case err == nil && had.call == string(call): // asked again
			before = had.was()
			return nil
		}
		before = had.Step
		number, err := g.numberOf(ctx, tx, l.TaskID, had)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, g.s.sql(sqlPutIntent), g.queue, string(l.TaskID), step, number, key.String(), int64(l.Fence), string(call), string(had.State))
		return err
	})
	if errors.Is(err, ErrFenced) {
		err = fmt.Errorf("step %s: the intent is not recorded: %w", step, err)
	}
	return before, err
}

// numberOf is the place of a step among those of its task; it is of use for a
// new one only.
func (g ledger) numberOf(ctx context.Context, tx pgx.Tx, id queue.TaskID, had row) (number int, err error) {
	if had.State != "" {
		return 0, nil
	}
	err = tx.QueryRow(ctx, g.s.sql(sqlCountSteps), g.queue, string(id)).Scan(&number)
	if err == nil && number >= queue.MaxSteps {
		err = badTask("Step", "a task has at most %d recorded steps", queue.MaxSteps)
	}
	return number, err
}

func (g ledger) Record(ctx context.Context, l queue.Lease, step string, state queue.StepState, result []byte) (queue.Step, error) {
	if err := g.checkNames(l, step, "-"); err != nil {
		return queue.Step{}, err
	}
	switch {
	case len(result) > queue.MaxResultBytes:
		return queue.Step{}, badTask("Result", "at most %d bytes are kept, got %d: keep a reference instead", queue.MaxResultBytes, len(result))
	case state != queue.StepDone && state != queue.StepPending:
		return queue.Step{}, badTask("State", "record %q or %q, got %q", queue.StepDone, queue.StepPending, state)
	}
	var after row
	err := g.inTx(ctx, func(tx pgx.Tx) error {
		if state == queue.StepPending {
			if err := g.holder(ctx, tx, l); err != nil {
				return err
			}
		}
		tag, err := tx.Exec(ctx, g.s.sql(sqlPutResult), g.queue, string(l.TaskID), step, string(state), result)
		if err != nil {
			return err
		}
		after, err = g.find(ctx, tx, sqlStep, l.TaskID, step)
		if errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("%w: task %s, step %s: nothing was recorded", queue.ErrLeaseLost, l.TaskID, step)
		}
		same := state == queue.StepDone && bytes.Equal(after.Result, result)
		if err == nil && tag.RowsAffected() == 0 && !same {
			return fmt.Errorf("%w: task %s, step %s", queue.ErrStepConflict, l.TaskID, step)
		}
		return err
	})
	return after.Step, err
}

// holder refuses a lease that a later one has followed.
func (g ledger) holder(ctx context.Context, tx pgx.Tx, l queue.Lease) error {
	var seen int64
	err := tx.QueryRow(ctx, g.s.sql(sqlLockTask), g.queue, string(l.TaskID)).Scan(&seen)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	if queue.Fence(seen) > l.Fence {
		return &FencedError{TaskID: l.TaskID, Fence: l.Fence, Seen: queue.Fence(seen)}
	}
	return nil
}

func (g ledger) Steps(ctx context.Context, id queue.TaskID) ([]queue.Step, error) {
	rows, err := g.s.pool.Query(ctx, g.s.sql(sqlSteps), g.queue, string(id))
	if err != nil {
		return nil, said(err, false)
	}
	steps, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (queue.Step, error) {
		var st queue.Step
		var state string
		var fence int64
		err := r.Scan(&st.Name, &st.Key, &state, &fence, &st.Calls, &st.At, &st.Result)
		st.State, st.Fence = queue.StepState(state), queue.Fence(fence)
		return st, err
	})
	if err != nil {
		return nil, said(err, false)
	}
	if len(steps) == 0 {
		return nil, fmt.Errorf("%w: %s", queue.ErrNotFound, id)
	}
	return steps, nil
}

func (g ledger) find(ctx context.Context, tx pgx.Tx, sql string, id queue.TaskID, step string) (row, error) {
	r := row{}
	var state string
	var fence int64
	err := tx.QueryRow(ctx, g.s.sql(sql), g.queue, string(id), step).
		Scan(&r.Key, &state, &fence, &r.Calls, &r.At, &r.Result, &r.call, &r.before)
	if err != nil {
		return row{}, err
	}
	r.Name, r.State, r.Fence = step, queue.StepState(state), queue.Fence(fence)
	return r, nil
}

// inTx runs f in a transaction. Its errors are those of package queue.
func (g ledger) inTx(ctx context.Context, f func(pgx.Tx) error) error {
	tx, err := g.s.pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: g.s.beginSQL()})
	if err != nil {
		return said(causeOf(ctx, err), false)
	}
	defer rollBack(ctx, tx)
	if err := f(tx); err != nil {
		if ours(err) {
			return err
		}
		return said(causeOf(ctx, err), false)
	}
	// Asked again it gets the same answer, so an outcome that is not known is
	// left to the caller.
	return said(tx.Commit(ctx), true)
}

// ours reports whether an error is an answer of this package and not one of the
// server's.
func ours(err error) bool {
	for _, known := range []error{ErrFenced, queue.ErrLeaseLost, queue.ErrStepConflict, queue.ErrInvalidTask, queue.ErrUnavailable, ErrSchema} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

func (g ledger) checkNames(l queue.Lease, step, key string) error {
	const chars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	switch {
	case l.Queue != g.queue:
		return badTask("Lease", "this is the ledger of queue %q, not of %q", g.queue, l.Queue)
	case step == "" || len(step) > queue.MaxStepBytes || strings.Trim(step, chars) != "":
		return badTask("Step", "name it with 1 to %d letters, digits, '.', '_' or '-', got %q", queue.MaxStepBytes, step)
	case key == "" || len(key) > maxKeyBytes || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }):
		return badTask("Key", "use 1 to %d bytes of printable ASCII without spaces", maxKeyBytes)
	}
	return nil
}

const maxKeyBytes = 128

func badTask(field, remedy string, args ...any) error {
	return &queue.FieldError{Field: field, Remedy: fmt.Sprintf(remedy, args...), Kind: queue.ErrInvalidTask}
}
