package queue

import (
	"context"
	"fmt"
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
	Queues     []*Queue      // all on the same server
	Partitions []int         // of the one queue in Queues, those to read; none: all partitions of all queues
	Consumer   string        // consumer name, unique for each process start
	Max        int           // entries at most, over all streams together
	Block      time.Duration // how long to wait for the first entry, at most MaxBlock; 0: do not wait
	Turn       int           // rotates which streams are read; count it up
}

// Read reads new entries of several queues with one command. The entries are
// then pending without a lease: pass them to Begin. No entries is no error.
//
// The server counts per stream, so Max is divided among the streams, and where
// there are more streams than Max only some are read, in rotation, each for its
// share of the block time. Each partition that gives entries is a script call
// of its own in Begin and when its tasks are settled: where much is waiting,
// name few Partitions and get all of Max from them.
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
	if err := r.checkPartitions(); err != nil {
		return nil, err
	}
	streams, rounds := pickStreams(r)
	block := r.Block / time.Duration(rounds)
	ctx, cancel := context.WithTimeout(ctx, block+readSlack)
	defer cancel()
	c := r.Queues[0].read
	cmd := redis.NewRawCmd(ctx, readArgs(r, streams, block)...)
	_ = c.Process(ctx, cmd) // the command carries it
	raw, err := cmd.Result()
	if err != nil && err != redis.Nil {
		return nil, classify("read", err)
	}
	if isErrorReply(raw) {
		return readRefused(ctx, c, readArgs(r, streams, 0), streams)
	}
	if err == redis.Nil {
		return nil, nil
	}
	entries, ok := parseRead(raw, streams)
	if !ok {
		return nil, fmt.Errorf("%w: read: the server's reply is none that is known", ErrIndefinite)
	}
	return entries, nil
}

// readArgs is the command of a read that waits for block at most.
func readArgs(r ReadRequest, streams []stream, block time.Duration) []any {
	args := make([]any, 0, 10+2*len(streams))
	args = append(args, "XREADGROUP", "GROUP", Group, r.Consumer, "COUNT", max(1, r.Max/len(streams)))
	if block > 0 {
		args = append(args, "BLOCK", max(1, block.Milliseconds()))
	}
	args = append(args, "STREAMS")
	for _, s := range streams {
		args = append(args, s.queue.parts[s.partition].arg("stream"))
	}
	for range streams {
		args = append(args, ">")
	}
	return args
}

// readRefused sends a read that the server has refused once more, without
// waiting, in the way in which the client looks at the answer: it must see that
// a connection leads to a server that takes no writes any more, and its hooks
// must see errors. A refused read has delivered nothing, so this one may.
func readRefused(ctx context.Context, c redis.UniversalClient, args []any, streams []stream) ([]Entry, error) {
	reply, err := c.Do(ctx, args...).Result()
	if err != nil && err != redis.Nil {
		return nil, classify("read", err)
	}
	return readReply(reply, streams), nil
}

type stream struct {
	queue     *Queue
	partition int
}

func (r *ReadRequest) checkPartitions() error {
	if len(r.Partitions) == 0 {
		return nil
	}
	if len(r.Queues) != 1 {
		return badConfig("Partitions", "name one queue with them, got %d queues", len(r.Queues))
	}
	for _, p := range r.Partitions {
		if n := r.Queues[0].Partitions(); p < 0 || p >= n {
			return badConfig("Partitions", "use 0 to %d, got %d", n-1, p)
		}
	}
	return nil
}

// pickStreams chooses at most r.Max streams, and says in how many rounds all
// get their turn.
func pickStreams(r ReadRequest) ([]stream, int) {
	var all []stream
	for _, p := range r.Partitions {
		all = append(all, stream{r.Queues[0], p})
	}
	if all == nil {
		for _, q := range r.Queues {
			for p := range q.parts {
				all = append(all, stream{q, p})
			}
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
