// Package ledgertest is what every dedupe.Ledger must do, as tests.
package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/claimq/claimq/dedupe"
	"github.com/claimq/claimq/queue"
)

// Bench is a ledger and the leases that it is asked with. Its functions fail
// the test that it was made for.
type Bench struct {
	Ledger dedupe.Ledger
	// Begin returns the lease of a started task that nobody has seen yet.
	Begin func(id queue.TaskID) queue.Lease
	// Replace returns the lease of the successor of l, of whom the ledger
	// knows.
	Replace func(l queue.Lease) queue.Lease
}

// Run holds the ledgers that open returns to the contract.
func Run(t *testing.T, open func(t *testing.T) Bench) {
	for name, test := range map[string]func(*testing.T, Bench){
		"life of a step":    life,
		"intent, again":     intentAgain,
		"results":           results,
		"replaced holder":   replaced,
		"limits":            limits,
		"one is first":      oneIsFirst,
		"order and unknown": order,
		"crash":             crash,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// asker asks for one step of one task and fails the test where it must succeed.
type asker struct {
	t    *testing.T
	b    Bench
	l    queue.Lease
	step string
}

func (a asker) key() dedupe.Key { return dedupe.KeyFor(a.l.Queue, a.l.TaskID, a.step) }

func (a asker) tryIntend(call queue.Token) (queue.Step, error) {
	return a.b.Ledger.Intend(a.t.Context(), a.l, a.step, a.key(), call)
}

func (a asker) intend() queue.Step {
	a.t.Helper()
	s, err := a.tryIntend(a.b.Ledger.NewCall())
	if err != nil {
		a.t.Fatal(err)
	}
	return s
}

func (a asker) tryRecord(state queue.StepState, result string) (queue.Step, error) {
	return a.b.Ledger.Record(a.t.Context(), a.l, a.step, state, []byte(result))
}

func (a asker) record(state queue.StepState, result string) queue.Step {
	a.t.Helper()
	s, err := a.tryRecord(state, result)
	if err != nil {
		a.t.Fatal(err)
	}
	return s
}

func (a asker) onRecord() queue.Step {
	a.t.Helper()
	steps, err := a.b.Ledger.Steps(a.t.Context(), a.l.TaskID)
	if err != nil {
		a.t.Fatal(err)
	}
	i := slices.IndexFunc(steps, func(s queue.Step) bool { return s.Name == a.step })
	if i < 0 {
		return queue.Step{}
	}
	return steps[i]
}

func life(t *testing.T, b Bench) {
	a := asker{t, b, b.Begin("T1"), "charge"}
	if s := a.intend(); s.State != "" || s.Calls != 0 {
		t.Errorf("before the first intent: %+v", s)
	}
	if s := a.onRecord(); s.State != queue.StepSent || s.Calls != 1 || s.Key != a.key().String() || s.Fence != a.l.Fence || s.At.IsZero() {
		t.Errorf("after it: %+v", s)
	}
	if s := a.intend(); s.State != queue.StepSent || s.Calls != 1 {
		t.Errorf("before the second: %+v", s)
	}
	a.record(queue.StepPending, "")
	if s := a.intend(); s.State != queue.StepPending || s.Calls != 2 {
		t.Errorf("after it was known not to have happened: %+v", s)
	}
	if s := a.record(queue.StepDone, "ch_1"); s.State != queue.StepDone || string(s.Result) != "ch_1" {
		t.Errorf("recorded: %+v", s)
	}
	done := a.onRecord()
	if s := a.intend(); s.State != queue.StepDone || string(s.Result) != "ch_1" {
		t.Errorf("intent of a step that is done: %+v", s)
	}
	if s := a.onRecord(); s.State != queue.StepDone || s.Calls != done.Calls || !s.At.Equal(done.At) {
		t.Errorf("it was changed: %+v, was %+v", s, done)
	}
}

func intentAgain(t *testing.T, b Bench) {
	a := asker{t, b, b.Begin("T1"), "charge"}
	for n, earlier := range []queue.StepState{"", queue.StepSent, queue.StepPending} {
		if earlier == queue.StepPending {
			a.record(queue.StepPending, "")
		}
		call := b.Ledger.NewCall()
		for range 3 { // asked, and asked again: its reply was lost
			s, err := a.tryIntend(call)
			if err != nil || s.State != earlier || s.Calls != n {
				t.Errorf("after %q: %+v, %v", earlier, s, err)
			}
		}
	}
	if s := a.onRecord(); s.Calls != 3 {
		t.Errorf("%d intents are on record, want 3", s.Calls)
	}
	if one, other := b.Ledger.NewCall(), b.Ledger.NewCall(); one == other {
		t.Error("two calls have one name")
	}
}

func results(t *testing.T, b Bench) {
	for n, result := range []string{"ch_1", "", "\x00\xff\n", strings.Repeat("x", queue.MaxResultBytes)} {
		a := asker{t, b, b.Begin(queue.TaskID(fmt.Sprintf("T%d", n))), "charge"}
		a.intend()
		for range 2 { // the same result again is no error
			if s := a.record(queue.StepDone, result); string(s.Result) != result {
				t.Errorf("%q came back as %q", result, s.Result)
			}
		}
		for state, other := range map[queue.StepState]string{queue.StepDone: result[:len(result)/2] + "other", queue.StepPending: ""} {
			s, err := a.tryRecord(state, other)
			if !errors.Is(err, queue.ErrStepConflict) || string(s.Result) != result {
				t.Errorf("%s %q: %q, %v", state, other, s.Result, err)
			}
		}
		if s := a.onRecord(); string(s.Result) != result {
			t.Errorf("%q is on record as %q", result, s.Result)
		}
	}
}

func replaced(t *testing.T, b Bench) {
	first := asker{t, b, b.Begin("T1"), "charge"}
	first.intend()
	second := first
	second.l = b.Replace(first.l)
	if _, err := first.tryIntend(b.Ledger.NewCall()); !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("a replaced holder intends: %v", err)
	}
	other := first
	other.step = "mail"
	if _, err := other.tryIntend(b.Ledger.NewCall()); !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("a replaced holder begins a step: %v", err)
	}
	if _, err := first.tryRecord(queue.StepPending, ""); !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("a replaced holder says that it did not happen: %v", err)
	}
	if s := second.intend(); s.State != queue.StepSent || s.Fence != first.l.Fence {
		t.Errorf("the successor is told %+v", s)
	}
	// What was done is kept from anyone, and once.
	first.record(queue.StepDone, "ch_first")
	if s, err := second.tryRecord(queue.StepDone, "ch_second"); !errors.Is(err, queue.ErrStepConflict) || string(s.Result) != "ch_first" {
		t.Errorf("a second result: %q, %v", s.Result, err)
	}
	if s := second.intend(); s.State != queue.StepDone || string(s.Result) != "ch_first" {
		t.Errorf("the successor is told %+v", s)
	}
}

