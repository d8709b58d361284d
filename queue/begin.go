package queue

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
)

// BeginRequest asks for leases.
type BeginRequest struct {
	Token    Token   // from NewToken; the same when the call is asked again
	Consumer string  // consumer name of the caller, for events; may be empty
	Entries  []Entry // of this queue, of any partitions, read or reclaimed by the caller
	Start    int     // how many of them may start at once, in order; the others are held
}

// Begin takes leases on entries. Copies of a live task and entries of a task
// that is done are acked and deleted; what is no task goes to the dead letters.
//
// On an error nothing, all, or some partitions' worth may have been granted:
// ask again with the same request. Entries that are given up on then are
// anybody's after a third of the lease length, and cost their task no attempt.
//
// Invariant I6: a delivery that is Started is on record before Begin returns.
func (q *Queue) Begin(ctx context.Context, r BeginRequest) (Batch, error) {
	var b Batch
	sent := time.Now()
	tasks := make([]Task, len(r.Entries))
	good := make([]int, 0, len(r.Entries))
	var bad []int
	var reasons map[int]string
	payloads := arena{left: smallPayloads(r.Entries)}
	for i := range r.Entries {
		t, err := r.Entries[i].decodeIn(&payloads)
		tasks[i] = t
		if err == nil {
			good = append(good, i)
			continue
		}
		bad = append(bad, i)
		if reasons == nil {
			reasons = make(map[int]string)
		}
		reasons[i] = err.Error()
	}
	if err := q.quarantine(ctx, r, bad, reasons, &b); err != nil {
		return b, err
	}
	type key struct{ partition, class int }
	open, chunk := map[key]*beginning{}, map[key]int{}
	var order []*beginning
	for n, i := range good {
		k := key{r.Entries[i].Partition, q.classOf(tasks[i].Kind)}
		g := open[k]
		if g == nil || len(g.index) == MaxBatch {
			g = &beginning{
				Grant: Grant{Partition: k.partition, Token: r.Token.part(chunk[k], k.class), Length: q.classes[k.class], Consumer: r.Consumer},
				index: make([]int, 0, min(len(good)-n, MaxBatch)),
			}
			chunk[k]++
			open[k] = g
			order = append(order, g)
		}
		g.index = append(g.index, i)
		if n < r.Start {
			g.start++
		}
	}
	calls := make([]*call, len(order))
	for i, g := range order {
		g.call = q.beginCall(g, r.Entries, tasks)
		calls[i] = g.call
	}
	if len(calls) > 0 {
		q.run(ctx, calls...)
		q.runWithDigests(ctx, calls, order, tasks)
	}
	b.Deliveries = slices.Grow(b.Deliveries, len(good))
	for _, g := range order {
		if err := q.begun(g, r.Entries, tasks, sent, &b); err != nil {
			return b, err
		}
	}
	return b, nil
}

// beginning is one script call of Begin: tasks of one partition that share a
// lease length.
type beginning struct {
	Grant
	index []int
	start int
	call  *call
}

// smallPayloads is how many bytes the payloads have that share memory with
// others.
func smallPayloads(entries []Entry) (n int) {
	for i := range entries {
		f := entries[i].Fields
		for j := 0; j+1 < len(f); j += 2 {
			if f[j] == fieldPayload && len(f[j+1]) <= arenaLargest {
				n += len(f[j+1])
			}
		}
	}
	return n
}

func (q *Queue) classOf(kind string) int {
	if len(q.classes) == 1 {
		return 0
	}
	return max(0, slices.Index(q.classes, q.LeaseFor(kind)))
}

func (q *Queue) beginCall(g *beginning, entries []Entry, tasks []Task) *call {
	n := len(g.index)
	size := 0
	for _, i := range g.index {
		size += len(entries[i].ID) + len(tasks[i].ID) + 2
	}
	var members strings.Builder // "entry ID\n" of each
	members.Grow(size)
	for _, i := range g.index {
		members.WriteString(string(entries[i].ID))
		members.WriteByte(' ')
		members.WriteString(string(tasks[i].ID))
		members.WriteByte('\n')
	}
	c := q.newCall(scriptBegin, g.Partition, 9+3*n)
	c.expect(3 + 2*n)
	c.add(Group).text(string(g.Token))
	c.add(g.Length.Milliseconds(), q.window, g.start).text(members.String())
	c.text(g.Consumer)
	c.add(q.traced(), n)
	for _, i := range g.index {
		c.text(string(tasks[i].ID))
	}
	for _, i := range g.index {
		c.text(string(entries[i].ID))
	}
	if q.strangers.Load() > 0 {
		c.addDigests(g.index, tasks)
	}
	return c
}

