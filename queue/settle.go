package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The settling verbs. Each takes many settlements and answers each in its
// place. The server compares token and fence before it changes anything:
//
// Invariant I4: only the current holder settles. A holder that was replaced
// changes nothing and is answered Lost. A lease that ended and that nobody
// took may still settle.
//
// Invariant I7: the same settlement may be sent again after ErrIndefinite and
// gets the answer of the first.

// ErrEntryGone: the entry was deleted from outside while the task ran, so it
// cannot be moved. Its record is dropped; the ID may be enqueued again.
var ErrEntryGone = errors.New("entry deleted from outside")

// Complete remembers tasks as done, with an optional result, and deletes their
// entries.
//
// Invariant I5: no handler run begins for a completed ID within the retention
// window.
func (q *Queue) Complete(ctx context.Context, s []Settlement) []Settled {
	return q.settle(ctx, scriptComplete, Completed, s, settleArgs{
		make: q.completeCall,
		check: func(s *Settlement) error {
			if len(s.Result) > MaxResultBytes {
				return badTask("Result", "at most %d bytes are kept, got %d: keep a reference instead", MaxResultBytes, len(s.Result))
			}
			return nil
		},
	})
}

// Retry counts a failure and schedules the task again after Delay; at
// Config.MaxFailures it becomes a dead letter instead (outcome dead).
func (q *Queue) Retry(ctx context.Context, s []Settlement) []Settled {
	return q.settle(ctx, scriptRetry, Retried, s, settleArgs{
		extra: []any{q.cfg.MaxFailures},
		columns: [2]column{
			func(c *call, s *Settlement) { c.add(max(0, s.Delay.Milliseconds())) },
			func(c *call, s *Settlement) { c.text(clip(s.Error)) },
		},
	})
}

// Release hands tasks back without counting a failure: to waiting at once, or
// to scheduled with a Delay, or as Unhandled.
func (q *Queue) Release(ctx context.Context, s []Settlement) []Settled {
	return q.settle(ctx, scriptRelease, Released, s, settleArgs{
		extra: []any{q.cfg.NoHandlerAfter.Milliseconds(), q.traced()},
		columns: [2]column{func(c *call, s *Settlement) {
			if s.Unhandled {
				c.text("u")
				return
			}
			c.text(strconv.FormatInt(max(0, s.Delay.Milliseconds()), 10))
		}},
	})
}

// DeadLetter moves tasks to the dead letters, whole, with Reason and Error.
func (q *Queue) DeadLetter(ctx context.Context, s []Settlement) []Settled {
	return q.settle(ctx, scriptDead, DeadLettered, s, settleArgs{
		columns: [2]column{
			func(c *call, s *Settlement) { c.text(string(s.Reason)) },
			func(c *call, s *Settlement) { c.text(clip(s.Error)) },
		},
		check: func(s *Settlement) error {
			if s.Reason == "" {
				return badTask("Reason", "say why the task is a dead letter")
			}
			return nil
		},
	})
}

// settleArgs is what the settling scripts take besides what all of them take.
type settleArgs struct {
	extra   []any // before the number of tasks
	columns [2]column
	check   func(*Settlement) error
	make    func(s []Settlement, g group) *call // in place of settleCall, which reads extra and columns
}

// column adds one argument for a task; nil: there is none.
type column func(*call, *Settlement)

func (q *Queue) settle(ctx context.Context, sc *script, done Outcome, s []Settlement, a settleArgs) []Settled {
	out := make([]Settled, len(s))
	good := make([]int, 0, len(s))
	for i := range s {
		out[i].TaskID = s[i].Lease.TaskID
		if a.check != nil {
			if err := a.check(&s[i]); err != nil {
				out[i].Err = err
				continue
			}
		}
		good = append(good, i)
	}
	groups := byHolder(len(good), func(i int) Grant { return s[good[i]].Lease.Grant })
	calls := make([]*call, len(groups))
	for c, g := range groups {
		for j, i := range g.index {
			g.index[j] = good[i]
		}
		if a.make != nil {
			calls[c] = a.make(s, g)
		} else {
			calls[c] = q.settleCall(sc, s, g, a)
		}
	}
	if len(calls) > 0 {
		q.run(ctx, calls...)
	}
	for c, g := range groups {
		if _, list := calls[c].reply.([]any); calls[c].err == nil && !list {
			calls[c].err = shapeError(sc.name, calls[c].reply)
		}
		for _, i := range g.index {
			out[i].Outcome, out[i].Err = done, calls[c].err
			if calls[c].err != nil {
				out[i].Outcome = ""
			}
		}
		if calls[c].err == nil && !exceptions(asList(calls[c].reply), len(g.index), func(j int, code, detail string) { out[g.index[j]].except(code, detail) }) {
			for _, i := range g.index {
				out[i].Outcome, out[i].Err = "", shapeError(sc.name, calls[c].reply)
			}
		}
	}
	return out
}

