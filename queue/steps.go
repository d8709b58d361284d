package queue

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// StepState is how far a recorded step has got.
type StepState string

// The states of a step.
const (
	StepPending StepState = "pending" // known not to have happened
	StepSent    StepState = "sent"    // intent on record; the call may have gone out
	StepDone    StepState = "done"    // result on record
)

// Step is one recorded step of a task. Steps of an unfinished or dead task
// never expire; those of a finished one are kept as long as its done mark.
type Step struct {
	Name   string
	State  StepState // empty: never tried
	Key    string    // idempotency key
	Fence  Fence     // of the last lease that recorded an intent
	Calls  int       // intents recorded
	At     time.Time // last change, server's clock
	Result []byte    // when done
}

// StepIntent records that the holder of a started lease is about to call a
// step, and answers with the step as it was before. When that is StepDone
// nothing was written: the result is on record. When it is StepSent the outcome
// of an earlier call is not known. ErrLeaseLost: the caller is not the holder,
// or its lease has ended; it must not call. once, from NewToken, names the
// intent: asked again with the same one, it gets the answer of the first.
//
// Invariant I6: the intent is on record before the step is called.
func (q *Queue) StepIntent(ctx context.Context, l Lease, name, key string, once Token) (Step, error) {
	if !validName(name, MaxStepBytes) {
		return Step{}, badTask("Step", "name it with 1 to %d letters, digits, '.', '_' or '-', got %q", MaxStepBytes, name)
	}
	if !printable(key, 128) {
		return Step{}, badTask("Key", "use 1 to 128 bytes of printable ASCII without spaces")
	}
	c := q.call(scriptStepIntent, l.Grant.Partition, string(l.TaskID), l.tail(), name, key, string(once), MaxSteps)
	s, verdict, err := q.step(ctx, c)
	switch {
	case err != nil:
		return Step{}, err
	case verdict == "lost":
		return Step{}, fmt.Errorf("%w: task %s, step %s: the intent is not recorded", ErrLeaseLost, l.TaskID, name)
	case verdict == "full":
		return Step{}, badTask("Step", "a task has at most %d recorded steps", MaxSteps)
	}
	return s, nil
}

// StepResult records what became of a called step: StepDone with its result, or
// StepPending when the call is known not to have happened. It may be asked
// again.
//
// A result is kept even from a holder that was replaced meanwhile, when none
// is recorded: forgetting a real effect is the worse error. ErrStepConflict: a
// different result is on record; the returned step has it. ErrLeaseLost: the
// task was deleted, or StepPending came from one who is not the holder; nothing
// was recorded.
func (q *Queue) StepResult(ctx context.Context, l Lease, name string, state StepState, result []byte) (Step, error) {
	if len(result) > MaxResultBytes {
		return Step{}, badTask("Result", "at most %d bytes are kept, got %d: keep a reference instead", MaxResultBytes, len(result))
	}
	letter := map[StepState]string{StepDone: "d", StepPending: "p"}[state]
	if letter == "" {
		return Step{}, badTask("State", "record %q or %q, got %q", StepDone, StepPending, state)
	}
	c := q.call(scriptStepResult, l.Grant.Partition, string(l.TaskID), digest(l.TaskID), l.tail(), name, letter, string(result))
	s, verdict, err := q.step(ctx, c)
	switch {
	case err != nil:
		return Step{}, err
	case verdict == "lost":
		return Step{}, fmt.Errorf("%w: task %s, step %s: nothing was recorded", ErrLeaseLost, l.TaskID, name)
	case verdict == "conflict":
		return s, fmt.Errorf("%w: task %s, step %s", ErrStepConflict, l.TaskID, name)
	}
	return s, nil
}

// step runs a script that answers with a verdict and a step.
func (q *Queue) step(ctx context.Context, c *call) (Step, string, error) {
	q.run(ctx, c)
	if c.err != nil {
		return Step{}, "", c.err
	}
	reply := asStrings(c.reply)
	if len(reply) == 0 {
		return Step{}, "", shapeError(c.script.name, c.reply)
	}
	var s Step
	if len(reply) == 2 {
		if steps := parseSteps(reply[1]); len(steps) == 1 {
			s = steps[0]
		}
	}
	return s, reply[0], nil
}

// Steps lists the recorded steps of a task, in the order of their first intent.
func (q *Queue) Steps(ctx context.Context, id TaskID) ([]Step, error) {
	info, err := q.Inspect(ctx, id)
	return info.Steps, err
}

// parseSteps reads what include/steps.lua writes.
func parseSteps(v string) []Step {
	var out []Step
	for v != "" {
		head, rest, ok := strings.Cut(v, "\n")
		f := strings.Fields(head)
		if !ok || len(f) != 9 {
			break
		}
		size, err := strconv.Atoi(f[8])
		if err != nil || size < 0 || size >= len(rest) {
			break
		}
		states := map[string]StepState{"s": StepSent, "p": StepPending, "d": StepDone}
		s := Step{Name: f[0], State: states[f[1]], Key: f[2], Fence: parseFence(f[3]), Calls: int(asInt(f[4])), At: asTime(f[5])}
		if s.State == StepDone {
			s.Result = []byte(rest[:size])
		}
		out = append(out, s)
		v = rest[size+1:]
	}
	return out
}
