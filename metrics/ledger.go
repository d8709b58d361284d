package metrics

import (
	"context"
	"errors"

	"github.com/claimq/claimq/dedupe"
	"github.com/claimq/claimq/queue"
)

// How a question to the ledger ended: the values of steps_total's outcome.
const (
	stepFirst    = "first"
	stepAgain    = "again"
	stepReplayed = "replayed"
	stepRecorded = "recorded"
	stepConflict = "conflict"
	stepFailed   = "failed"
)

// Ledger counts what becomes of recorded steps and changes nothing: it asks
// inner, and answers what inner answers. A question that is asked again after a
// failure counts again.
func (o *Observer) Ledger(inner dedupe.Ledger) dedupe.Ledger { return countedLedger{inner, o} }

type countedLedger struct {
	dedupe.Ledger
	o *Observer
}

func (c countedLedger) Intend(ctx context.Context, l queue.Lease, step string, key dedupe.Key, call queue.Token) (queue.Step, error) {
	before, err := c.Ledger.Intend(ctx, l, step, key, call)
	outcome := stepFirst
	switch {
	case err != nil:
		outcome = stepFailed
	case before.State == queue.StepDone:
		outcome = stepReplayed
	case before.State == queue.StepSent:
		outcome = stepAgain
	}
	c.o.of(l.Queue).steps.add(outcome, 1)
	return before, err
}

func (c countedLedger) Record(ctx context.Context, l queue.Lease, step string, state queue.StepState, result []byte) (queue.Step, error) {
	after, err := c.Ledger.Record(ctx, l, step, state, result)
	steps := c.o.of(l.Queue).steps
	switch {
	case errors.Is(err, queue.ErrStepConflict):
		steps.add(stepConflict, 1)
	case err != nil:
		steps.add(stepFailed, 1)
	case state == queue.StepDone:
		steps.add(stepRecorded, 1)
	}
	return after, err
}
