package queue

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// NotKnown stands for a number, or an age, that the server cannot tell.
const NotKnown = -1

// expiredCounted bounds what PartitionStats.Expired counts in one partition.
const expiredCounted = 1000

// PartitionStats is the state of one partition at one moment. Ages are by the
// server's clock and 0 where there is nothing that could have one.
type PartitionStats struct {
	Waiting     int64 // not yet delivered
	Pending     int64 // delivered, not settled
	Expired     int64 // of these, under leases that have ended; counted to 1000 at most
	Scheduled   int64 // due later
	Dead        int64 // dead letters
	EndedGrants int64 // grants whose lease has ended and that nobody has reclaimed
	Consumers   int64 // live consumers
	Silent      int64 // consumers of which nothing was heard for Queue.Grace, not yet removed
	Added       int64 // entries ever added to the stream, moved tasks included; NotKnown by some servers

	OldestWaiting time.Duration // since the oldest waiting entry came into the stream; NotKnown: not known
	OldestPending time.Duration // since the oldest pending entry came into the stream
	Overdue       time.Duration // since the earliest scheduled task was due
}

// Stats is the state of a queue. Of consumers it has the most that one
// partition has, since a consumer reads them all; of ages the greatest.
type Stats struct {
	PartitionStats                  // of all partitions together
	Partitions     []PartitionStats // of each
	ServerNow      time.Time
}

// Unfinished is the number of accepted tasks that are neither done nor dead.
func (s PartitionStats) Unfinished() int64 { return s.Waiting + s.Pending + s.Scheduled }

// Stats reads the state of the queue. It only reads, all partitions in one
// round trip, at a cost that does not grow with what the queue holds. Where
// the queue was made with another number of partitions it answers ErrMismatch,
// for it would count a part of it only.
func (q *Queue) Stats(ctx context.Context) (Stats, error) {
	calls := make([]*call, len(q.parts))
	for p := range q.parts {
		calls[p] = q.call(scriptStats, p, Group, q.Grace().Milliseconds(), expiredCounted)
	}
	q.run(ctx, calls...)
	var s Stats
	for _, c := range calls {
		reply := asList(c.reply)
		if c.err == nil && len(reply) != 14 {
			c.err = shapeError("stats", c.reply)
		}
		if c.err != nil {
			return Stats{}, c.err
		}
		if made := asString(reply[1]); made != "" && made != strconv.Itoa(len(q.parts)) {
			return Stats{}, fmt.Errorf("%w: queue %s was made with %s partitions, not %d: set Partitions to that", ErrMismatch, q.cfg.Name, made, len(q.parts))
		}
		p := PartitionStats{
			Waiting: asInt(reply[2]), Pending: asInt(reply[3]), Scheduled: asInt(reply[4]), Dead: asInt(reply[5]),
			EndedGrants: asInt(reply[6]), Expired: asInt(reply[7]), Consumers: asInt(reply[8]), Silent: asInt(reply[9]),
			Added: asInt(reply[10]), OldestWaiting: asAge(reply[11]), OldestPending: asAge(reply[12]), Overdue: asAge(reply[13]),
		}
		s.Partitions = append(s.Partitions, p)
		s.add(p)
		s.ServerNow = asTime(reply[0])
	}
	return s, nil
}

// add adds a partition to the totals.
func (s *PartitionStats) add(p PartitionStats) {
	s.Waiting += p.Waiting
	s.Pending += p.Pending
	s.Expired += p.Expired
	s.Scheduled += p.Scheduled
	s.Dead += p.Dead
	s.EndedGrants += p.EndedGrants
	s.Consumers = max(s.Consumers, p.Consumers)
	s.Silent = max(s.Silent, p.Silent)
	if s.Added < 0 || p.Added < 0 {
		s.Added = NotKnown
	} else {
		s.Added += p.Added
	}
	s.OldestWaiting = oldest(s.OldestWaiting, p.OldestWaiting)
	s.OldestPending = oldest(s.OldestPending, p.OldestPending)
	s.Overdue = oldest(s.Overdue, p.Overdue)
}

// oldest is the greater of two ages, not known if one of them is not.
func oldest(a, b time.Duration) time.Duration {
	if a < 0 || b < 0 {
		return NotKnown
	}
	return max(a, b)
}

// asAge reads an age in milliseconds.
func asAge(v any) time.Duration {
	if ms := asInt(v); ms >= 0 {
		return time.Duration(ms) * time.Millisecond
	}
	return NotKnown
}
