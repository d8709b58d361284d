package contender

import "slices"

// Backlog is how many tasks wait in a queue that is almost empty.
const Backlog = 10

// BaseOf are the options of an almost empty queue beside the one of o.
func BaseOf(o Options) Options {
	return Options{Addr: o.Base, N: o.N, Size: o.Size, Callers: o.Callers, Batch: 100, IDBytes: 36, Backlog: Backlog}
}

// Side is one of two queues, on servers of their own, that do the same work.
type Side struct {
	Meter *Meter
	Work  func(n int) error // does n tasks' work, and puts it on the meter
}

// Beside does work of n tasks on both sides, a slice here and a slice there, so
// that both see the same machine. It returns the median of what a slice of the
// first cost the server, divided by what the one beside it cost the other.
func Beside(n, slice int, state, base Side) (ratio float64, err error) {
	var ratios []float64
	for i := range n / slice {
		var cost [2]float64
		sides := [2]Side{state, base}
		for j := range sides {
			k := (i + j) % 2 // each is first in turn
			before := sides[k].Meter.Total()
			sides[k].Meter.Skip()
			if err := sides[k].Work(slice); err != nil {
				return 0, err
			}
			cost[k] = sides[k].Meter.Total() - before
		}
		ratios = append(ratios, cost[0]/cost[1])
	}
	return Median(ratios), nil
}

// Median of some values; 0 where there are none. It sorts them.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

// Compared is the result of a state, with the base's parts under "base_".
func Compared(o Options, ratio float64, state, base Side) (Result, error) {
	out := Result{N: o.N}
	var err error
	if out.More, err = state.Meter.Result(); err != nil {
		return out, err
	}
	beside, err := base.Meter.Result()
	for part, v := range beside {
		out.More["base_"+part] = v
	}
	out.More["ratio"] = ratio
	return out, err
}