func limits(t *testing.T, b Bench) {
	a := asker{t, b, b.Begin("T1"), "charge"}
	if _, err := a.tryRecord(queue.StepDone, "ch_1"); !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("a result without an intent: %v", err)
	}
	for n := range queue.MaxSteps {
		a.step = fmt.Sprintf("step-%d", n)
		a.intend()
	}
	a.step = "one-more"
	if _, err := a.tryIntend(b.Ledger.NewCall()); !errors.Is(err, queue.ErrInvalidTask) {
		t.Errorf("step %d: %v", queue.MaxSteps+1, err)
	}
	a.step = "step-0"
	if _, err := a.tryRecord(queue.StepDone, strings.Repeat("x", queue.MaxResultBytes+1)); !errors.Is(err, queue.ErrInvalidTask) {
		t.Errorf("a long result: %v", err)
	}
	if _, err := a.tryRecord(queue.StepSent, ""); !errors.Is(err, queue.ErrInvalidTask) {
		t.Errorf("a state that cannot be recorded: %v", err)
	}
	if s := a.onRecord(); s.State != queue.StepSent {
		t.Errorf("what was refused left %+v", s)
	}
	for _, name := range []string{"", "two words", strings.Repeat("x", queue.MaxStepBytes+1)} {
		a.step = name
		if _, err := a.tryIntend(b.Ledger.NewCall()); !errors.Is(err, queue.ErrInvalidTask) {
			t.Errorf("step %q: %v", name, err)
		}
	}
	for _, key := range []dedupe.Key{"", "two words", dedupe.Key(strings.Repeat("x", 129))} {
		if _, err := b.Ledger.Intend(t.Context(), a.l, "step-0", key, b.Ledger.NewCall()); !errors.Is(err, queue.ErrInvalidTask) {
			t.Errorf("key %q: %v", key, err)
		}
	}
}