// strangersFor is how many calls send digests after one that lacked them.
const strangersFor = 100

// runWithDigests runs calls again that found a task without a record: one that a
// producer of its own added, or that is done. Only those need the digests of IDs, so
// only queues that have such tasks pay for them.
func (q *Queue) runWithDigests(ctx context.Context, calls []*call, order []*beginning, tasks []Task) {
	q.strangers.Store(max(0, q.strangers.Load()-1))
	var again []*call
	for i, c := range calls {
		if c.err == nil && asString(c.reply) == "DIGESTS" {
			c.addDigests(order[i].index, tasks)
			again = append(again, c)
		}
	}
	if len(again) > 0 {
		q.strangers.Store(strangersFor)
		q.run(ctx, again...)
	}
}

// addDigests adds the digests of the IDs of these tasks.
func (c *call) addDigests(index []int, tasks []Task) {
	c.expect(len(index))
	var sums digests
	sums.expect(len(index))
	for _, i := range index {
		c.text(sums.of(tasks[i].ID))
	}
}

// begun reads the answer of one call into the batch.
func (q *Queue) begun(g *beginning, entries []Entry, tasks []Task, sent time.Time, b *Batch) error {
	reply := asList(g.call.reply)
	if g.call.err == nil && len(reply) < 2 {
		g.call.err = shapeError("begin", g.call.reply)
	}
	if g.call.err != nil {
		return g.call.err
	}
	n := len(g.index)
	before := len(b.Deliveries)
	fence, until := Fence(asInt(reply[0])), trust(sent, g.Length)
	all := slices.Grow(b.Deliveries, n)[:before+n] // theirs only once the reply is understood
	deliveries := all[before:]
	var dropped []bool
	if len(reply) > 2 {
		dropped = make([]bool, n)
	}
	for j, i := range g.index {
		deliveries[j] = Delivery{Task: tasks[i], Started: j < g.start, Lease: Lease{
			Queue: q.cfg.Name, TaskID: tasks[i].ID, Kind: tasks[i].Kind, EntryID: entries[i].ID,
			Fence: fence, Grant: g.Grant, Attempt: 1, TrustedUntil: until,
		}}
	}
	odd := false
	known := exceptions(reply[2:], n, func(j int, code, detail string) {
		d := &deliveries[j]
		switch code {
		case "as":
			place, fence, _ := strings.Cut(detail, " ")
			d.Started = place == "p"
			d.Lease.Fence = parseFence(fence)
		case "count":
			f, x, _ := strings.Cut(detail, " ")
			d.Lease.Failures, d.Lease.Interruptions = int(asInt(f)), int(asInt(x))
			d.Lease.Attempt = 1 + d.Lease.Failures + d.Lease.Interruptions
		case "copy":
			dropped[j] = true
			b.Duplicates = append(b.Duplicates, Copy{d.Task.ID, d.Lease.EntryID, detail})
		case "busy":
			dropped[j] = true
			b.Busy = append(b.Busy, d.Task.ID)
		default:
			odd = true
		}
	})
	if !known || odd {
		return shapeError("begin", g.call.reply)
	}
	b.ServerNow = asTime(reply[1])
	if len(dropped) == 0 {
		b.Deliveries = all
		return nil
	}
	b.Deliveries = all[:before]
	for j, d := range deliveries {
		switch {
		case dropped[j]:
		case d.Lease.Interruptions >= q.cfg.MaxInterruptions:
			b.Exhausted = append(b.Exhausted, d)
		default:
			b.Deliveries = append(b.Deliveries, d)
		}
	}
	return nil
}

func parseFence(s string) Fence {
	n, _ := strconv.ParseUint(s, 10, 64)
	return Fence(n)
}

// trust is how long a lease of this length asked for at sent may be relied on.
func trust(sent time.Time, length time.Duration) time.Time {
	return sent.Add(length - Margin(length))
}
