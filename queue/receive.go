package queue

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// MaxBlock is the longest blocking read.
	MaxBlock = 30 * time.Second
	// readSlack is how much longer than its block time a read may take before
	// the connection counts as broken.
	readSlack = 3 * time.Second
	// maxRead is the largest number of entries one Read or Reclaim gives: as
	// many as the grants of one Begin can be told apart.
	maxRead = 32 * MaxBatch
	// readBytes is about how much one Read or Reclaim gives at most, if
	// producers keep to MaxPayload: with large payloads fewer entries.
	readBytes = 64 << 20
)

// readable is how many entries of the queue one call may give.
func (q *Queue) readable() int { return max(1, min(maxRead, readBytes/q.cfg.MaxPayload)) }

// ReadRequest asks for new entries.
type ReadRequest struct {
	Queues   []*Queue      // all on the same server
	Consumer string        // consumer name, unique for each process start
	Max      int           // entries at most, over all streams together
	Block    time.Duration // how long to wait for the first entry, at most MaxBlock; 0: do not wait
	Turn     int           // rotates which streams are read; count it up
}

// Read reads new entries of several queues with one command. The entries are
// then pending without a lease: pass them to Begin. No entries is no error.
//
// The server counts per stream, so Max is divided among the streams, and where
// there are more streams than Max only some are read, in rotation, each for its
// share of the block time.
//
// After ErrIndefinite the server may have delivered entries that nobody saw.
// Use another consumer name from then on: Reclaim, of any worker, finds what a
// name that has fallen silent was given.
func Read(ctx context.Context, r ReadRequest) ([]Entry, error) {
	if r.Max <= 0 || len(r.Queues) == 0 {
		return nil, nil
	}
	for _, q := range r.Queues {
		r.Max = min(r.Max, q.readable())
	}
	if r.Block < 0 || r.Block > MaxBlock || r.Block > 0 && r.Block < time.Millisecond {
		return nil, badConfig("Block", "use 0, or 1ms to %v, got %v", MaxBlock, r.Block)
	}
	streams, rounds := pickStreams(r)
	block := r.Block / time.Duration(rounds)
	args := make([]any, 0, 10+2*len(streams))
	args = append(args, "XREADGROUP", "GROUP", Group, r.Consumer, "COUNT", max(1, r.Max/len(streams)))
	if r.Block > 0 {
		args = append(args, "BLOCK", max(1, block.Milliseconds()))
	}
	args = append(args, "STREAMS")
	for _, s := range streams {
		args = append(args, s.queue.StreamKey(s.partition))
	}
	for range streams {
		args = append(args, ">")
	}
	ctx, cancel := context.WithTimeout(ctx, block+readSlack)
	defer cancel()
	reply, err := r.Queues[0].read.Do(ctx, args...).Result()
	if err != nil && err != redis.Nil {
		return nil, classify("read", err)
	}
	return readReply(reply, streams), nil
}

type stream struct {
	queue     *Queue
	partition int
}

// pickStreams chooses at most r.Max streams, and says in how many rounds all
// get their turn.
func pickStreams(r ReadRequest) ([]stream, int) {
	var all []stream
	for _, q := range r.Queues {
		for p := range q.parts {
			all = append(all, stream{q, p})
		}
	}
	rounds := (len(all) + r.Max - 1) / r.Max
	if rounds == 1 {
		return all, 1
	}
	picked := make([]stream, 0, r.Max)
	for i := range r.Max {
		picked = append(picked, all[(r.Turn*r.Max+i)%len(all)])
	}
	return picked, rounds
}

// readReply takes both shapes apart, a list of pairs (RESP2) and a map (RESP3),
// and gives the entries in the order of the streams asked for.
func readReply(reply any, streams []stream) []Entry {
	lists := map[string]any{}
	switch v := reply.(type) {
	case []any:
		for _, x := range v {
			if pair := asList(x); len(pair) == 2 {
				lists[asString(pair[0])] = pair[1]
			}
		}
	case map[any]any:
		for key, list := range v {
			lists[asString(key)] = list
		}
	}
	var out []Entry
	for _, s := range streams {
		out = append(out, s.queue.entries(s.partition, lists[s.queue.StreamKey(s.partition)])...)
	}
	return out
}

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
	var good, bad []int
	reasons := map[int]string{}
	for i, e := range r.Entries {
		t, err := e.decode()
		tasks[i] = t
		if err != nil {
			bad = append(bad, i)
			reasons[i] = err.Error()
			continue
		}
		good = append(good, i)
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
			g = &beginning{Grant: Grant{Partition: k.partition, Token: r.Token.part(chunk[k], k.class), Length: q.classes[k.class], Consumer: r.Consumer}}
			chunk[k]++
			open[k] = g
			order = append(order, g)
		}
		g.index = append(g.index, i)
		if n < r.Start {
			g.start++
		}
	}
	var calls []*call
	for _, g := range order {
		g.call = &call{script: scriptBegin, partition: g.Partition, args: q.beginArgs(g, r.Entries, tasks)}
		calls = append(calls, g.call)
	}
	if len(calls) > 0 {
		q.run(ctx, calls...)
	}
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

