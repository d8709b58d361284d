package dedupe_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/claimq/claimq/dedupe"
	"github.com/claimq/claimq/queue"
)

type charge struct {
	ID    string
	Cents int
}

var lease = queue.Lease{Queue: "billing", TaskID: "invoice-1", Kind: "invoice.send", Fence: 7}

// counter is a call that counts how often it was made, with which keys.
type counter struct {
	keys []dedupe.Key
	err  error
}

func (c *counter) call(_ context.Context, key dedupe.Key) (charge, error) {
	c.keys = append(c.keys, key)
	return charge{"ch_1", 1999}, c.err
}

func TestKeyIsStable(t *testing.T) {
	// Changing the derivation charges twice whoever upgrades in the middle of
	// a retry.
	if got := dedupe.KeyFor("billing", "invoice-1", "charge"); got != "4619c5f115915653d43a92245af5eaa5" {
		t.Errorf("key %s", got)
	}
	seen := map[dedupe.Key]bool{}
	for _, p := range [][3]string{{"a", "bc", "d"}, {"ab", "c", "d"}, {"a", "b", "cd"}, {"a", "bc", "e"}, {"", "abc", "d"}} {
		k := dedupe.KeyFor(p[0], queue.TaskID(p[1]), p[2])
		if seen[k] || len(k) != 32 || strings.Trim(string(k), "0123456789abcdef") != "" {
			t.Errorf("key of %q: %s", p, k)
		}
		seen[k] = true
	}
}

func TestFirstRunCallsAndTheNextDoesNot(t *testing.T) {
	m, c := newMemory(7), &counter{}
	for range 3 {
		got, err := dedupe.Step(t.Context(), m, lease, "charge", c.call)
		if err != nil || got != (charge{"ch_1", 1999}) {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	if len(c.keys) != 1 || c.keys[0] != dedupe.KeyFor("billing", "invoice-1", "charge") {
		t.Errorf("called with %v", c.keys)
	}
	if want := []string{"intend", "record done", "intend", "intend"}; !slices.Equal(m.asked, want) {
		t.Errorf("asked %q, want %q", m.asked, want)
	}
}

func TestStepsOfATaskAreApart(t *testing.T) {
	m, c := newMemory(7), &counter{}
	for _, name := range []string{"charge", "mail", "charge"} {
		if _, err := dedupe.Step(t.Context(), m, lease, name, c.call); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.keys) != 2 || c.keys[0] == c.keys[1] {
		t.Errorf("keys %v", c.keys)
	}
}

// TestUnknownOutcomeCallsWithTheSameKey: Invariant I6, seen from the caller.
func TestUnknownOutcomeCallsWithTheSameKey(t *testing.T) {
	m, c := newMemory(7), &counter{err: errors.New("no answer")}
	for range 2 {
		if _, err := dedupe.Step(t.Context(), m, lease, "charge", c.call); !errors.Is(err, c.err) {
			t.Fatal(err)
		}
		if s := m.steps["charge"]; s.State != queue.StepSent {
			t.Fatalf("after a call without an answer the step is %q", s.State)
		}
	}
	c.err = nil
	if _, err := dedupe.Step(t.Context(), m, lease, "charge", c.call); err != nil {
		t.Fatal(err)
	}
	if len(c.keys) != 3 || c.keys[0] != c.keys[1] || c.keys[1] != c.keys[2] {
		t.Errorf("keys %v", c.keys)
	}
}

func TestCheck(t *testing.T) {
	checkFails := errors.New("no route")
	for _, tt := range []struct {
		name     string
		before   queue.StepState
		happened bool
		err      error
		checks   int
		calls    int
		state    queue.StepState
	}{
		{name: "not before a first call", before: "", checks: 0, calls: 1, state: queue.StepDone},
		{name: "not when known not to have happened", before: queue.StepPending, checks: 0, calls: 1, state: queue.StepDone},
		{name: "it happened", before: queue.StepSent, happened: true, checks: 1, calls: 0, state: queue.StepDone},
		{name: "it did not happen", before: queue.StepSent, checks: 1, calls: 1, state: queue.StepDone},
		{name: "the check fails", before: queue.StepSent, err: checkFails, checks: 1, calls: 0, state: queue.StepSent},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, c, checks := newMemory(7), &counter{}, 0
			m.steps["charge"] = queue.Step{Name: "charge", State: tt.before}
			got, err := dedupe.StepChecked(t.Context(), m, lease, "charge", c.call, func(_ context.Context, key dedupe.Key) (charge, bool, error) {
				checks++
				if key != dedupe.KeyFor("billing", "invoice-1", "charge") {
					t.Errorf("checked with key %s", key)
				}
				return charge{"ch_1", 1999}, tt.happened, tt.err
			})
			if !errors.Is(err, tt.err) || tt.err == nil && got.ID != "ch_1" {
				t.Errorf("%+v, %v", got, err)
			}
			if checks != tt.checks || len(c.keys) != tt.calls || m.steps["charge"].State != tt.state {
				t.Errorf("%d checks, %d calls, state %q", checks, len(c.keys), m.steps["charge"].State)
			}
		})
	}
}

