package postgres

import (
	"errors"

	"github.com/claimq/claimq/queue"
)

type taskKey struct{ queue, id string }

func keyOf(l queue.Lease) taskKey { return taskKey{l.Queue, string(l.TaskID)} }

// batch is the leases of one call and what becomes of them. Of several leases
// on one task the one with the greatest fence is chosen to act for all.
type batch struct {
	leases []queue.Lease
	chosen []int           // positions, in order
	byKey  map[taskKey]int // position of the chosen one
	ends   []End
}

func newBatch(leases []queue.Lease) *batch {
	b := &batch{leases: leases, byKey: make(map[taskKey]int, len(leases)), ends: make([]End, len(leases))}
	for n, l := range leases {
		best, known := b.byKey[keyOf(l)]
		if !known || l.Fence > leases[best].Fence {
			b.byKey[keyOf(l)] = n
		}
	}
	for n, l := range leases {
		if b.byKey[keyOf(l)] == n {
			b.chosen = append(b.chosen, n)
		}
	}
	b.reset()
	return b
}

// reset forgets what a transaction that was rolled back has found, but for
// tasks that are done: they stay that.
func (b *batch) reset() {
	for n, l := range b.leases {
		if b.ends[n].Outcome != Done {
			b.ends[n] = End{Lease: l}
		}
	}
}

func (b *batch) where(is func(queue.Lease) bool) []int {
	var found []int
	for _, n := range b.chosen {
		if is(b.leases[n]) {
			found = append(found, n)
		}
	}
	return found
}

// keys are the arguments of a statement for the leases at these positions.
func (b *batch) keys(at []int) (queues, ids []string, fences []int64) {
	for _, n := range at {
		l := b.leases[n]
		queues, ids, fences = append(queues, l.Queue), append(ids, string(l.TaskID)), append(fences, int64(l.Fence))
	}
	return queues, ids, fences
}

// failed ends the leases that have no end yet with an error.
func (b *batch) failed(err error, tries int) {
	outcome := Unknown
	if _, unknown := errors.AsType[*unknownError](err); !unknown {
		outcome, err = RolledBack, &RolledBackError{Err: err, Tries: tries}
	}
	for n := range b.ends {
		if b.ends[n].Outcome == "" {
			b.ends[n].Outcome, b.ends[n].Err, b.ends[n].Result = outcome, err, nil
		}
	}
}

// all returns an end for each lease; those that were not chosen have that of
// the one that acted for them.
func (b *batch) all() []End {
	for n, l := range b.leases {
		if acted := b.byKey[keyOf(l)]; acted != n {
			b.ends[n] = b.ends[acted]
			b.ends[n].Lease = l
		}
	}
	return b.ends
}