// oneIsFirst: of many at the same moment one is told that it is the first, and
// one result is kept. (F3)
func oneIsFirst(t *testing.T, b Bench) {
	const many = 12
	a := asker{t, b, b.Begin("T1"), "charge"}
	first, kept := 0, map[string]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range many {
		wg.Go(func() {
			s, err := a.tryIntend(b.Ledger.NewCall())
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			} else if s.State == "" {
				first++
			}
		})
	}
	wg.Wait()
	if s := a.onRecord(); first != 1 || s.Calls != many {
		t.Errorf("%d of %d were first", first, s.Calls)
	}
	conflicts := 0
	for n := range many {
		wg.Go(func() {
			s, err := a.tryRecord(queue.StepDone, fmt.Sprint(n))
			mu.Lock()
			defer mu.Unlock()
			if errors.Is(err, queue.ErrStepConflict) {
				conflicts++
			} else if err != nil {
				t.Error(err)
			}
			kept[string(s.Result)]++
		})
	}
	wg.Wait()
	if conflicts != many-1 || len(kept) != 1 {
		t.Errorf("%d of %d conflict, kept %v", conflicts, many, kept)
	}
}

func order(t *testing.T, b Bench) {
	if _, err := b.Ledger.Steps(t.Context(), "nobody"); !errors.Is(err, queue.ErrNotFound) {
		t.Errorf("steps of an unknown task: %v", err)
	}
	l := b.Begin("T1")
	want := []string{"zebra", "apple", "mail"}
	for _, name := range append(want, "apple") {
		asker{t, b, l, name}.intend()
	}
	steps, err := b.Ledger.Steps(t.Context(), "T1")
	var got []string
	for _, s := range steps {
		got = append(got, s.Name)
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}

// crashing ends the handler at a point, as a killed process would.
type crashing struct {
	dedupe.Ledger
	at string
}

func (c crashing) reach(point string) {
	if c.at == point {
		panic(point)
	}
}

func (c crashing) Intend(ctx context.Context, l queue.Lease, step string, key dedupe.Key, call queue.Token) (queue.Step, error) {
	c.reach("before intent")
	s, err := c.Ledger.Intend(ctx, l, step, key, call)
	c.reach("after intent")
	return s, err
}

func (c crashing) Record(ctx context.Context, l queue.Lease, step string, state queue.StepState, result []byte) (queue.Step, error) {
	c.reach("after call")
	s, err := c.Ledger.Record(ctx, l, step, state, result)
	c.reach("after record")
	return s, err
}

// crash: wherever the first holder ends, the effect is there once if the other
// side remembers keys or can be asked. (F1)
func crash(t *testing.T, b Bench) {
	for _, at := range []string{"before intent", "after intent", "before effect", "after effect", "after call", "after record"} {
		for _, asked := range []bool{false, true} {
			effects := map[dedupe.Key]string{} // the other side
			run := func(l queue.Lease, at string) (id string, err error) {
				defer func() { _ = recover() }()
				c := crashing{b.Ledger, at}
				call := func(_ context.Context, key dedupe.Key) (string, error) {
					c.reach("before effect")
					if effects[key] != "" && asked {
						t.Errorf("%s: called twice although it could ask", at)
					}
					effects[key] = "ch_1"
					c.reach("after effect")
					return "ch_1", nil
				}
				if !asked {
					return dedupe.Step(t.Context(), c, l, "charge", call)
				}
				return dedupe.StepChecked(t.Context(), c, l, "charge", call, func(_ context.Context, key dedupe.Key) (string, bool, error) {
					return effects[key], effects[key] != "", nil
				})
			}
			l := b.Begin(queue.TaskID(strings.ReplaceAll(fmt.Sprint(at, asked), " ", "-")))
			_, _ = run(l, at)
			l = b.Replace(l)
			for range 2 {
				if id, err := run(l, ""); err != nil || id != "ch_1" {
					t.Errorf("%s: %q, %v", at, id, err)
				}
			}
			if len(effects) != 1 {
				t.Errorf("%s: %d effects", at, len(effects))
			}
		}
	}
}
