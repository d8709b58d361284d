package claimqtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/claimq/claimq/queue"
)

// checker runs a plan.
type checker struct {
	t         *testing.T
	plan      Plan
	queueName string // begins the names of all queues
	trials    int
	report    Report
}

func random() string {
	var b [4]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func (c *checker) run() (Report, error) {
	for _, e := range c.plan.Effects {
		if a, ok := e.(adviser); ok {
			a.begin()
		}
	}
	first, err := c.try(-1, "")
	if err != nil {
		return c.report, err
	}
	c.report.Task, c.report.Points = c.plan.Task.ID, names(first.points)
	wanted := first.counts
	if err := c.baseline(first); err != nil {
		return c.report, err
	}
	for i, n := range wanted {
		c.report.Wanted = append(c.report.Wanted, Count{c.plan.Effects[i].Name(), n})
	}
	for at, p := range first.points {
		for _, f := range c.plan.Faults {
			if !p.seam.allows(f) {
				continue
			}
			got, err := c.try(at, f)
			if err != nil {
				return c.report, err
			}
			c.judge(first.points, at, f, wanted, got)
		}
	}
	if c.plan.RedisForgets {
		got, err := c.try(-1, forgotten)
		if err != nil {
			return c.report, err
		}
		c.judge(first.points, -1, forgotten, wanted, got)
	}
	c.report.Runs = c.trials
	c.report.advise(c.plan.Effects)
	return c.report, nil
}

// baseline refuses a run without a fault that shows nothing.
func (c *checker) baseline(r result) error {
	switch {
	case r.problem != "":
		return fmt.Errorf("%w: %s", ErrBaseline, r.problem)
	case r.place != queue.Done:
		return fmt.Errorf("%w: the task is %s, its last error: %s", ErrBaseline, r.place, r.lastError)
	}
	for i, n := range r.counts {
		if n == 0 {
			return fmt.Errorf("%w: it did not have the effect %q", ErrBaseline, c.plan.Effects[i].Name())
		}
	}
	return nil
}

// result is what came of one run.
type result struct {
	points    []point // of the first worker
	counts    []int   // of each effect
	runs      int     // of the handler
	place     queue.Place
	lastError string
	fired     bool   // the fault came about
	problem   string // why the run says nothing
}

// try runs the task once, with a fault of the first worker at the point at.
func (c *checker) try(at int, f Fault) (result, error) {
	ctx := context.Background()
	for _, e := range c.plan.Effects {
		if err := e.Reset(ctx); err != nil {
			return result{}, fmt.Errorf("effect %q: reset: %w", e.Name(), err)
		}
	}
	if c.plan.Reset != nil {
		if err := c.plan.Reset(ctx); err != nil {
			return result{}, fmt.Errorf("reset: %w", err)
		}
	}
	c.trials++
	tr := &trial{plan: &c.plan, queueName: fmt.Sprintf("%s-%d", c.queueName, c.trials), at: at, fault: f}
	if c.plan.RealTime {
		tr.run()
	} else {
		synctest.Test(c.t, func(*testing.T) { tr.run() })
	}
	if tr.err != nil {
		return result{}, tr.err
	}
	for _, e := range c.plan.Effects {
		n, err := e.Count(ctx)
		if err != nil {
			return result{}, fmt.Errorf("effect %q: count: %w", e.Name(), err)
		}
		tr.result.counts = append(tr.result.counts, n)
	}
	return tr.result, nil
}

// judge adds what was wrong with a run to the report.
func (c *checker) judge(points []point, at int, f Fault, wanted []int, r result) {
	if r.fired && at >= 0 {
		points = r.points // of this run, where it is not the same each time
	}
	found := Finding{Where: place(points, at, f), Fault: f, Runs: r.runs}
	switch {
	case r.problem != "":
		found.Problem = r.problem
	case !r.fired:
		found.Problem = "the handler did not come to this point again: it does not do the same each time"
	case r.place != queue.Done:
		found.Problem = fmt.Sprintf("the task is %s: %s", r.place, oneLine(r.lastError))
	}
	wrong := false
	for i, n := range r.counts {
		if n != wanted[i] {
			f := found
			f.Effect, f.Want, f.Got = c.plan.Effects[i].Name(), wanted[i], n
			c.report.Findings = append(c.report.Findings, f)
			wrong = true
		}
	}
	if !wrong && found.Problem != "" {
		c.report.Findings = append(c.report.Findings, found)
	}
}
