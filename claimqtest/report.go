package claimqtest

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/claimq/claimq/queue"
)

// Count is how often an effect was there.
type Count struct {
	Effect string
	N      int
}

// Finding is a run that did not end as the one without a fault did.
type Finding struct {
	Where  string // "between the call of charge and the result of step charge"
	Fault  Fault
	Effect string // empty when only the end of the task was wrong
	Want   int    // how often the effect is there without a fault
	Got    int
	Runs   int // of the handler, by all workers
	// Problem says how the task ended, where that was wrong too.
	Problem string
}

// Lost reports whether the effect is there less often than it should be.
func (f Finding) Lost() bool { return f.Effect != "" && f.Got < f.Want }

// Doubled reports whether the effect is there more often than it should be.
func (f Finding) Doubled() bool { return f.Effect != "" && f.Got > f.Want }

// Report is what came of a Plan.
type Report struct {
	Task     queue.TaskID
	Points   []string // what the handler and its worker do, without a fault
	Wanted   []Count  // the effects without a fault
	Runs     int      // of the task
	Findings []Finding
	Advice   []string // a line for each effect that was lost or doubled
}

// OK reports whether every effect was there as often as without a fault,
// whatever went wrong.
func (r Report) OK() bool { return len(r.Findings) == 0 }

// String is the report as a text of several lines, the same for the same
// findings.
func (r Report) String() string {
	var b strings.Builder
	wanted := make([]string, len(r.Wanted))
	for i, c := range r.Wanted {
		wanted[i] = fmt.Sprintf("%s %d", c.Effect, c.N)
	}
	fmt.Fprintf(&b, "task %s: %d points, %d runs, %d of them wrong; without a fault: %s\n",
		r.Task, len(r.Points), r.Runs, r.wrongRuns(), strings.Join(wanted, ", "))
	if r.OK() {
		return b.String()
	}
	b.WriteString("\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.TabIndent)
	fmt.Fprintln(w, "FAULT\tEFFECT\tWANT\tGOT\tRUNS\tWHERE")
	for _, f := range r.Findings {
		where := f.Where
		if f.Problem != "" {
			where += "; " + f.Problem
		}
		if f.Effect == "" {
			fmt.Fprintf(w, "%s\t-\t-\t-\t%d\t%s\n", f.Fault, f.Runs, where)
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%s\n", f.Fault, f.Effect, f.Want, f.Got, f.Runs, where)
	}
	_ = w.Flush() // into memory
	b.WriteString("\n")
	for _, line := range r.Advice {
		b.WriteString(line + "\n")
	}
	return b.String()
}

func (r Report) wrongRuns() int {
	type run struct {
		where string
		fault Fault
	}
	wrong := map[run]bool{}
	for _, f := range r.Findings {
		wrong[run{f.Where, f.Fault}] = true
	}
	return len(wrong)
}

// adviser is an effect that knows how it is guarded.
type adviser interface {
	begin() // a plan; what was seen before does not count
	advice() string
}

// advise adds for each effect what would help.
func (r *Report) advise(effects []Effect) {
	for _, e := range effects {
		about := func(is func(Finding) bool) bool {
			return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Effect == e.Name() && is(f) })
		}
		if about(Finding.Lost) {
			r.Advice = append(r.Advice, e.Name()+" is lost: something says that it is there before it is. "+
				"Have the effect first and note it then, as dedupe.Step does, or both in one transaction; and return every error")
		}
		if about(Finding.Doubled) {
			r.Advice = append(r.Advice, e.Name()+" is doubled: "+r.guard(e))
		}
	}
	if slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Problem != "" }) {
		r.Advice = append(r.Advice, "a task that does not end as it should: see what its handler returns after the fault")
	}
}

// guard says what keeps an effect from being there twice.
func (r *Report) guard(e Effect) string {
	if a, ok := e.(adviser); ok {
		return a.advice()
	}
	replaced := func(f Finding) bool { return f.Fault == Paused || f.Fault == Together }
	onlyReplaced := !slices.ContainsFunc(r.Findings, func(f Finding) bool {
		return f.Effect == e.Name() && f.Doubled() && !replaced(f)
	})
	if onlyReplaced {
		return "by a worker that was replaced: compare the fence of the lease in the same step as the write"
	}
	return "nothing recognises the second time: have it and its record in one transaction (postgres.Tx), " +
		"or where something else has it, give it the key of dedupe.Step"
}

// names lists what points are called.
func names(points []point) []string {
	out := make([]string, len(points))
	for i, p := range points {
		out[i] = p.name
	}
	return out
}

// place says where a fault happened.
func place(points []point, at int, f Fault) string {
	switch {
	case at < 0:
		return "after the completion of the task"
	case f == RequestLost || f == ReplyLost || f == ServerAway:
		return "at " + points[at].name
	case at == 0:
		return "before " + points[at].name
	}
	return "between " + points[at-1].name + " and " + points[at].name
}

// oneLine is the beginning of a text that may have several lines.
func oneLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	const most = 120
	if len(s) > most {
		s = s[:most] + "…"
	}
	return s
}
