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
	if len(tasks) == 1 {
		return q.enqueueOne(ctx, token, tasks, durable)
	}
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
		answerAll(receipts, members[c], call)
	}
	return receipts
}

// enqueueOne is enqueue of one task, which needs nothing of what sorts many.
func (q *Queue) enqueueOne(ctx context.Context, token Token, tasks []Task, durable *Durability) []Receipt {
	t, receipts := &tasks[0], []Receipt{{ID: tasks[0].ID}}
	if receipts[0].Err = t.Check(q.cfg.MaxPayload); receipts[0].Err != nil {
		return receipts
	}
	var payloads arena
	fields := [1][]string{t.appendFields(make([]string, 0, t.fields()), &payloads)}
	at := [1]int{0}
	calls := [1]*call{q.enqueueCall(q.PartitionOf(t.ID), token, tasks, fields[:], at[:])}
	calls[0].durable = durable
	q.runMade(ctx, calls[:])
	answerAll(receipts, at[:], calls[0])
	return receipts
}

// answerAll answers the tasks of one call: added and waiting, exceptions aside.
func answerAll(receipts []Receipt, members []int, c *call) {
	list, ok := c.reply.([]any)
	if c.err == nil && (!ok || len(list)%2 != 1 || asInt(list[0]) != int64(len(members)-len(list)/2)) {
		c.err = shapeError("enqueue", c.reply)
	}
	for _, i := range members {
		receipts[i].Err = c.err
		if c.err == nil {
			receipts[i].Added, receipts[i].Place = true, Waiting
		}
	}
	if c.err != nil {
		return
	}
	for list = list[1:]; len(list) > 0; list = list[2:] {
		if !indexes(list[:1], len(members)) {
			for _, i := range members {
				receipts[i] = Receipt{ID: receipts[i].ID, Err: shapeError("enqueue", c.reply)}
			}
			return
		}
		receipts[members[asInt(list[0])-1]].answer(asString(list[1]))
	}
	if c.unkept == nil {
		return
	}
	for _, i := range members {
		if r := &receipts[i]; r.Err == nil {
			r.Added, r.Duplicate, r.Err = false, false, c.unkept
		}
	}
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
	n, later := len(at), 0
	for _, i := range at {
		if tasks[i].later() {
			later = n
		}
	}
	shapes, of := shapesOf(fields, at)
	texts, own := 2*n+later+len(of), 0
	for _, s := range shapes {
		texts += 2 + 2*len(s.differ)
		own += 2*s.count() + n*len(s.differ)
	}
	c := q.newCall(scriptEnqueue, partition, 9+texts+own)
	c.expect(1 + texts)
	c.text(token.tag()).add(q.window, backlog, len(q.parts), q.traced(),
		flag(namesTwice(tasks, at)), flag(later > 0), len(shapes), n)
	for _, i := range at {
		c.text(string(tasks[i].ID))
	}
	var sums digests
	sums.expect(n)
	for _, i := range at {
		c.text(sums.of(tasks[i].ID))
	}
	for _, i := range at[:later] {
		c.text(due(&tasks[i]))
	}
	for s := range shapes {
		shapes[s].add(c)
	}
	for _, s := range of {
		c.text(strconv.Itoa(1 + s))
	}
	for j, i := range at {
		s := 0
		if of != nil {
			s = of[j]
		}
		shapes[s].values(c, fields[i])
	}
	return c
}

// later reports whether the task names a time to wait for.
func (t *Task) later() bool { return t.Delay > 0 || !t.Due.IsZero() }

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
	r.Added, r.Place = false, Place(place)
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
