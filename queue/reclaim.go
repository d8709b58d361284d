package queue

import (
	"context"
	"time"
)

// walkEvery is how often the slow walks go on, over pending entries of live
// consumers and over records.
const walkEvery = 5 * time.Second

// TurnRequest asks for chores.
type TurnRequest struct {
	Consumer string        // also the heartbeat of this consumer name
	Slots    bool          // the worker has a free slot and can take reclaimed tasks
	Interval time.Duration // over all workers a chore is given out at most once in this time
}

// Turn is the answer for one partition.
type Turn struct {
	Partition int
	Consumers int  // live consumers
	Reclaim   bool // call Reclaim now
	Due       bool // call Promote now
	Tidy      bool // call Tidy now
	Err       error
}

// Grace is how long a consumer may be silent, and an entry pending without a
// lease, before Reclaim counts them as nobody's: a third of the lease length.
func (q *Queue) Grace() time.Duration { return q.cfg.Lease / 3 }

// Turn notes that the consumer lives and says, for every partition, which
// chores are due and its own now. A turn is no lock, so nothing depends on its
// holder: the chores are safe to do twice. A worker asks more often than
// Grace, or it counts as gone.
func (q *Queue) Turn(ctx context.Context, r TurnRequest) []Turn {
	slots := 0
	if r.Slots {
		slots = 1
	}
	calls := make([]*call, len(q.parts))
	for p := range q.parts {
		calls[p] = q.call(scriptTurn, p,
			r.Consumer, slots, r.Interval.Milliseconds(), q.Grace().Milliseconds(), q.walkInterval().Milliseconds())
	}
	q.run(ctx, calls...)
	turns := make([]Turn, len(q.parts))
	for p, c := range calls {
		reply := asList(c.reply)
		if c.err == nil && len(reply) != 4 {
			c.err = shapeError("turn", c.reply)
		}
		turns[p] = Turn{Partition: p, Err: c.err}
		if c.err == nil {
			turns[p].Consumers = int(asInt(reply[0]))
			turns[p].Reclaim = asInt(reply[1]) == 1
			turns[p].Due = asInt(reply[2]) == 1
			turns[p].Tidy = asInt(reply[3]) == 1
		}
	}
	return turns
}

func (q *Queue) walkInterval() time.Duration { return min(walkEvery, q.cfg.Lease) }

// ReclaimRequest asks for pending entries that no live lease covers.
type ReclaimRequest struct {
	Partition int
	Consumer  string
	Max       int // entries at most
	// Own are the tokens of grants of which the caller has tasks in hand.
	// Those are left out: while it runs them, or waits to settle them, taking
	// them over would run them twice.
	Own []Token
}

// Reclaimed is what Reclaim found.
type Reclaimed struct {
	Entries []Entry         // now pending for the consumer: pass them to Begin
	Delays  []time.Duration // how long ago the lease of each ended, by the server's clock; 0: it had none
	Missing []Copy          // lost tasks: their entries were deleted from outside
	More    bool            // there is more
}

// Reclaim takes pending entries whose lease has ended or that never had one
// (their consumer died between reading and beginning). It leaves out
// what the caller has in hand, see Own.
//
// A lost reply costs nothing: until Begin takes a lease on them the same
// entries are found again.
func (q *Queue) Reclaim(ctx context.Context, r ReclaimRequest) (Reclaimed, error) {
	var out Reclaimed
	if r.Max <= 0 {
		return out, nil
	}
	args := []any{Group, r.Consumer, min(r.Max, MaxBatch, q.readable()), q.Grace().Milliseconds(), q.walkInterval().Milliseconds(), q.nameSuffix(r.Partition)}
	for _, token := range r.Own {
		args = append(args, string(token))
	}
	c := q.call(scriptReclaim, r.Partition, args...)
	q.run(ctx, c)
	reply := asList(c.reply)
	if c.err == nil && len(reply) != 4 {
		c.err = shapeError("reclaim", c.reply)
	}
	if c.err != nil {
		return out, c.err
	}
	out.More = asInt(reply[0]) == 1
	out.Entries = q.entries(r.Partition, reply[1])
	delays := map[EntryID]time.Duration{}
	for l := asStrings(reply[2]); len(l) >= 2; l = l[2:] {
		delays[EntryID(l[0])] = time.Duration(asInt(l[1])) * time.Millisecond
	}
	for _, e := range out.Entries {
		out.Delays = append(out.Delays, delays[e.ID])
	}
	out.Missing = copies(asStrings(reply[3]))
	return out, nil
}

// copies reads a flat list of ID and entry.
func copies(l []string) []Copy {
	var out []Copy
	for ; len(l) >= 2; l = l[2:] {
		out = append(out, Copy{TaskID: TaskID(l[0]), EntryID: EntryID(l[1]), Detail: "entry deleted from outside"})
	}
	return out
}