// TestNotSent: a call that did not go out says nothing about an earlier one
// that may have.
func TestNotSent(t *testing.T) {
	refused := errors.New("connection refused")
	for before, after := range map[queue.StepState]queue.StepState{
		"":                queue.StepPending,
		queue.StepPending: queue.StepPending,
		queue.StepSent:    queue.StepSent,
	} {
		m := newMemory(7)
		m.steps["charge"] = queue.Step{Name: "charge", State: before}
		c := &counter{err: dedupe.NotSent(refused)}
		_, err := dedupe.Step(t.Context(), m, lease, "charge", c.call)
		if !errors.Is(err, refused) || err.Error() != refused.Error() || !dedupe.IsNotSent(err) {
			t.Errorf("from %q: error %v", before, err)
		}
		if got := m.steps["charge"].State; got != after {
			t.Errorf("from %q: state %q, want %q", before, got, after)
		}
	}
	if dedupe.NotSent(nil) != nil || dedupe.IsNotSent(refused) || dedupe.IsNotSent(nil) {
		t.Error("NotSent(nil) or IsNotSent is wrong")
	}
	// After a check that says no, the earlier call is known too.
	m := newMemory(7)
	m.steps["charge"] = queue.Step{Name: "charge", State: queue.StepSent}
	c := &counter{err: dedupe.NotSent(refused)}
	_, _ = dedupe.StepChecked(t.Context(), m, lease, "charge", c.call, func(context.Context, dedupe.Key) (charge, bool, error) { return charge{}, false, nil })
	if got := m.steps["charge"].State; got != queue.StepPending {
		t.Errorf("after a check: state %q", got)
	}
}

func TestReplacedHolder(t *testing.T) {
	m, c := newMemory(8), &counter{}
	if _, err := dedupe.Step(t.Context(), m, lease, "charge", c.call); !errors.Is(err, queue.ErrLeaseLost) || len(c.keys) > 0 {
		t.Errorf("an earlier holder called %d times: %v", len(c.keys), err)
	}
	// Replaced during the call: what it did is kept all the same.
	m.holder = 7
	got, err := dedupe.Step(t.Context(), m, lease, "charge", func(ctx context.Context, key dedupe.Key) (charge, error) {
		m.holder = 8
		return c.call(ctx, key)
	})
	if err != nil || got.ID != "ch_1" || m.steps["charge"].State != queue.StepDone {
		t.Errorf("%+v, %v, %+v", got, err, m.steps["charge"])
	}
}

func TestConflict(t *testing.T) {
	m := newMemory(7)
	got, err := dedupe.Step(t.Context(), m, lease, "charge", func(ctx context.Context, key dedupe.Key) (string, error) {
		s := m.steps["charge"]
		s.State, s.Result = queue.StepDone, []byte("ch_other")
		m.steps["charge"] = s
		return "ch_mine", nil
	})
	if !errors.Is(err, queue.ErrStepConflict) || got != "ch_mine" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := dedupe.Step(t.Context(), m, lease, "charge", func(context.Context, dedupe.Key) (string, error) { panic("called") }); err != nil || got != "ch_other" {
		t.Errorf("the recorded one is %q, %v", got, err)
	}
}

// TestRecordOutlivesTheContext: a stop in the middle of a call must not lose
// what the call did.
func TestRecordOutlivesTheContext(t *testing.T) {
	m := newMemory(7)
	ctx, cancel := context.WithCancel(t.Context())
	got, err := dedupe.Step(ctx, m, lease, "charge", func(context.Context, dedupe.Key) (string, error) {
		cancel()
		return "ch_1", nil
	})
	if err != nil || got != "ch_1" || m.steps["charge"].State != queue.StepDone {
		t.Errorf("%q, %v, %+v", got, err, m.steps["charge"])
	}
	stopped := errors.New("stopped")
	ctx2, cancel2 := context.WithCancelCause(t.Context())
	cancel2(stopped)
	if _, err := dedupe.Step(ctx2, m, lease, "other", func(context.Context, dedupe.Key) (string, error) { panic("called") }); !errors.Is(err, stopped) {
		t.Errorf("a step on an ended context: %v", err)
	}
}

func TestPanicLeavesItUnknown(t *testing.T) {
	m := newMemory(7)
	func() {
		defer func() { _ = recover() }()
		_, _ = dedupe.Step(t.Context(), m, lease, "charge", func(context.Context, dedupe.Key) (string, error) { panic("boom") })
	}()
	if s := m.steps["charge"].State; s != queue.StepSent {
		t.Errorf("state %q", s)
	}
}

