package claimqtest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/claimq/claimq/claimqtest"
	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/dedupe"
	"github.com/claimq/claimq/queue"
)

// checked runs a plan that can be run.
func checked(t *testing.T, p claimqtest.Plan) claimqtest.Report {
	t.Helper()
	r, err := claimqtest.Check(p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// stepHandler charges in a step.
func stepHandler(g *claimqtest.Gateway) func(w *claimqtest.Worker) consumer.Handler {
	return func(w *claimqtest.Worker) consumer.Handler {
		return handle(func(ctx context.Context, l queue.Lease) error {
			_, err := dedupe.Step(ctx, w.Ledger(), l, "charge", charge(g.For(w)))
			return err
		})
	}
}

// TestPoints: a handler's points are what others see of it, in order.
func TestPoints(t *testing.T) {
	g := &claimqtest.Gateway{Label: "charge", HonoursKeys: true}
	r := checked(t, claimqtest.Plan{
		Task: task, Effects: []claimqtest.Effect{g}, Handler: stepHandler(g), Faults: []claimqtest.Fault{claimqtest.Killed},
	})
	want := []string{
		"the lease of the task", "the start of the handler", "the intent of step charge", "the call of charge",
		"the result of step charge", "the return of the handler", "the completion of the task",
	}
	if !slices.Equal(r.Points, want) || r.Runs != 1+len(want) || !r.OK() {
		t.Errorf("%q, %d runs: %v", r.Points, r.Runs, r)
	}
}

// TestTheDeadDoNothing: a handler that does not give up after its worker was
// killed has no effect, and neither does what its worker would send.
func TestTheDeadDoNothing(t *testing.T) {
	mails := &claimqtest.Counter{Label: "mail"}
	var mu sync.Mutex
	tries, dead := 0, 0
	r := checked(t, claimqtest.Plan{
		Task: task, Effects: []claimqtest.Effect{mails}, Faults: []claimqtest.Fault{claimqtest.Killed},
		Handler: func(w *claimqtest.Worker) consumer.Handler {
			return handle(func(context.Context, queue.Lease) error {
				for range 5 {
					err := mails.For(w)(context.Background())
					mu.Lock()
					tries++
					if errors.Is(err, claimqtest.ErrKilled) {
						dead++
					}
					mu.Unlock()
					if err == nil {
						return nil
					}
				}
				return errors.New("five times in vain")
			})
		},
	})
	// Killed before the mail five tries fail. After it nothing is left of the
	// first worker, and the second sends another mail.
	var doubled []string
	for _, f := range r.Findings {
		doubled = append(doubled, f.Where)
	}
	want := []string{"between mail and the return of the handler", "between the return of the handler and the completion of the task"}
	if !slices.Equal(doubled, want) || dead != 5 {
		t.Errorf("%d of %d tries by the dead; %v", dead, tries, r)
	}
}

// TestACheckLeavesOpen: asking a gateway that ignores keys closes the gap of a
// crash, but not that of a request which is still on its way; and it is of no
// use where Redis has forgotten that there was a first one.
func TestACheckLeavesOpen(t *testing.T) {
	g := &claimqtest.Gateway{Label: "charge"}
	r := checked(t, claimqtest.Plan{
		Task: task, Effects: []claimqtest.Effect{g}, RedisForgets: true,
		Handler: func(w *claimqtest.Worker) consumer.Handler {
			return handle(func(ctx context.Context, l queue.Lease) error {
				c := g.For(w)
				_, err := dedupe.StepChecked(ctx, w.Ledger(), l, "charge", charge(c),
					func(ctx context.Context, key dedupe.Key) (string, bool, error) { return c.Find(ctx, key.String()) })
				return err
			})
		},
	})
	forgot := 0
	for _, f := range r.Findings {
		switch {
		case strings.Contains(string(f.Fault), "forgot"):
			forgot++
		case f.Fault != claimqtest.Paused && f.Fault != claimqtest.Together,
			f.Where != "between the intent of step charge and the call of charge":
			t.Errorf("%+v", f)
		}
	}
	if len(r.Findings) != 3 || forgot != 1 {
		t.Error(r)
	}
}

// TestRowWithFences: a late write is refused.
func TestRowWithFences(t *testing.T) {
	row := &claimqtest.Row{Label: "status", ComparesFences: true}
	claimqtest.Run(t, claimqtest.Plan{
		Task: task, Effects: []claimqtest.Effect{row}, RedisForgets: true,
		Handler: func(w *claimqtest.Worker) consumer.Handler {
			return handle(func(_ context.Context, l queue.Lease) error { return row.For(w)(context.Background(), l) })
		},
	})
}

// memory is a ledger in a store that the kit does not know.
type memory struct {
	dedupe.Ledger // for NewCall
	mu            sync.Mutex
	steps         map[string]queue.Step
}

func (m *memory) Intend(_ context.Context, _ queue.Lease, step string, key dedupe.Key, _ queue.Token) (queue.Step, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.steps[step]
	if before.State != queue.StepDone {
		m.steps[step] = queue.Step{Name: step, Key: key.String(), State: queue.StepSent}
	}
	return before, nil
}

func (m *memory) Record(_ context.Context, _ queue.Lease, step string, state queue.StepState, result []byte) (queue.Step, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.steps[step]
	if s.State != queue.StepDone {
		s.State, s.Result = state, result
		m.steps[step] = s
	}
	return s, nil
}

func (m *memory) reset(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.steps = map[string]queue.Step{}
	return nil
}

// TestWatchedLedger: the calls of a ledger of a user's own are points.
func TestWatchedLedger(t *testing.T) {
	g, m := &claimqtest.Gateway{Label: "charge", HonoursKeys: true}, &memory{}
	r := claimqtest.Run(t, claimqtest.Plan{
		Task: task, Effects: []claimqtest.Effect{g}, Reset: m.reset, RedisForgets: true,
		Handler: func(w *claimqtest.Worker) consumer.Handler {
			ledger := w.Watch(&memory{Ledger: w.Ledger(), steps: m.steps})
			return handle(func(ctx context.Context, l queue.Lease) error {
				_, err := dedupe.Step(ctx, ledger, l, "charge", charge(g.For(w)))
				return err
			})
		},
	})
	if !slices.Contains(r.Points, "the intent of step charge") || !slices.Contains(r.Points, "the result of step charge") {
		t.Errorf("%q", r.Points)
	}
}

// TestRealTime runs without a bubble.
func TestRealTime(t *testing.T) {
	t.Parallel()
	g := &claimqtest.Gateway{Label: "charge"}
	began := time.Now()
	r := checked(t, claimqtest.Plan{
		Task: task, Effects: []claimqtest.Effect{g}, Handler: stepHandler(g),
		RealTime: true, Lease: 300 * time.Millisecond, Faults: []claimqtest.Fault{claimqtest.Killed},
	})
	if len(r.Findings) != 1 || r.Findings[0].Where != "between the call of charge and the result of step charge" {
		t.Error(r)
	}
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("it took %v", took)
	}
}

// TestReportsAreStable: the same plan has the same report.
func TestReportsAreStable(t *testing.T) {
	texts := map[string]bool{}
	for range 3 {
		g := &claimqtest.Gateway{Label: "charge"}
		texts[checked(t, claimqtest.Plan{Task: task, Effects: []claimqtest.Effect{g}, Handler: stepHandler(g)}).String()] = true
	}
	if len(texts) != 1 {
		t.Errorf("%d reports: %v", len(texts), texts)
	}
}

// TestTaskThatDoesNotEnd is a finding, not a test that hangs.
func TestTaskThatDoesNotEnd(t *testing.T) {
	mails := &claimqtest.Counter{Label: "mail"}
	r := checked(t, claimqtest.Plan{
		Task: task, Effects: []claimqtest.Effect{mails}, Faults: []claimqtest.Fault{claimqtest.RequestLost},
		Limit: 10 * time.Minute,
		Handler: func(w *claimqtest.Worker) consumer.Handler {
			return handle(func(ctx context.Context, l queue.Lease) error {
				if l.Attempt > 1 {
					return consumer.Release(nil)
				}
				return mails.For(w)(ctx)
			})
		},
	})
	i := slices.IndexFunc(r.Findings, func(f claimqtest.Finding) bool { return f.Where == "at mail" })
	if i < 0 || !strings.HasPrefix(r.Findings[i].Problem, "not ended after 10m0s") || r.Findings[i].Got != 0 {
		t.Error(r)
	}
}

// TestPlansThatCannotBeRun say why.
func TestPlansThatCannotBeRun(t *testing.T) {
	mails := &claimqtest.Counter{Label: "mail"}
	nothing := func(*claimqtest.Worker) consumer.Handler {
		return handle(func(context.Context, queue.Lease) error { return nil })
	}
	good := claimqtest.Plan{Task: task, Effects: []claimqtest.Effect{mails}, Handler: nothing}
	for name, c := range map[string]struct {
		edit func(p *claimqtest.Plan)
		is   error
		says string
	}{
		"no handler":       {func(p *claimqtest.Plan) { p.Handler = nil }, claimqtest.ErrPlan, "Handler"},
		"no effects":       {func(p *claimqtest.Plan) { p.Effects = nil }, claimqtest.ErrPlan, "Effects"},
		"a nil effect":     {func(p *claimqtest.Plan) { p.Effects = []claimqtest.Effect{nil} }, claimqtest.ErrPlan, "Effects[0]"},
		"two of a name":    {func(p *claimqtest.Plan) { p.Effects = []claimqtest.Effect{mails, mails} }, claimqtest.ErrPlan, `"mail"`},
		"no such fault":    {func(p *claimqtest.Plan) { p.Faults = []claimqtest.Fault{"bored"} }, claimqtest.ErrPlan, "bored"},
		"a delayed task":   {func(p *claimqtest.Plan) { p.Task.Delay = time.Second }, claimqtest.ErrPlan, "Delay"},
		"no kind":          {func(p *claimqtest.Plan) { p.Task.Kind = "" }, claimqtest.ErrPlan, "Kind"},
		"lease too short":  {func(p *claimqtest.Plan) { p.Lease = 1 }, claimqtest.ErrPlan, "Lease"},
		"limit too short":  {func(p *claimqtest.Plan) { p.Limit = time.Minute }, claimqtest.ErrPlan, "Limit"},
		"an empty mux":     {func(p *claimqtest.Plan) { p.Handler = emptyMux }, claimqtest.ErrPlan, "no handlers"},
		"no effect at all": {func(*claimqtest.Plan) {}, claimqtest.ErrBaseline, "mail"},
		"always fails": {func(p *claimqtest.Plan) {
			p.Handler = func(*claimqtest.Worker) consumer.Handler {
				return handle(func(context.Context, queue.Lease) error { return errors.New("out of ink") })
			}
		}, claimqtest.ErrBaseline, "out of ink"},
		"reset fails": {func(p *claimqtest.Plan) {
			p.Reset = func(context.Context) error { return errReset }
		}, errReset, "reset"},
		"a table without its functions": {func(p *claimqtest.Plan) {
			p.Effects = []claimqtest.Effect{&claimqtest.Table{}}
		}, nil, "Rows and Empty"},
	} {
		p := good
		c.edit(&p)
		_, err := claimqtest.Check(p)
		if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

var errReset = errors.New("no")

func emptyMux(*claimqtest.Worker) consumer.Handler { return &consumer.Mux{} }

// failed is a testing.TB that keeps what it is told.
type failed struct {
	testing.TB
	texts []string
}

func (f *failed) Helper()                        {}
func (f *failed) Errorf(format string, a ...any) { f.texts = append(f.texts, format) }

// TestRunFailsTheTest with the report.
func TestRunFailsTheTest(t *testing.T) {
	g := &claimqtest.Gateway{Label: "charge"}
	f := &failed{TB: t}
	r := claimqtest.Run(f, claimqtest.Plan{
		Task: task, Effects: []claimqtest.Effect{g}, Handler: stepHandler(g), Faults: []claimqtest.Fault{claimqtest.Killed},
	})
	if r.OK() || len(f.texts) != 1 {
		t.Errorf("%q; %v", f.texts, r)
	}
}

// TestAdviceIsAboutThisPlan, not about an earlier one on the same gateway.
func TestAdviceIsAboutThisPlan(t *testing.T) {
	g := &claimqtest.Gateway{Label: "charge", HonoursKeys: true}
	for _, c := range []struct {
		says string
		key  func(l queue.Lease) string
	}{
		{"without a key", func(queue.Lease) string { return "" }},
		{"with different keys", func(l queue.Lease) string { return l.Grant.Consumer }},
	} {
		r := checked(t, claimqtest.Plan{
			Task: task, Effects: []claimqtest.Effect{g}, Faults: []claimqtest.Fault{claimqtest.Killed},
			Handler: func(w *claimqtest.Worker) consumer.Handler {
				return handle(func(ctx context.Context, l queue.Lease) error {
					_, err := g.For(w).Call(ctx, c.key(l))
					return err
				})
			},
		})
		if len(r.Advice) != 1 || !strings.Contains(r.Advice[0], c.says) {
			t.Errorf("%s: %q", c.says, r.Advice)
		}
	}
}
