package chaos

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/claimq/claimq/internal/fleet"
)

// account is what the requests say at the end.
type account struct {
	tasks, deliveries int
	explained         map[string]int // second runs, by the fault that explains them
	lost, unexplained []string
	overlaps          []string // two live holders
	recoveries        []time.Duration
	late              []string // recoveries beyond the bound
	alone             []time.Duration
	twice             int // recoveries beyond the bound that count from a second fault
	firstWait         time.Duration
	waited            string // who waited so long
}

// retried explains a run after one that the receiver answered with an error.
const retried = "retry"

// overtook explains a run that a frozen worker had begun before the one that
// was seen before it.
const overtook = "sent late by a frozen worker"

func (d *driver) account() *account {
	a := &account{tasks: d.l.issued(), explained: map[string]int{}, lost: d.l.missing}
	all := d.rec.ByTask()
	for n := range a.tasks {
		runs := all[id(n)]
		a.deliveries += len(runs)
		if len(runs) == 0 {
			a.lost = append(a.lost, id(n)+" never ran")
			continue
		}
		if gone := d.l.gone[n]; gone.IsZero() || runs[0].At.Before(gone) {
			if wait := runs[0].At.Sub(d.l.first[n]); wait > a.firstWait {
				a.firstWait = wait
				a.waited = fmt.Sprintf("%s, acknowledged at %s, on %s; meanwhile %s", id(n), d.l.first[n].Format(clockTime),
					runs[0].Worker, d.h.between(d.l.first[n], runs[0].At))
			}
		}
		for i := 1; i < len(runs); i++ {
			d.judge(a, n, runs[i-1], runs[i])
		}
	}
	slices.Sort(a.recoveries)
	slices.Sort(a.alone)
	return a
}

// judge looks for the reason of a run after another.
func (d *driver) judge(a *account, task int, prev, next fleet.Request) {
	if f := d.h.overtaken(prev, next); f != nil {
		a.explained[overtook]++
		return
	}
	f, destroyer := d.h.explain(task, d.l.acked[task], prev, next)
	var took time.Duration
	second := false
	if f != nil && !f.orphans.IsZero() {
		since := d.h.recoverable(f, next.At)
		took = max(0, next.At.Sub(since))
		if took > bound {
			if struck := d.h.struckAgain(since, next.At, prev.Worker); struck.After(since) {
				second, took = true, next.At.Sub(struck)
			}
		}
	}
	// What was lost with a worker counts as another attempt, what the server
	// forgot does not; and it comes back only when it is enqueued again.
	if destroyer != nil && (f == nil || next.Attempt <= prev.Attempt || took > bound) {
		f = destroyer
		d.h.forget(f, task)
	}
	said := fmt.Sprintf("%s: ran on %s at %s (attempt %d, answered %s with %d), again on %s at %s (attempt %d)", id(task),
		prev.Worker, prev.At.Format(clockTime), prev.Attempt, prev.Ended.Format(clockTime), prev.Status,
		next.Worker, next.At.Format(clockTime), next.Attempt)
	switch {
	case prev.Status >= 500 && next.At.After(prev.Ended) && next.Attempt == prev.Attempt+1:
		a.explained[retried]++
	case f == nil && (prev.Ended.IsZero() || next.At.Before(prev.Ended)):
		a.overlaps = append(a.overlaps, said)
	case f == nil:
		a.unexplained = append(a.unexplained, said)
	case f != destroyer && next.Attempt <= prev.Attempt:
		a.unexplained = append(a.unexplained, said+": not counted as an attempt, after "+f.kind)
	case next.Fence <= prev.Fence && (destroyer == nil || !d.steppedBack):
		a.unexplained = append(a.unexplained, fmt.Sprintf("%s: fence %d after %d", said, next.Fence, prev.Fence))
	default:
		a.explained[f.kind]++
		switch {
		case f == destroyer || f.orphans.IsZero():
		case next.Attempt > 2:
			// Interrupted twice: whoever takes it over lets all else finish first.
			a.alone = append(a.alone, took)
		default:
			if second {
				a.twice++
			}
			a.recoveries = append(a.recoveries, took)
			if took > bound {
				a.late = append(a.late, fmt.Sprintf("%v after %s at %s: %s", took.Round(time.Millisecond), f.kind, f.from.Format(clockTime), said))
			}
		}
	}
}

// quantile of what is sorted, by nearest rank.
func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	return all[max(0, int(math.Ceil(q*float64(len(all))))-1)].Round(time.Millisecond)
}

// report logs everything and sets the last line.
func (d *driver) report(a *account) {
	d.t.Helper()
	kinds, allowed, forgotten := d.h.count()
	faults := 0
	for _, n := range kinds {
		faults += n
	}
	d.t.Logf("%d tasks in %v, %d deliveries, %d enqueued again", a.tasks, time.Since(d.began).Round(time.Second), a.deliveries, d.l.again)
	d.t.Logf("faults: %s", tally(kinds))
	d.t.Logf("second runs explained by: %s", tally(a.explained))
	d.t.Logf("%d recoveries: median %v, p99 %v, worst %v, bound %v; %d later than that, %d counted from a second fault", len(a.recoveries),
		quantile(a.recoveries, 0.5), quantile(a.recoveries, 0.99), quantile(a.recoveries, 1), bound, len(a.late), a.twice)
	d.t.Logf("%d recoveries of tasks that run alone: median %v, worst %v", len(a.alone), quantile(a.alone, 0.5), quantile(a.alone, 1))
	d.t.Logf("longest from the first acknowledgement to the first run: %v by %s", a.firstWait.Round(time.Millisecond), a.waited)
	for _, f := range d.h.faults {
		if f.mayForget != nil {
			d.t.Logf("%s at %s, %v: forgotten %d of %d allowed", f.kind, f.from.Format(clockTime), f.to.Sub(f.from).Round(time.Millisecond), len(f.forgot), f.allowed())
		}
	}
	d.complain("lost", a.lost)
	d.complain("unexplained", a.unexplained)
	d.complain("two live holders", a.overlaps)
	if p99 := quantile(a.recoveries, 0.99); p99 > bound {
		d.complain("recoveries beyond the bound", a.late)
	} else {
		for _, s := range a.late[:min(10, len(a.late))] {
			d.t.Logf("late: %s", s)
		}
	}
	verdict := "ok"
	if d.t.Failed() {
		verdict = "failed:"
	}
	summary = fmt.Sprintf("chaos: %s tasks=%d faults=%d lost=%d unexplained=%d forgotten=%d allowed=%d recovery_p99=%v bound=%v",
		verdict, a.tasks, faults, len(a.lost), len(a.unexplained)+len(a.overlaps), forgotten, allowed, quantile(a.recoveries, 0.99), bound)
}

func (d *driver) complain(what string, cases []string) {
	d.t.Helper()
	for i, c := range cases {
		if i == 10 {
			d.t.Errorf("%s: and %d more", what, len(cases)-i)
			break
		}
		d.t.Errorf("%s: %s", what, c)
	}
}

func tally(counts map[string]int) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Or(counts[b]-counts[a], cmp.Compare(a, b)) })
	for i, n := range names {
		names[i] = fmt.Sprintf("%s %d", n, counts[n])
	}
	return strings.Join(names, ", ")
}