// TestLedgerIsAskedAgain, and not for ever: both versions of each failure.
func TestLedgerIsAskedAgain(t *testing.T) {
	lost, away := fault{queue.ErrIndefinite, true}, fault{queue.ErrUnavailable, false}
	notApplied := fault{queue.ErrIndefinite, false}
	for _, tt := range []struct {
		name           string
		intend, record []fault
		want           error
		calls          int
		state          queue.StepState
	}{
		{name: "intent, reply lost", intend: []fault{lost}, calls: 1, state: queue.StepDone},
		{name: "intent, away", intend: []fault{away, away}, calls: 1, state: queue.StepDone},
		{name: "intent, away too long", intend: slices.Repeat([]fault{away}, 9), want: queue.ErrUnavailable},
		{name: "intent, replies lost too long", intend: slices.Repeat([]fault{lost}, 9), want: queue.ErrIndefinite, state: queue.StepSent},
		{name: "result, reply lost", record: []fault{lost}, calls: 1, state: queue.StepDone},
		{name: "result, not applied", record: []fault{notApplied, away}, calls: 1, state: queue.StepDone},
		{name: "result, away too long", record: slices.Repeat([]fault{away}, 9), want: queue.ErrUnavailable, calls: 1, state: queue.StepSent},
		{name: "result, a refusal", record: []fault{{err: queue.ErrLeaseLost}}, want: queue.ErrLeaseLost, calls: 1, state: queue.StepSent},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, c, began := newMemory(7), &counter{}, time.Now()
				m.intendFaults, m.recordFaults = tt.intend, tt.record
				got, err := dedupe.Step(t.Context(), m, lease, "charge", c.call)
				if !errors.Is(err, tt.want) || len(c.keys) != tt.calls || m.steps["charge"].State != tt.state {
					t.Errorf("%v, %d calls, %+v", err, len(c.keys), m.steps["charge"])
				}
				if tt.calls > 0 && got.ID != "ch_1" {
					t.Errorf("the call was made, but its result is %+v", got)
				}
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

// TestResultTooLarge: the effect is there, so it is never repeated, whatever
// becomes of its result.
func TestResultTooLarge(t *testing.T) {
	m, calls := newMemory(7), 0
	long := strings.Repeat("x", queue.MaxResultBytes+1)
	call := func(context.Context, dedupe.Key) (string, error) { calls++; return long, nil }
	got, err := dedupe.Step(t.Context(), m, lease, "charge", call)
	if !errors.Is(err, dedupe.ErrResultNotKept) || got != long {
		t.Errorf("first run: %d bytes, %v", len(got), err)
	}
	if len(m.steps["charge"].Result) > queue.MaxResultBytes {
		t.Errorf("%d bytes were recorded", len(m.steps["charge"].Result))
	}
	got, err = dedupe.Step(t.Context(), m, lease, "charge", call)
	e, ok := errors.AsType[*dedupe.NotKeptError](err)
	if !ok || got != "" || calls != 1 || e.Key != dedupe.KeyFor("billing", "invoice-1", "charge") || !strings.Contains(e.Detail, "1025 bytes") {
		t.Errorf("second run: %d bytes, %d calls, %v", len(got), calls, err)
	}
	// A check can tell what was not kept.
	got, err = dedupe.StepChecked(t.Context(), m, lease, "charge", call, func(context.Context, dedupe.Key) (string, bool, error) { return long, true, nil })
	if err != nil || got != long || calls != 1 {
		t.Errorf("with a check: %d bytes, %d calls, %v", len(got), calls, err)
	}
	if _, err := dedupe.Step(t.Context(), m, lease, "chan", func(context.Context, dedupe.Key) (chan int, error) { return nil, nil }); !errors.Is(err, dedupe.ErrResultNotKept) {
		t.Errorf("a result that does not encode: %v", err)
	}
}

func TestResultsComeBackAsTheyWere(t *testing.T) {
	comesBack(t, "text", `"quotes" stay`)
	comesBack(t, "empty text", "")
	comesBack(t, "bytes", []byte{0, 1, 255})
	comesBack(t, "raw", json.RawMessage(`{"a":  1}`))
	comesBack(t, "struct", charge{"ch_1", 1999})
	comesBack(t, "pointer", &charge{"ch_1", 1999})
	comesBack(t, "number", 1<<53+1)
	comesBack(t, "nothing", struct{}{})
	comesBack(t, "longest", strings.Repeat("x", queue.MaxResultBytes))
}

func comesBack[T any](t *testing.T, name string, v T) {
	t.Helper()
	m := newMemory(7)
	for range 2 {
		got, err := dedupe.Step(t.Context(), m, lease, "s", func(context.Context, dedupe.Key) (T, error) { return v, nil })
		if err != nil || !reflect.DeepEqual(got, v) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestRecordedResultOfAnotherType(t *testing.T) {
	m := newMemory(7)
	m.steps["s"] = queue.Step{Name: "s", State: queue.StepDone, Result: []byte("ch_1")}
	if _, err := dedupe.Step(t.Context(), m, lease, "s", func(context.Context, dedupe.Key) (charge, error) { panic("called") }); err == nil {
		t.Error("no error")
	}
}
