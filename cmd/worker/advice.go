package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/claimq/claimq/internal/config"
	"github.com/claimq/claimq/queue"
)

// What the advice on lease lengths goes by; docs/lease-length.md says why.
const (
	adviceRuns    = 100                // fewer say nothing about one in a hundred
	leasesPerP99  = 3                  // of what is advised: then 99 of 100 runs end before the first renewal
	longestAdvice = time.Minute        // beyond, a lease only delays recovery: longer runs are renewed
	leastAdvice   = queue.DefaultLease // nobody is asked to go below
)

// The verdicts on a lease length.
const (
	leaseFits  = "fits"
	leaseShort = "too short"
	leaseLong  = "needlessly long"
	leaseOpen  = "too few runs"
	leaseMixed = "not told apart" // of the kinds beyond queue.MaxTimedKinds
)

// leaseAdvice is what the times of one kind's handlers say about its lease.
type leaseAdvice struct {
	Queue   string  `json:"queue"`
	Kind    string  `json:"kind"` // empty: the kinds that are not told apart
	Runs    int64   `json:"runs"`
	P50     seconds `json:"p50_seconds"`
	P99     seconds `json:"p99_seconds"`
	Lease   seconds `json:"lease_seconds,omitempty"`
	Verdict string  `json:"verdict"`
	Set     seconds `json:"set_seconds,omitempty"` // with "too short" and "needlessly long"
}

// seconds is a duration that is a number of seconds in JSON.
type seconds time.Duration

func (s seconds) MarshalJSON() ([]byte, error) {
	return fmt.Append(nil, time.Duration(s).Seconds()), nil
}

// String leaves out zeros at the end.
func (s seconds) String() string {
	text := time.Duration(s).String()
	if t, ok := strings.CutSuffix(text, "m0s"); ok {
		text = t + "m"
	}
	if t, ok := strings.CutSuffix(text, "h0m"); ok {
		text = t + "h"
	}
	return text
}

// about rounds to two digits: the times are no more exact.
func (s seconds) about() seconds {
	unit := time.Microsecond
	for time.Duration(s)/unit >= 100 {
		unit *= 10
	}
	return seconds(time.Duration(s).Round(unit))
}

// adviseOn judges the lease length of every kind that ran in a queue.
func adviseOn(ctx context.Context, q *queue.Queue) ([]leaseAdvice, error) {
	times, err := q.Times(ctx)
	if err != nil {
		return nil, err
	}
	var out []leaseAdvice
	for kind, h := range times {
		a := leaseAdvice{Queue: q.Name(), Kind: kind, Runs: h.Runs(), P50: seconds(h.Quantile(.5)), P99: seconds(h.Quantile(.99)), Lease: seconds(q.LeaseFor(kind))}
		switch {
		case kind == queue.OtherKinds:
			a.Verdict, a.Lease = leaseMixed, 0
		case a.Runs < adviceRuns:
			a.Verdict = leaseOpen
		default:
			a.Verdict, a.Set = judge(a.P99, a.Lease)
		}
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b leaseAdvice) int {
		if (a.Kind == "") != (b.Kind == "") { // the rest comes last
			return strings.Compare(b.Kind, a.Kind)
		}
		return cmp.Or(cmp.Compare(b.P99, a.P99), strings.Compare(a.Kind, b.Kind))
	})
	return out, nil
}

// judge compares the time that 99 of 100 runs need with the lease length. A
// change by less than half is not worth a word.
func judge(p99, lease seconds) (verdict string, set seconds) {
	set = min(roundedUp(leasesPerP99*p99), seconds(longestAdvice))
	if p99 > lease/3*2 && set >= lease/2*3 {
		return leaseShort, set
	}
	set = max(set, seconds(leastAdvice))
	if p99 < lease/10 && lease >= set/2*3 {
		return leaseLong, set
	}
	return leaseFits, 0
}

// roundedUp is the next length that people write, up to longestAdvice.
func roundedUp(s seconds) seconds {
	for _, ms := range []int{500, 1000, 2000, 3000, 5000, 10_000, 15_000, 20_000, 30_000, 45_000} {
		if d := seconds(ms) * seconds(time.Millisecond); s <= d {
			return d
		}
	}
	return seconds(longestAdvice)
}

// leaseSettings gives the variables that follow the advice, whole: what they
// say of other kinds is kept. QUEUE_LEASE is among them only if the advice is
// the same for all kinds that go by it.
func leaseSettings(advice []leaseAdvice, now config.Queue) map[string]string {
	var common []seconds // what is advised to kinds without a length of their own
	kinds := map[string]seconds{}
	for _, a := range advice {
		if _, own := now.KindLeases[a.Kind]; !own && !slices.Contains(common, a.Set) {
			common = append(common, a.Set)
		}
		// In several queues a kind has one length: that which is enough for all.
		kinds[a.Kind] = max(kinds[a.Kind], cmp.Or(a.Set, a.Lease))
	}
	delete(kinds, queue.OtherKinds)
	out := map[string]string{}
	together := len(common) == 1 && common[0] > 0
	if together {
		out["QUEUE_LEASE"] = common[0].String()
	}
	own := config.KindDurations{}
	maps.Copy(own, now.KindLeases)
	for kind, length := range kinds {
		lease, named := own[kind]
		if !named {
			lease = now.Lease
		}
		if time.Duration(length) != lease && (named || !together) && !strings.Contains(kind, ",") {
			own[kind] = time.Duration(length)
		}
	}
	if !maps.Equal(own, now.KindLeases) {
		var items []string
		for _, kind := range slices.Sorted(maps.Keys(own)) {
			items = append(items, kind+":"+seconds(own[kind]).String())
		}
		out["QUEUE_KIND_LEASES"] = strings.Join(items, ",")
	}
	return out
}

// printAdvice writes a table, one row for each kind of a queue.
func printAdvice(w io.Writer, advice []leaseAdvice) {
	if len(advice) == 0 {
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  kind\truns\thalf within\t99 % within\tlease\tadvice")
	for _, a := range advice {
		kind, lease, what := a.Kind, a.Lease.String(), a.Verdict
		switch a.Verdict {
		case leaseShort, leaseLong:
			what += ": set " + a.Set.String()
		case leaseOpen:
			what += fmt.Sprintf(" to say: at least %d", adviceRuns)
		case leaseMixed:
			kind, lease = "(others)", "-"
			what = fmt.Sprintf("more than %d kinds: the rest is %s", queue.MaxTimedKinds, what)
		case leaseFits:
			if a.P99 > a.Lease {
				what += ", renewed while it runs"
			}
		}
		fmt.Fprintf(t, "  %s\t%d\t%v\t%v\t%s\t%s\n", kind, a.Runs, a.P50.about(), a.P99.about(), lease, what)
	}
	t.Flush()
}
