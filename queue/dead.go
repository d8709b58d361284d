package queue

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// deadFields is the number of strings that bury puts before the entry's own.
const deadFields = 16

// DeadTask is one dead letter.
type DeadTask struct {
	TaskID        TaskID
	Partition     int
	EntryID       EntryID // in the dead letter stream
	Entry         EntryID // that it had in the queue's stream
	Task          *Task   // nil when it cannot be decoded
	Reason        DeadReason
	Error         string
	Failures      int
	Interruptions int
	DiedAt        time.Time
	Fields        []string // the entry, byte for byte
}

// DeadTasks lists up to n dead letters of a partition, oldest first, after the
// given one ("" from the beginning). They stay until they are redriven or deleted.
func (q *Queue) DeadTasks(ctx context.Context, partition int, after EntryID, n int) ([]DeadTask, error) {
	start := "-"
	if after != "" {
		start = string(after)
	}
	n = min(max(n, 1), MaxBatch)
	reply, err := q.rdb.Do(ctx, "XRANGE", q.parts[partition].key("dead"), start, "+", "COUNT", n+1).Result()
	if err := classify("list dead letters", err); err != nil {
		return nil, err
	}
	var out []DeadTask
	for _, e := range q.entries(partition, reply) {
		if e.ID != after && len(e.Fields) >= deadFields && len(out) < n {
			out = append(out, readDead(e))
		}
	}
	return out, nil
}

// readDead takes a dead letter apart: eight pairs by position, so that no field
// of the entry itself can be mistaken for one of them.
func readDead(e Entry) DeadTask {
	f := e.Fields
	d := DeadTask{
		Partition: e.Partition, EntryID: e.ID, Reason: DeadReason(f[1]), Error: f[3],
		Failures: int(asInt(f[5])), Interruptions: int(asInt(f[7])), DiedAt: asTime(f[9]),
		TaskID: TaskID(f[11]), Entry: EntryID(f[13]), Fields: f[deadFields:],
	}
	if t, err := (Entry{Queue: e.Queue, Partition: e.Partition, ID: d.Entry, Fields: d.Fields}).decode(); err == nil {
		d.Task = &t
	}
	return d
}

// Moved is the answer for one ID.
type Moved struct {
	ID   TaskID
	From Place // where the task was; Unknown when nothing is known of the ID
	Err  error
}

// Redrive moves dead letters back to the stream with a full budget of failures
// and interruptions. It is not refused as a duplicate. ErrNotFound: the ID is
// not in the dead letters; From says where it is instead.
func (q *Queue) Redrive(ctx context.Context, ids []TaskID) []Moved {
	return q.move(ctx, scriptRedrive, ids, nil, nil, func(m *Moved, was string) {
		switch was {
		case string(Dead):
		case "packed":
			m.Err = fmt.Errorf("%w: %s has too many fields to be a task", ErrInvalidTask, m.ID)
		default:
			m.Err = fmt.Errorf("%w: %s is not in the dead letters", ErrNotFound, m.ID)
		}
	})
}

// Delete removes tasks from wherever they are and forgets them, so that their
// IDs can be used again. A running holder is told at its next renewal or
// settle, and what it writes later revives nothing. ErrNotFound: nothing is
// known of the ID.
func (q *Queue) Delete(ctx context.Context, ids []TaskID) []Moved {
	return q.move(ctx, scriptDelete, ids, []any{Group}, digest, func(m *Moved, was string) {
		if was == "" {
			m.Err = fmt.Errorf("%w: %s", ErrNotFound, m.ID)
		}
	})
}

var entryName = regexp.MustCompile(`^\d+-\d+\.(\d+)$`)

// home finds the partition of a task: that of its ID, or, for one that is named
// by its entry since it came without an ID, the one it was added to.
func (q *Queue) home(ctx context.Context, id TaskID) (int, error) {
	own := q.PartitionOf(id)
	m := entryName.FindStringSubmatch(string(id))
	if m == nil {
		return own, nil
	}
	p, err := strconv.Atoi(m[1])
	if err != nil || p >= len(q.parts) || p == own {
		return own, nil
	}
	// A producer may have chosen an ID that looks like one.
	if _, err := q.inspect(ctx, id, own); !errors.Is(err, ErrNotFound) {
		return own, err
	}
	return p, nil
}

// move runs a script over n IDs, and n more values where also is given, that
// answers with the place of each.
func (q *Queue) move(ctx context.Context, s *script, ids []TaskID, first []any, also func(TaskID) string, read func(m *Moved, was string)) []Moved {
	out := make([]Moved, len(ids))
	homes := make([]int, len(ids))
	var good []int
	for i, id := range ids {
		out[i].ID = id
		if homes[i], out[i].Err = q.home(ctx, id); out[i].Err == nil {
			good = append(good, i)
		}
	}
	groups := byPartition(len(good), func(n int) int { return homes[good[n]] })
	calls := make([]*call, len(groups))
	for c, g := range groups {
		args := append(append([]any{}, first...), len(g.index))
		for j, n := range g.index {
			g.index[j] = good[n]
			args = append(args, string(ids[good[n]]))
		}
		for _, i := range g.index {
			if also != nil {
				args = append(args, also(ids[i]))
			}
		}
		calls[c] = q.call(s, g.partition, args...)
	}
	if len(calls) > 0 {
		q.run(ctx, calls...)
	}
	for c, g := range groups {
		was := asStrings(calls[c].reply)
		if calls[c].err == nil && len(was) != len(g.index) {
			calls[c].err = shapeError(s.name, calls[c].reply)
		}
		for j, i := range g.index {
			out[i].Err = calls[c].err
			if calls[c].err == nil {
				out[i].From = Place(was[j])
				read(&out[i], was[j])
			}
		}
	}
	return out
}
