package dedupe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/claimq/claimq/dedupe/internal/value"
	"github.com/claimq/claimq/queue"
)

// Bounds on asking the ledger again after a lost reply or while the server is
// away. Every question to it may be repeated.
const (
	ledgerTries = 5
	ledgerWait  = 50 * time.Millisecond // doubles at each try
	// recordTimeout bounds the record of a result as a whole. It does not end
	// with the handler's context.
	recordTimeout = 10 * time.Second
)

// Call has the effect. The key is the same at every attempt; hand it to the
// other side. Its result is kept: []byte, string and json.RawMessage as they
// are, anything else as JSON, at most queue.MaxResultBytes.
type Call[T any] func(ctx context.Context, key Key) (T, error)

// Check asks the other side whether the effect of an earlier call is there,
// and with what result.
type Check[T any] func(ctx context.Context, key Key) (result T, happened bool, err error)

// Step makes call happen once for the task of the lease, or returns what an
// earlier run of it recorded. name tells the steps of a task apart; it must
// not change between attempts, and two steps of the same name must not run at
// the same time.
//
// An error of the call is returned as it is; the step is then of unknown
// outcome, unless the error was marked by NotSent, and a later attempt calls
// again with the same key. Any other error is the ledger's, for which see
// package queue: with queue.ErrLeaseLost and queue.ErrStepConflict stop work
// on the task. Where the call was made, its result is returned with the error.
func Step[T any](ctx context.Context, ledger Ledger, l queue.Lease, name string, call Call[T]) (T, error) {
	return StepChecked(ctx, ledger, l, name, call, nil)
}

// StepChecked is Step with a Check that is asked before a call whose
// predecessor has an unknown outcome. Use it where the other side does not
// remember keys.
func StepChecked[T any](ctx context.Context, ledger Ledger, l queue.Lease, name string, call Call[T], check Check[T]) (T, error) {
	var zero T
	s := step{ledger: ledger, lease: l, name: name, key: KeyFor(l.Queue, l.TaskID, name)}
	before, err := s.intend(ctx)
	if err != nil {
		return zero, err
	}
	if before.State == queue.StepDone {
		return recorded(ctx, s, before.Result, check)
	}
	// The call may go out from here on: if this process ends now, the record
	// says that the outcome is unknown.
	unknown := before.State == queue.StepSent
	if unknown && check != nil {
		v, happened, err := check(ctx, s.key)
		if err != nil {
			return zero, fmt.Errorf("step %q: check: %w", name, err)
		}
		if happened {
			return v, finish(ctx, s, v)
		}
		unknown = false
	}
	v, err := call(ctx, s.key)
	if err != nil {
		// This call did not happen. An earlier one, of unknown outcome, still
		// may have: then the step stays as it is.
		if IsNotSent(err) && !unknown {
			// A failure to note it costs a later attempt a check, no more.
			_ = s.record(ctx, queue.StepPending, nil)
		}
		return zero, err
	}
	return v, finish(ctx, s, v)
}

// recorded returns the result of a step that is done.
func recorded[T any](ctx context.Context, s step, result []byte, check Check[T]) (T, error) {
	var v T
	detail, lost := unkept(result)
	if !lost {
		if err := value.Decode(result, &v); err != nil {
			return v, fmt.Errorf("step %q is done, but its result does not decode as %T: %w", s.name, v, err)
		}
		return v, nil
	}
	if check != nil {
		if v, happened, err := check(ctx, s.key); err == nil && happened {
			return v, nil
		}
	}
	return v, &NotKeptError{Step: s.name, Key: s.key, Detail: detail}
}

// finish records the result of a call that was made.
func finish[T any](ctx context.Context, s step, v T) error {
	result, detail := encode(v)
	if detail == "" {
		return s.record(ctx, queue.StepDone, result)
	}
	// The effect is there. To leave the step as sent would repeat it, so it is
	// done, with a note in the place of the result.
	err := s.record(ctx, queue.StepDone, result)
	return errors.Join(&NotKeptError{Step: s.name, Key: s.key, Detail: detail}, err)
}

// step is one step of one task in the hands of one lease.
type step struct {
	ledger Ledger
	lease  queue.Lease
	name   string
	key    Key
}

func (s step) intend(ctx context.Context) (before queue.Step, err error) {
	call := s.ledger.NewCall()
	err = s.ask(ctx, "intent", func() error {
		before, err = s.ledger.Intend(ctx, s.lease, s.name, s.key, call)
		return err
	})
	return before, err
}

// record is not bound to the handler's context: that it has ended is no reason
// to forget what was done.
func (s step) record(ctx context.Context, state queue.StepState, result []byte) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	return s.ask(ctx, "result", func() error {
		_, err := s.ledger.Record(ctx, s.lease, s.name, state, result)
		return err
	})
}

// ask puts a question to the ledger, again where that can help.
func (s step) ask(ctx context.Context, what string, question func() error) error {
	wait := ledgerWait
	for try := 1; ; try++ {
		if ctx.Err() != nil {
			return fmt.Errorf("step %q: %s: %w", s.name, what, context.Cause(ctx))
		}
		err := question()
		if err == nil {
			return nil
		}
		if try == ledgerTries || !queue.IsRetryable(err) || !sleep(ctx, wait) {
			return fmt.Errorf("step %q: %s: %w", s.name, what, err)
		}
		wait *= 2
	}
}

// sleep reports whether it slept to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
