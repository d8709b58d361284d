package queue

import "context"

// Promoted is what Promote did.
type Promoted struct {
	Count     int
	More      bool     // more tasks are due
	Malformed []string // members of the schedule that had no task, set aside
}

// Promote moves up to limit due tasks of a partition to the stream. Several
// movers may be at work: each task enters the stream once.
func (q *Queue) Promote(ctx context.Context, partition, limit int) (Promoted, error) {
	c := q.call(scriptPromote, partition, max(1, min(limit, MaxBatch)), q.traced())
	q.run(ctx, c)
	reply := asList(c.reply)
	if c.err == nil && len(reply) < 2 {
		c.err = shapeError("promote", c.reply)
	}
	if c.err != nil {
		return Promoted{}, c.err
	}
	return Promoted{Count: int(asInt(reply[0])), More: asInt(reply[1]) == 1, Malformed: asStrings(reply[2:])}, nil
}

// Tidied is what Tidy did.
type Tidied struct {
	RemovedConsumers []string // names that had fallen silent and held nothing
	Lost             []Copy   // tasks whose entry was deleted from outside, to be reported
}

// Tidy drops done marks that no longer count, removes consumers that are gone,
// and looks at about a hundred records whether their entry still exists.
func (q *Queue) Tidy(ctx context.Context, partition int) (Tidied, error) {
	c := q.call(scriptTidy, partition, Group, q.Grace().Milliseconds(), q.window)
	q.run(ctx, c)
	reply := asList(c.reply)
	if c.err == nil && len(reply) != 2 {
		c.err = shapeError("tidy", c.reply)
	}
	if c.err != nil {
		return Tidied{}, c.err
	}
	return Tidied{RemovedConsumers: asStrings(reply[0]), Lost: copies(asStrings(reply[1]))}, nil
}
