package consumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/claimq/claimq/queue"
)

// TestOutcomeOf: what middleware is told is what the worker does.
func TestOutcomeOf(t *testing.T) {
	plain := errors.New("plain")
	var undecodable error
	if undecodable = decode([]byte("{"), new(int)); undecodable == nil {
		t.Fatal("an open brace decodes as a number")
	}
	causes := []error{nil, ErrTaskTimeout, ErrDraining, queue.ErrLeaseLost, plain, fmt.Errorf("wrapped: %w", queue.ErrLeaseLost)}
	returns := []struct {
		result []byte
		err    error
	}{
		{nil, nil},
		{make([]byte, queue.MaxResultBytes), nil},
		{make([]byte, queue.MaxResultBytes+1), nil},
		{nil, plain},
		{nil, DeadLetter(plain)},
		{nil, undecodable},
		{nil, RetryAfter(time.Second, plain)},
		{nil, fmt.Errorf("wrapped: %w", Release(nil))},
		{nil, &PanicError{}},
	}
	verbs := map[verb]queue.Outcome{
		verbComplete: queue.Completed, verbRetry: queue.Retried, verbRelease: queue.Released, verbDeadLetter: queue.DeadLettered,
	}
	w := &Worker{jitter: newJitter(rand.NewPCG(1, 1)), cfg: Config{RetryBase: time.Second, RetryMax: time.Minute}}
	for _, cause := range causes {
		ctx, cancel := context.WithCancelCause(context.Background())
		if cause != nil {
			cancel(cause)
		}
		for _, r := range returns {
			v := w.verdictOf(&item{}, r.result, r.err, cause)
			want := verbs[v.verb]
			if errors.Is(cause, queue.ErrLeaseLost) && r.err != nil && !v.stands {
				want = queue.Lost // as finish drops it
			}
			outcome, reason := OutcomeOf(ctx, r.result, r.err)
			if outcome != want || reason != v.reason {
				t.Errorf("%d bytes, %T %v, context ended by %v: told %q, %q; the worker does %q, %q",
					len(r.result), r.err, r.err, cause, outcome, reason, want, v.reason)
			}
		}
		cancel(nil)
	}
}
