package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// enqueueBytes is about how many bytes of fields one script call carries; a
// call with one larger task carries that task alone.
const enqueueBytes = 4 << 20

// Enqueue adds tasks whose IDs are neither live nor done, and answers each in
// its place. The token, from NewToken, names the call: sent again with the
// same token after an indefinite answer, a task that the first send had added
// is answered as added and nothing is added twice.
//
// A task without an ID is refused here; package producer assigns one.
func (q *Queue) Enqueue(ctx context.Context, token Token, tasks []Task) []Receipt {
	receipts := make([]Receipt, len(tasks))
	fields := make([][]string, len(tasks))
	var good []int
	for i, t := range tasks {
		receipts[i].ID = t.ID
		f, err := q.encode(t)
		if err != nil {
			receipts[i].Err = err
			continue
		}
		fields[i] = f
		good = append(good, i)
	}
	groups := byPartition(len(good), func(i int) int { return q.PartitionOf(tasks[good[i]].ID) })
	var calls []*call
	var members [][]int
	for _, g := range groups {
		for _, part := range bySize(g.index, func(i int) int { return size(fields[good[i]]) }) {
			at := make([]int, len(part))
			for j, i := range part {
				at[j] = good[i]
			}
			members = append(members, at)
			calls = append(calls, &call{script: scriptEnqueue, partition: g.partition, args: q.enqueueArgs(token, tasks, fields, at)})
		}
	}
	q.runMade(ctx, calls)
	for c, call := range calls {
		answers := asList(call.reply)
		if call.err == nil && len(answers) != len(members[c]) {
			call.err = shapeError("enqueue", call.reply)
		}
		for j, i := range members[c] {
			if call.err != nil {
				receipts[i].Err = call.err
				continue
			}
			receipts[i].answer(asString(answers[j]))
		}
	}
	return receipts
}

// runMade runs calls, and again those for partitions that were never made or
// were flushed, once they are made. Otherwise a producer with more partitions
// than the queue has would add tasks where nobody reads them.
func (q *Queue) runMade(ctx context.Context, calls []*call) {
	if len(calls) == 0 {
		return
	}
	q.run(ctx, calls...)
	var again []*call
	for _, c := range calls {
		if errors.Is(c.err, errUnmade) {
			again = append(again, c)
		}
	}
	if len(again) == 0 {
		return
	}
	if err := q.Ensure(ctx); err != nil {
		for _, c := range again {
			c.err = err
		}
		return
	}
	q.run(ctx, again...)
}

func (q *Queue) enqueueArgs(token Token, tasks []Task, fields [][]string, at []int) []any {
	// A bound over all partitions is kept as an equal share of each.
	backlog := (q.cfg.MaxBacklog + int64(len(q.parts)) - 1) / int64(len(q.parts))
	n := len(at)
	args := make([]any, 0, 6+10*n)
	args = append(args, token.tag(), q.cfg.Retention.Milliseconds(), backlog, len(q.parts), q.traced(), n)
	for _, i := range at {
		args = append(args, string(tasks[i].ID))
	}
	for _, i := range at {
		args = append(args, digest(tasks[i].ID))
	}
	for _, i := range at {
		args = append(args, due(tasks[i]))
	}
	for _, i := range at {
		args = append(args, len(fields[i]))
	}
	for _, i := range at {
		for _, f := range fields[i] {
			args = append(args, f)
		}
	}
	return args
}

func due(t Task) string {
	switch {
	case t.Delay > 0:
		return "+" + strconv.FormatInt(max(1, t.Delay.Milliseconds()), 10)
	case !t.Due.IsZero():
		return strconv.FormatInt(t.Due.UnixMilli(), 10)
	}
	return ""
}

func (r *Receipt) answer(s string) {
	verdict, place, _ := strings.Cut(s, " ")
	r.Place = Place(place)
	switch verdict {
	case "added":
		r.Added = true
	case "duplicate":
		r.Duplicate = true
	case "error":
		r.Place, r.Err = Unknown, fmt.Errorf("%w: enqueue %s: %s", ErrUnavailable, r.ID, place)
	case "full":
		r.Err = fmt.Errorf("%w: %s is not added: wait until it has drained, or raise MaxBacklog", ErrQueueFull, r.ID)
	default:
		r.Err = fmt.Errorf("%w: enqueue: the server answered %q", ErrIndefinite, s)
	}
}

func size(fields []string) int {
	n := 0
	for _, f := range fields {
		n += len(f)
	}
	return n
}

// bySize cuts index into runs whose sizes add up to at most enqueueBytes.
func bySize(index []int, size func(i int) int) [][]int {
	var runs [][]int
	sum := 0
	for _, i := range index {
		n := size(i)
		if len(runs) == 0 || sum+n > enqueueBytes {
			runs, sum = append(runs, nil), 0
		}
		runs[len(runs)-1] = append(runs[len(runs)-1], i)
		sum += n
	}
	return runs
}
