package consumer

import (
	"slices"
	"time"
)

const (
	// richTurn is the longest time for which a partition that has tasks waiting
	// is passed over, while the worker has room for as many tasks as there are
	// partitions; with less room, it is read within one rotation.
	richTurn = time.Second
	// poorTurn is the same for a partition in which nothing was left.
	poorTurn = 100 * time.Millisecond
	// maxDeepReads bounds the reads of one queue in one round.
	maxDeepReads = 6
)

// wealth is what the last read of a partition says about the next one.
type wealth uint8

const (
	poor  wealth = iota // it brought less than was asked for
	maybe               // it brought what was asked for, but that was one entry
	rich                // there is probably more
)

// rotation is the order in which the partitions of a queue are read while tasks
// are waiting in it: one at a time, each for as much as there is room for, since
// the tasks of one partition are begun and settled with one script call.
type rotation struct {
	order []int // partitions, the one that was not read for the longest time first
	read  []time.Time
	has   []wealth
	rich  int // how many are

	picked []int
}

func newRotation(partitions int) rotation {
	r := rotation{read: make([]time.Time, partitions), has: make([]wealth, partitions)}
	for p := range partitions {
		r.order = append(r.order, p)
	}
	return r
}

// overdue returns the partitions that have been passed over for too long, at
// most limit of them. The slice is valid until the next call.
func (r *rotation) overdue(now time.Time, limit int) []int {
	return r.pick(limit, func(p int) bool {
		if r.has[p] == rich {
			return now.Sub(r.read[p]) >= richTurn
		}
		return now.Sub(r.read[p]) >= poorTurn
	})
}

// next returns the partitions that are to be read deep, at most limit of them.
// The slice is valid until the next call.
func (r *rotation) next(limit int) []int {
	return r.pick(limit, func(p int) bool { return r.has[p] == rich })
}

func (r *rotation) pick(limit int, ok func(p int) bool) []int {
	r.picked = r.picked[:0]
	for _, p := range r.order {
		if len(r.picked) < limit && ok(p) {
			r.picked = append(r.picked, p)
		}
	}
	return r.picked
}

// note takes down that a partition was asked for asked entries and brought
// got. much: together with the others that were read it brought at least half
// of what there was room for. One entry where one was asked for says little: it
// takes two in a row.
func (r *rotation) note(p int, now time.Time, asked, got int, much bool) {
	r.read[p] = now
	if i := slices.Index(r.order, p); i < len(r.order)-1 {
		r.order = append(slices.Delete(r.order, i, i+1), p)
	}
	was := r.has[p]
	switch {
	case asked == 0 || got < asked:
		r.has[p] = poor
	case asked > 1 || much || was != poor:
		r.has[p] = rich
	default:
		r.has[p] = maybe
	}
	if was == rich {
		r.rich--
	}
	if r.has[p] == rich {
		r.rich++
	}
}
