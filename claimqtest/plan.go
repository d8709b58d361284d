package claimqtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/queue"
)

// Defaults of Plan.
const (
	DefaultLease         = 10 * time.Second
	DefaultRealTimeLease = time.Second
	DefaultLimit         = time.Hour
	DefaultRealTimeLimit = time.Minute
)

// Plan says what is run and what is counted.
type Plan struct {
	// Task is run each time, in a queue of its own. Without an ID it is called
	// "task".
	Task queue.Task

	// Handler makes the handler of one worker: it is called at least once for
	// each run. What the handler uses must be taken from the Worker. Required.
	Handler func(w *Worker) consumer.Handler

	// Effects are counted after each run. Required.
	Effects []Effect

	// Reset, if not nil, undoes before each run what handlers have left behind
	// besides the effects.
	Reset func(ctx context.Context) error

	// Faults are tried at every point; none: all of them.
	Faults []Fault

	// RedisForgets adds a run after which the server has lost everything and
	// the task is enqueued again. Only an effect that is guarded outside Redis
	// is there once then.
	RedisForgets bool

	// RealTime runs without a bubble. A run in which a worker dies then takes
	// a little longer than Lease.
	RealTime bool
	Lease    time.Duration // lease length; default 10 s, in real time 1 s
	Limit    time.Duration // after which a run counts as not ended; default 1 h, in real time 1 min
}

// Errors of Check.
var (
	// ErrPlan: the plan cannot be run as it is.
	ErrPlan = errors.New("plan cannot be run")

	// ErrBaseline: without any fault the task was not completed, or had none
	// of the effects.
	ErrBaseline = errors.New("the run without a fault failed")
)

// Run is Check, and fails the test with the report if there are findings.
func Run(tb testing.TB, p Plan) Report {
	tb.Helper()
	t, ok := tb.(*testing.T)
	if !ok {
		t = new(testing.T)
	}
	r, err := check(t, p)
	switch {
	case err != nil:
		tb.Fatalf("claimqtest: %v", err)
	case !r.OK():
		tb.Errorf("claimqtest: %s", r)
	}
	return r
}

// Check runs the plan. It may be called where there is no test, as in an
// example. Its errors are ErrPlan, ErrBaseline, and those of Plan.Reset and of
// the effects.
func Check(p Plan) (Report, error) { return check(new(testing.T), p) }

// check runs the plan. t is for the bubbles, which say nothing through it; one
// that belongs to no test serves as well.
func check(t *testing.T, p Plan) (Report, error) {
	p = p.withDefaults()
	if err := p.validate(); err != nil {
		return Report{}, err
	}
	c := checker{t: t, plan: p, queueName: "claimqtest-" + random()}
	return c.run()
}

func (p Plan) withDefaults() Plan {
	lease, limit := DefaultLease, DefaultLimit
	if p.RealTime {
		lease, limit = DefaultRealTimeLease, DefaultRealTimeLimit
	}
	if p.Lease == 0 {
		p.Lease = lease
	}
	if p.Limit == 0 {
		p.Limit = limit
	}
	if p.Task.ID == "" {
		p.Task.ID = "task"
	}
	if len(p.Faults) == 0 {
		p.Faults = Faults()
	}
	return p
}

func (p Plan) validate() error {
	var errs []error
	bad := func(ok bool, field, remedy string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%w: %s: %s", ErrPlan, field, fmt.Sprintf(remedy, args...)))
		}
	}
	bad(p.Handler != nil, "Handler", "give a function that makes the handler")
	bad(len(p.Effects) > 0, "Effects", "give at least one")
	names := map[string]bool{}
	for i, e := range p.Effects {
		if e == nil {
			bad(false, fmt.Sprintf("Effects[%d]", i), "it is nil")
			continue
		}
		bad(!names[e.Name()], fmt.Sprintf("Effects[%d]", i), "two are called %q", e.Name())
		names[e.Name()] = true
	}
	for _, f := range p.Faults {
		bad(slices.Contains(Faults(), f), "Faults", "there is no %q", f)
	}
	bad(p.Task.Delay == 0 && p.Task.Due.IsZero() && p.Task.Deadline.IsZero(), "Task", "Delay, Due and Deadline are not for the kit")
	bad(p.Lease >= queue.MinLease && p.Lease <= queue.MaxLease, "Lease", "use %v to %v, got %v", queue.MinLease, queue.MaxLease, p.Lease)
	bad(p.Limit > 10*p.Lease, "Limit", "use more than ten leases, got %v", p.Limit)
	return errors.Join(errs...)
}