func (q *Queue) classOf(kind string) int {
	d := q.LeaseFor(kind)
	for i, c := range q.classes {
		if c == d {
			return i
		}
	}
	return 0
}

func (q *Queue) beginArgs(g *beginning, entries []Entry, tasks []Task) []any {
	n := len(g.index)
	args := make([]any, 0, 9+3*n)
	var members strings.Builder
	for _, i := range g.index {
		members.WriteString(string(entries[i].ID) + " " + string(tasks[i].ID) + "\n")
	}
	args = append(args, Group, string(g.Token), g.Length.Milliseconds(), q.cfg.Retention.Milliseconds(), g.start, members.String(), g.Consumer, q.traced(), n)
	for _, i := range g.index {
		args = append(args, string(tasks[i].ID))
	}
	for _, i := range g.index {
		args = append(args, string(entries[i].ID))
	}
	for _, i := range g.index {
		args = append(args, digest(tasks[i].ID))
	}
	return args
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
	deliveries := make([]Delivery, n)
	dropped := make([]bool, n)
	for j, i := range g.index {
		deliveries[j] = Delivery{Task: tasks[i], Started: j < g.start, Lease: Lease{
			Queue: q.cfg.Name, TaskID: tasks[i].ID, Kind: tasks[i].Kind, EntryID: entries[i].ID,
			Fence: Fence(asInt(reply[0])), Grant: g.Grant, Attempt: 1, TrustedUntil: trust(sent, g.Length),
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

// quarantine moves entries that are no task to the dead letters.
func (q *Queue) quarantine(ctx context.Context, r BeginRequest, bad []int, reasons map[int]string, b *Batch) error {
	entries := r.Entries
	for _, g := range byPartition(len(bad), func(i int) int { return entries[bad[i]].Partition }) {
		n := len(g.index)
		args := make([]any, 0, 3+3*n)
		args = append(args, Group, r.Consumer, n)
		for _, i := range g.index {
			args = append(args, string(entries[bad[i]].ID))
		}
		for _, i := range g.index {
			args = append(args, string(entries[bad[i]].name()))
		}
		for _, i := range g.index {
			args = append(args, reasons[bad[i]])
		}
		c := &call{script: scriptQuarantine, partition: g.partition, args: args}
		q.run(ctx, c)
		if c.err != nil {
			return c.err
		}
		missed := map[int]bool{}
		for _, x := range asList(c.reply) {
			missed[int(asInt(x))-1] = true
		}
		for j, i := range g.index {
			if e := entries[bad[i]]; !missed[j] {
				b.Buried = append(b.Buried, Copy{e.name(), e.ID, reasons[bad[i]]})
			}
		}
	}
	return nil
}

// Start puts attempts on record for held deliveries: one error for each lease.
// nil: the handler may run. ErrLeaseLost: drop the delivery. ErrIndefinite,
// ErrUnavailable: ask again with the same leases.
func (q *Queue) Start(ctx context.Context, leases []Lease) []error {
	return q.onHeld(ctx, scriptStart, leases, func(g group) []any { return []any{g.consumer, q.traced()} })
}

// onHeld runs a script over n IDs and n tails that answers with the indexes of
// those that are lost. prefix gives the arguments before n.
func (q *Queue) onHeld(ctx context.Context, s *script, leases []Lease, prefix func(g group) []any) []error {
	errs := make([]error, len(leases))
	groups := byHolder(len(leases), func(i int) Grant { return leases[i].Grant })
	calls := make([]*call, len(groups))
	for c, g := range groups {
		args := append(prefix(g), len(g.index))
		for _, i := range g.index {
			args = append(args, string(leases[i].TaskID))
		}
		for _, i := range g.index {
			args = append(args, leases[i].tail())
		}
		calls[c] = &call{script: s, partition: g.partition, args: args}
	}
	if len(calls) > 0 {
		q.run(ctx, calls...)
	}
	for c, g := range groups {
		if lost, list := calls[c].reply.([]any); calls[c].err == nil && (!list || !indexes(lost, len(g.index))) {
			calls[c].err = shapeError(s.name, calls[c].reply)
		}
		for _, i := range g.index {
			errs[i] = calls[c].err
		}
		if calls[c].err != nil {
			continue
		}
		for _, x := range asList(calls[c].reply) {
			i := g.index[asInt(x)-1]
			errs[i] = fmt.Errorf("%w: task %s", ErrLeaseLost, leases[i].TaskID)
		}
	}
	return errs
}
