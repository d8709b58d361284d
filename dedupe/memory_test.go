package dedupe_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/claimq/claimq/dedupe"
	"github.com/claimq/claimq/queue"
)

// memoryLedger follows the contract of Ledger for one task. Faults are errors
// for the next asks, in order; nil lets one through.
type memoryLedger struct {
	mu     sync.Mutex
	holder queue.Fence
	steps  map[string]queue.Step

	calls  int         // names made
	last   queue.Token // of the last intent
	before queue.Step  // what it was answered

	intendFaults, recordFaults []fault
	asked                      []string
}

// fault fails an ask, before or after it was applied.
type fault struct {
	err     error
	applied bool
}

func newMemory(holder queue.Fence) *memoryLedger {
	return &memoryLedger{holder: holder, steps: map[string]queue.Step{}}
}

func next(faults *[]fault) fault {
	if len(*faults) == 0 {
		return fault{}
	}
	f := (*faults)[0]
	*faults = (*faults)[1:]
	return f
}

func (m *memoryLedger) NewCall() queue.Token {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	return queue.Token(fmt.Sprint(m.calls))
}

func (m *memoryLedger) Intend(_ context.Context, l queue.Lease, step string, key dedupe.Key, call queue.Token) (queue.Step, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, "intend")
	f := next(&m.intendFaults)
	if f.err != nil && !f.applied {
		return queue.Step{}, f.err
	}
	if l.Fence != m.holder {
		return queue.Step{}, fmt.Errorf("%w: fence %d", queue.ErrLeaseLost, l.Fence)
	}
	before := m.steps[step]
	if m.last == call { // asked again
		return m.before, f.err
	}
	m.last, m.before = call, before
	if before.State != queue.StepDone {
		after := before
		after.Name, after.State, after.Key, after.Fence = step, queue.StepSent, key.String(), l.Fence
		after.Calls++
		m.steps[step] = after
	}
	return before, f.err
}

func (m *memoryLedger) Record(ctx context.Context, l queue.Lease, step string, state queue.StepState, result []byte) (queue.Step, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, "record "+string(state))
	if ctx.Err() != nil {
		return queue.Step{}, fmt.Errorf("%w: %w", queue.ErrIndefinite, ctx.Err())
	}
	f := next(&m.recordFaults)
	if f.err != nil && !f.applied {
		return queue.Step{}, f.err
	}
	s := m.steps[step]
	switch {
	case s.State == queue.StepDone && (state != queue.StepDone || !bytes.Equal(s.Result, result)):
		return s, queue.ErrStepConflict
	case state == queue.StepPending && l.Fence != m.holder:
		return s, queue.ErrLeaseLost
	}
	s.State, s.Result = state, result
	m.steps[step] = s
	return s, f.err
}

func (m *memoryLedger) Steps(context.Context, queue.TaskID) ([]queue.Step, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []queue.Step
	for _, s := range m.steps {
		all = append(all, s)
	}
	return all, nil
}
