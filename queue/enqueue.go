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
	return q.enqueue(ctx, token, tasks, nil)
}

func (q *Queue) enqueue(ctx context.Context, token Token, tasks []Task, durable *Durability) []Receipt {
	receipts := make([]Receipt, len(tasks))
	good := make([]int, 0, len(tasks))
	room := 0
	for i := range tasks {
		receipts[i].ID = tasks[i].ID
		if receipts[i].Err = tasks[i].Check(q.cfg.MaxPayload); receipts[i].Err == nil {
			good = append(good, i)
			room += tasks[i].fields()
		}
	}
	fields := fieldsOf(tasks, good, room)
	groups := byPartition(len(good), func(i int) int { return q.PartitionOf(tasks[good[i]].ID) })
	calls := make([]*call, 0, len(groups))
	members := make([][]int, 0, len(groups))
	for _, g := range groups {
		for j, i := range g.index {
			g.index[j] = good[i]
		}
		for _, at := range bySize(g.index, func(i int) int { return size(fields[i]) }) {
			members = append(members, at)
			c := q.enqueueCall(g.partition, token, tasks, fields, at)
			c.durable = durable
			calls = append(calls, c)
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
			if receipts[i].Err == nil && call.unkept != nil {
				receipts[i].Added, receipts[i].Duplicate, receipts[i].Err = false, false, call.unkept
			}
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

// fieldsOf is what the entries of the good ones of tasks hold, in their places.
func fieldsOf(tasks []Task, good []int, room int) [][]string {
	fields := make([][]string, len(tasks))
	all := make([]string, 0, room)
	var payloads arena
	for _, i := range good {
		if n := len(tasks[i].Payload); n <= arenaLargest {
			payloads.left += n
		}
	}
	for _, i := range good {
		from := len(all)
		all = tasks[i].appendFields(all, &payloads)
		fields[i] = all[from:len(all):len(all)]
	}
	return fields
}

func (q *Queue) enqueueCall(partition int, token Token, tasks []Task, fields [][]string, at []int) *call {
	// A bound over all partitions is kept as an equal share of each.
	backlog := (q.cfg.MaxBacklog + int64(len(q.parts)) - 1) / int64(len(q.parts))
	n, all := len(at), 0
	for _, i := range at {
		all += len(fields[i])
	}
	c := q.newCall(scriptEnqueue, partition, 6+4*n+all)
	c.add(token.tag(), q.cfg.Retention.Milliseconds(), backlog, len(q.parts), q.traced(), n)
	c.expect(3 * n)
	for _, i := range at {
		c.text(string(tasks[i].ID))
	}
	var sums digests
	sums.expect(n)
	for _, i := range at {
		c.text(sums.of(tasks[i].ID))
	}
	for _, i := range at {
		c.text(due(&tasks[i]))
	}
	for _, i := range at {
		c.add(len(fields[i]))
	}
	for _, i := range at {
		for j := range fields[i] {
			c.args = append(c.args, &fields[i][j])
		}
	}
	return c
}

func due(t *Task) string {
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
	runs := make([][]int, 0, 1)
	sum, from := 0, 0
	for j, i := range index {
		n := size(i)
		if j > from && sum+n > enqueueBytes {
			runs = append(runs, index[from:j])
			sum, from = 0, j
		}
		sum += n
	}
	if from < len(index) {
		runs = append(runs, index[from:])
	}
	return runs
}
