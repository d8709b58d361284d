package dedupe

import (
	"context"

	"github.com/claimq/claimq/queue"
)

// Ledger keeps the steps of tasks. Its methods retry nothing; their errors are
// those of package queue.
type Ledger interface {
	// Intend notes that the step is about to be called and returns it as it
	// was before (zero State: never tried). A step that is done is left as it
	// is. Only the holder may intend; others get queue.ErrLeaseLost.
	//
	// Invariant I6: no recorded step calls out before its intent is on record.
	// call, from NewCall, names the intent: asked again with the same one, it
	// gets the answer of the first.
	Intend(ctx context.Context, l queue.Lease, step string, key Key, call queue.Token) (queue.Step, error)

	// NewCall makes a name for one intent.
	NewCall() queue.Token

	// Record notes the outcome. queue.StepDone with a result is kept from
	// anybody while none is recorded; the same result again is no error, a
	// different one is queue.ErrStepConflict and the recorded one stays.
	// queue.StepPending, known not to have happened, is for the holder only.
	Record(ctx context.Context, l queue.Lease, step string, state queue.StepState, result []byte) (queue.Step, error)

	// Steps lists the steps of a task.
	Steps(ctx context.Context, id queue.TaskID) ([]queue.Step, error)
}

// NewRedisLedger returns the ledger that lives beside the tasks of q. Leases
// handed to it must be q's own.
func NewRedisLedger(q *queue.Queue) Ledger { return redisLedger{q} }

type redisLedger struct{ q *queue.Queue }

func (r redisLedger) NewCall() queue.Token { return r.q.NewToken() }

func (r redisLedger) Intend(ctx context.Context, l queue.Lease, step string, key Key, call queue.Token) (queue.Step, error) {
	return r.q.StepIntent(ctx, l, step, key.String(), call)
}

func (r redisLedger) Record(ctx context.Context, l queue.Lease, step string, state queue.StepState, result []byte) (queue.Step, error) {
	return r.q.StepResult(ctx, l, step, state, result)
}

func (r redisLedger) Steps(ctx context.Context, id queue.TaskID) ([]queue.Step, error) {
	return r.q.Steps(ctx, id)
}
