package queue

import (
	"context"
	"fmt"
)

// Start puts attempts on record for held deliveries: one error for each lease.
// nil: the handler may run. ErrLeaseLost: drop the delivery. ErrIndefinite,
// ErrUnavailable: ask again with the same leases.
func (q *Queue) Start(ctx context.Context, leases []Lease) []error {
	return q.onHeld(ctx, scriptStart, leases, func(g group) []any { return []any{g.consumer, q.traced()} })
}

// onHeld runs a script over n IDs and n tails that answers with the indexes of
// those that are lost. prefix gives the arguments before n.
func (q *Queue) onHeld(ctx context.Context, s *script, leases []Lease, prefix func(g group) []any) []error {
	errs := make([]error, len(leases))
	groups := byHolder(len(leases), func(i int) Grant { return leases[i].Grant })
	calls := make([]*call, len(groups))
	for c, g := range groups {
		n := len(g.index)
		calls[c] = q.newCall(s, g.partition, 4+2*n).add(prefix(g)...).add(n)
		calls[c].expect(2 * n)
		for _, i := range g.index {
			calls[c].text(string(leases[i].TaskID))
		}
		var ends tails
		for _, i := range g.index {
			calls[c].text(ends.of(&leases[i]))
		}
	}
	if len(calls) > 0 {
		q.run(ctx, calls...)
	}
	for c, g := range groups {
		if lost, list := calls[c].reply.([]any); calls[c].err == nil && (!list || !indexes(lost, len(g.index))) {
			calls[c].err = shapeError(s.name, calls[c].reply)
		}
		for _, i := range g.index {
			errs[i] = calls[c].err
		}
		if calls[c].err != nil {
			continue
		}
		for _, x := range asList(calls[c].reply) {
			i := g.index[asInt(x)-1]
			errs[i] = fmt.Errorf("%w: task %s", ErrLeaseLost, leases[i].TaskID)
		}
	}
	return errs
}
