package queue

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Renewal is the server's answer for one grant.
type Renewal struct {
	Grant        Grant
	TrustedUntil time.Time // new local trust; set when Err is nil
	Revoked      []TaskID  // tasks of the grant that were deleted: drop them
	// Err is nil; ErrLeaseLost: the lease has ended, for every task of the
	// grant; ErrIndefinite or ErrUnavailable: ask again, the lease lasts at
	// least as long as it was trusted before.
	Err error
}

// Renew extends grants, one command for many. A lease that has ended is not
// revived.
func (q *Queue) Renew(ctx context.Context, grants []Grant) []Renewal {
	sent := time.Now()
	out := make([]Renewal, len(grants))
	groups := byHolder(len(grants), func(i int) Grant { return grants[i] })
	calls := make([]*call, len(groups))
	for c, g := range groups {
		calls[c] = q.newCall(scriptRenew, g.partition, 3+2*len(g.index)).add(g.consumer, q.traced(), len(g.index))
		calls[c].expect(len(g.index))
		for _, i := range g.index {
			calls[c].text(string(grants[i].Token))
		}
		for _, i := range g.index {
			calls[c].add(grants[i].Length.Milliseconds())
		}
	}
	if len(calls) > 0 {
		q.run(ctx, calls...)
	}
	for c, g := range groups {
		reply := asList(calls[c].reply)
		if calls[c].err == nil && len(reply) != len(g.index) {
			calls[c].err = shapeError("renew", calls[c].reply)
		}
		for j, i := range g.index {
			out[i].Grant = grants[i]
			if calls[c].err != nil {
				out[i].Err = calls[c].err
				continue
			}
			revoked, held := strings.CutPrefix(asString(reply[j]), "+")
			if !held {
				out[i].Err = fmt.Errorf("%w: the lease had ended", ErrLeaseLost)
				continue
			}
			out[i].TrustedUntil = trust(sent, grants[i].Length)
			for id := range strings.Lines(revoked) {
				out[i].Revoked = append(out[i].Revoked, TaskID(strings.TrimSuffix(id, "\n")))
			}
		}
	}
	return out
}

// Split moves leases into a grant of their own, so that they can run out while
// their neighbours are renewed: same fence, same lease end. From then on only
// the returned leases settle. One error for each lease, as from Start; the same
// token makes the call safe to repeat.
func (q *Queue) Split(ctx context.Context, token Token, leases []Lease) ([]Lease, []error) {
	errs := q.onHeld(ctx, scriptSplit, leases, func(g group) []any {
		var members strings.Builder
		for _, i := range g.index {
			members.WriteString(string(leases[i].EntryID) + " " + string(leases[i].TaskID) + "\n")
		}
		return []any{string(token), members.String(), g.consumer}
	})
	moved := make([]Lease, len(leases))
	for i, l := range leases {
		moved[i] = l
		if errs[i] == nil {
			moved[i].Grant.Token = token
		}
	}
	return moved, errs
}
