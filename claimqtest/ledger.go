package claimqtest

import (
	"context"
	"errors"
	"fmt"

	"github.com/claimq/claimq/dedupe"
	"github.com/claimq/claimq/queue"
)

// Ledger returns the Redis ledger of the worker's queue.
func (w *Worker) Ledger() dedupe.Ledger { return w.Named(dedupe.NewRedisLedger(w.queue)) }

// Named returns the ledger l, made with Worker.Queue or Worker.Pool, whose
// points are called by their steps in reports.
func (w *Worker) Named(l dedupe.Ledger) dedupe.Ledger { return named{l} }

// Watch returns the ledger l with every Intend and Record a point: for one in a
// store that the kit does not see.
func (w *Worker) Watch(l dedupe.Ledger) dedupe.Ledger { return seen{l, w} }

// step is what a ledger is being asked, in a context.
type step struct{ what, name string }

type stepKey struct{}

type named struct{ dedupe.Ledger }

func (n named) Intend(ctx context.Context, l queue.Lease, name string, key dedupe.Key, call queue.Token) (queue.Step, error) {
	ctx = context.WithValue(ctx, stepKey{}, step{"the intent", name})
	return n.Ledger.Intend(ctx, l, name, key, call)
}

func (n named) Record(ctx context.Context, l queue.Lease, name string, state queue.StepState, result []byte) (queue.Step, error) {
	ctx = context.WithValue(ctx, stepKey{}, step{"the result", name})
	return n.Ledger.Record(ctx, l, name, state, result)
}

type seen struct {
	dedupe.Ledger
	w *Worker
}

func (s seen) Intend(ctx context.Context, l queue.Lease, name string, key dedupe.Key, call queue.Token) (before queue.Step, err error) {
	err = s.ask(ctx, "the intent of step "+name, func() error {
		before, err = s.Ledger.Intend(ctx, l, name, key, call)
		return err
	})
	if err != nil {
		return queue.Step{}, err
	}
	return before, nil
}

func (s seen) Record(ctx context.Context, l queue.Lease, name string, state queue.StepState, result []byte) (after queue.Step, err error) {
	err = s.ask(ctx, "the result of step "+name, func() error {
		after, err = s.Ledger.Record(ctx, l, name, state, result)
		return err
	})
	if err != nil {
		return queue.Step{}, err
	}
	return after, nil
}

// ask puts what the kit does to a call into the words of package queue.
func (s seen) ask(ctx context.Context, what string, question func() error) error {
	err := s.w.Do(ctx, what, question)
	if errors.Is(err, errRequest) || errors.Is(err, errReply) {
		return fmt.Errorf("%w: %w", queue.ErrIndefinite, err)
	}
	return err
}
