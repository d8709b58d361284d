package demo

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// Report is how a run went.
type Report struct {
	Tasks       int
	Requests    int // every POST that reached the receiver
	Effects     int
	Reclaimed   int // entries taken over after a lease had ended
	Duplicates  int // second enqueues, and copies, that were not run
	Refused     int // settles by a worker whose lease was no longer its own
	Recovered   int // tasks that were run again after a fault
	Longest     time.Duration
	Unexplained int

	problems []string
	details  []string
}

// judge works out what the receiver saw against what was done to the workers.
func (r *Report) judge(ids []string, byTask map[string][]request, effects map[string]int, odd []string, faults []*fault) {
	r.Tasks = len(ids)
	known := make(map[string]bool, len(ids))
	for _, id := range ids {
		known[id] = true
		if n := effects[id]; n != 1 {
			r.problem("%s had %d effects", id, n)
		}
	}
	for _, f := range faults {
		f.setAfter(byTask)
		r.recovery(f, byTask, faults)
	}
	for id, list := range byTask {
		r.Requests += len(list)
		r.Effects += effects[id]
		if !known[id] {
			r.problem("%s was delivered but never enqueued", id)
		}
		r.explain(id, list, faults)
	}
	for _, what := range odd {
		r.problem("the receiver got something that is no task: %s", what)
	}
	if r.Unexplained > 0 {
		r.problem("%d requests beyond the first that no kill or freeze accounts for", r.Unexplained)
	}
}

// explain puts the requests of one task in the order of their leases. Each
// beyond the first must follow one whose worker was hit with the task in hand.
// Two under the same lease are never explained.
func (r *Report) explain(id string, list []request, faults []*fault) {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b request) int {
		return cmp.Or(cmp.Compare(a.fence, b.fence), cmp.Compare(a.seq, b.seq))
	})
	for i := 1; i < len(list); i++ {
		prev, next := list[i-1], list[i]
		explained := prev.fence < next.fence && slices.ContainsFunc(faults, func(f *fault) bool { return f.covers(prev) })
		if !explained {
			r.Unexplained++
			r.detail("%s: attempt %d by %s after attempt %d by %s, %v later",
				id, next.attempt, next.worker, prev.attempt, prev.worker, next.at.Sub(prev.at).Round(time.Millisecond))
		}
		if prev.key != next.key {
			r.problem("%s: its idempotency key changed between attempts", id)
		}
	}
}

// setAfter finds a fence that was granted while the worker was frozen: the
// smallest under which one of its tasks went on elsewhere.
func (f *fault) setAfter(byTask map[string][]request) {
	for task, fence := range f.inHand {
		for _, req := range byTask[task] {
			if req.fence > fence && req.worker != f.worker && (f.after == 0 || req.fence < f.after) {
				f.after = req.fence
			}
		}
	}
}

// recovery measures from the fault to the next request of each task that the
// worker had in hand, or to a moment at which the task was seen to have a new
// holder. The time its lease still had is part of it.
func (r *Report) recovery(f *fault, byTask map[string][]request, faults []*fault) {
	for task, fence := range f.inHand {
		var first time.Time
		for _, req := range byTask[task] {
			if req.fence > fence && (first.IsZero() || req.at.Before(first)) {
				first = req.at
			}
		}
		if first.IsZero() {
			continue // its result was on record: there was nothing to send again
		}
		for _, g := range faults {
			if g.seen[task] > fence && g.at.Before(first) {
				first = g.at
			}
		}
		r.Recovered++
		r.Longest = max(r.Longest, first.Sub(f.at))
	}
}

// maxProblems is how many lines of each sort are printed after a bad run.
const maxProblems = 10

func (r *Report) problem(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

func (r *Report) detail(format string, args ...any) {
	r.details = append(r.details, fmt.Sprintf(format, args...))
}

// Err is nil when the run showed what it should.
func (r *Report) Err() error {
	switch n := len(r.problems); n {
	case 0:
		return nil
	case 1:
		return errors.New(r.problems[0])
	default:
		return fmt.Errorf("%s, and %d more problems", r.problems[0], n-1)
	}
}

// Print writes the table and, after a bad run, what was wrong.
func (r *Report) Print(w io.Writer, lease time.Duration) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, value any, about string) {
		fmt.Fprintf(t, "%s\t%v\t  %s\n", name, value, about)
	}
	fmt.Fprintln(w)
	row("tasks", r.Tasks, "")
	row("requests", r.Requests, "every POST that reached the receiver")
	row("reclaimed", r.Reclaimed, "taken over from a worker whose lease had ended")
	row("suppressed duplicates", r.Duplicates, "second enqueues of a known ID, and copies")
	row("refused late settles", r.Refused, "by a worker that woke up and was no longer the holder")
	row("longest recovery", fmt.Sprintf("%.1fs", r.Longest.Seconds()),
		fmt.Sprintf("from kill or freeze to the next request of a task in hand; lease %v, %d tasks", lease, r.Recovered))
	row("effects", r.Effects, "")
	row("unexplained", r.Unexplained, "requests beyond a task's first that no kill or freeze accounts for")
	t.Flush()
	fmt.Fprintln(w)
	for name, list := range map[string][]string{"problem": r.problems, "unexplained": r.details} {
		for _, p := range list[:min(len(list), maxProblems)] {
			fmt.Fprintf(w, "%s: %s\n", name, p)
		}
	}
}