func (q *Queue) settleCall(sc *script, s []Settlement, g group, a settleArgs) *call {
	index, n := g.index, len(g.index)
	c := q.newCall(sc, g.partition, 4+len(a.extra)+7*n)
	c.expect(1 + 6*n)
	c.add(Group, q.window).text(g.consumer)
	c.add(a.extra...).add(n)
	for _, i := range index {
		c.text(string(s[i].Lease.TaskID))
	}
	for _, i := range index {
		c.text(string(s[i].Lease.EntryID))
	}
	var sums digests
	sums.expect(n)
	for _, i := range index {
		c.text(sums.of(s[i].Lease.TaskID))
	}
	var ends tails
	for _, i := range index {
		c.text(ends.of(&s[i].Lease))
	}
	for _, value := range a.columns {
		for _, i := range index {
			if value != nil {
				value(c, &s[i])
			}
		}
	}
	return c.endedGrants(s, index)
}

// completeCall sends what belongs to a holder once. It orders the group by
// holders.
func (q *Queue) completeCall(s []Settlement, g group) *call {
	index, n := g.index, len(g.index)
	token := func(i int) Token { return s[i].Lease.Grant.Token }
	if slices.ContainsFunc(index, func(i int) bool { return token(i) != token(index[0]) }) {
		slices.SortStableFunc(index, func(i, j int) int { return strings.Compare(string(token(i)), string(token(j))) })
	}
	results := 0
	for _, i := range index {
		if len(s[i].Result) > 0 {
			results = n
		}
	}
	var ends tails
	holders := 0
	for j, i := range index {
		if j == 0 || !s[i].Lease.sameHolder(&s[index[j-1]].Lease) {
			holders++
		}
	}
	c := q.newCall(scriptComplete, g.partition, 7+3*n+results+2*holders)
	c.expect(1 + 3*n + results + 2*holders)
	c.add(Group, q.window).text(g.consumer)
	c.add(q.traced(), flag(results > 0), holders, n)
	for _, i := range index {
		c.text(string(s[i].Lease.TaskID))
	}
	var sums digests
	sums.expect(n)
	for _, i := range index {
		c.text(sums.of(s[i].Lease.TaskID))
	}
	for _, i := range index[:results] {
		c.text(string(s[i].Result))
	}
	for from, j := 0, 1; j <= n; j++ {
		if j < n && s[index[j]].Lease.sameHolder(&s[index[from]].Lease) {
			continue
		}
		c.text(ends.of(&s[index[from]].Lease))
		c.text(strconv.Itoa(j - from))
		from = j
	}
	return c.endedGrants(s, index)
}

// sameHolder reports whether two leases have one tail.
func (l *Lease) sameHolder(other *Lease) bool {
	return l.Fence == other.Fence && l.Grant.Token == other.Grant.Token
}

// endedGrants adds the grants that end with the call.
func (c *call) endedGrants(s []Settlement, index []int) *call {
	grants := len(c.texts)
	for _, i := range index {
		if t := string(s[i].Lease.Grant.Token); s[i].EndsGrant && !slices.Contains(c.texts[grants:], t) {
			c.text(t)
		}
	}
	return c
}

// except reads one exception of include/settle.lua.
func (s *Settled) except(code, detail string) {
	switch code {
	case "lost":
		s.Outcome = Lost
	case "dead":
		s.Outcome = DeadLettered
	case "again":
		s.Outcome = map[string]Outcome{"R": Retried, "L": Released, "D": DeadLettered, "C": Completed}[detail]
	case "gone":
		s.Outcome, s.Err = "", fmt.Errorf("%w: task %s, entry %s", ErrEntryGone, s.TaskID, detail)
	case "error":
		s.Outcome, s.Err = "", fmt.Errorf("%w: task %s: %s", ErrUnavailable, s.TaskID, detail)
	default:
		s.Outcome = ""
	}
	if s.Outcome == "" && s.Err == nil {
		s.Err = fmt.Errorf("%w: task %s: the server answered %q %q", ErrIndefinite, s.TaskID, code, detail)
	}
}

// clip cuts an error text to MaxErrorBytes.
func clip(s string) string {
	if len(s) > MaxErrorBytes {
		return s[:MaxErrorBytes]
	}
	return s
}
