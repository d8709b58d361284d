package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/bench/internal/contender"
)

// What a queue that knows its tasks cannot do without, as plain commands in
// batches: a record of each task in a hash, which is looked at and changed at
// every step, and a mark of each finished one in another. No script, no check,
// nothing that walks: where it costs more beside many tasks, the server's
// memory does.
const (
	records = "records"
	marks   = "marks"
	dead    = "dead"
	later   = "scheduled"
	dueAt   = "due"
)

type grower struct {
	*queue
	o        contender.Options
	payloads contender.Payloads
	meter    *contender.Meter
	seed     int64
	made     int
}

// growth says what a task costs beside Backlog waiting ones, Dead dead ones and
// Scheduled ones that are due later, and beside an almost empty queue on another
// server.
func growth(o contender.Options, start func()) (contender.Result, error) {
	state, err := newGrower(o)
	if err != nil {
		return contender.Result{}, err
	}
	base, err := newGrower(contender.BaseOf(o))
	if err != nil {
		return contender.Result{}, err
	}
	start()
	a, b := contender.Side{Meter: state.meter, Work: state.life}, contender.Side{Meter: base.meter, Work: base.life}
	ratio, err := contender.Beside(o.N, sliceTasks, a, b)
	if err != nil {
		return contender.Result{}, err
	}
	return contender.Compared(o, ratio, a, b)
}

// sliceTasks is how many tasks are measured on one server before it is the
// other's turn.
const sliceTasks = 3000

func newGrower(o contender.Options) (*grower, error) {
	made, err := open(o)
	if err != nil {
		return nil, err
	}
	g := &grower{queue: made.(*queue), o: o, payloads: contender.NewPayloads(o.Size), seed: time.Now().UnixNano()}
	if err := g.fill(); err != nil {
		return nil, err
	}
	g.meter = contender.NewMeter(g.rdb, o.N)
	return g, nil
}

// life takes n tasks from enqueue to done.
func (g *grower) life(n int) error {
	for range n / (contender.Calls * g.o.Batch) {
		if err := g.round(); err != nil {
			return err
		}
	}
	return nil
}

func (g *grower) fill() error {
	for _, s := range []struct {
		stream string
		n      int
	}{{dead, g.o.Dead}, {later, g.o.Scheduled}, {stream, g.o.Backlog}} {
		for n := s.n; n > 0; n -= g.o.Batch {
			if _, err := g.add(s.stream, min(n, g.o.Batch)); err != nil {
				return err
			}
		}
	}
	return nil
}

// add adds n tasks to a stream, with their records.
func (g *grower) add(to string, n int) ([]string, error) {
	ctx, pipe := context.Background(), g.rdb.Pipeline()
	ids, set, due := make([]string, n), make([]any, 0, 2*n), make([]redis.Z, n)
	for i := range ids {
		ids[i] = contender.ID(g.seed, g.made, g.o.IDBytes)
		g.made++
		set = append(set, ids[i], record(ids[i], ""))
		due[i] = redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli()), Member: record(ids[i], "") + ids[i]}
		entry := entry(ids[i], g.payloads.Make())
		entry.Stream = to
		pipe.XAdd(ctx, entry)
	}
	pipe.HMGet(ctx, records, ids...)
	pipe.HSet(ctx, records, set...)
	if to == later {
		pipe.ZAdd(ctx, dueAt, due...)
	}
	_, err := pipe.Exec(ctx)
	return ids, err
}

// record is as long as one of claimq's.
func record(id, holder string) string { return "w1700000000000-" + id[24:28] + " ABCDEFG" + holder }

const holder = " 1700000000000000 ABCDEFGHIJKLAA"

// round takes as many tasks through their life as one of claimq's rounds does.
func (g *grower) round() error {
	ctx := context.Background()
	for range contender.Calls {
		if _, err := g.add(stream, g.o.Batch); err != nil {
			return err
		}
	}
	g.meter.Lap("enqueue")
	var read [contender.Calls][]redis.XMessage
	for i := range read {
		var err error
		if read[i], err = g.read(int64(g.o.Batch), -1); err != nil {
			return err
		}
	}
	g.meter.Lap("read")
	for _, messages := range read {
		pipe, set := g.rdb.Pipeline(), make([]any, 0, 2*len(messages))
		for _, m := range messages {
			id := m.Values["id"].(string)
			set = append(set, id, record(id, holder))
		}
		pipe.HMGet(ctx, records, taskIDs(messages)...)
		pipe.HSet(ctx, records, set...)
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
	}
	g.meter.Lap("begin")
	for _, messages := range read {
		if err := g.complete(messages); err != nil {
			return err
		}
	}
	g.meter.Lap("complete")
	return nil
}

func taskIDs(messages []redis.XMessage) []string {
	ids := make([]string, len(messages))
	for i, m := range messages {
		ids[i] = m.Values["id"].(string)
	}
	return ids
}

func (g *grower) complete(messages []redis.XMessage) error {
	ctx, pipe := context.Background(), g.rdb.Pipeline()
	entries, done := make([]string, len(messages)), make([]any, 0, 2*len(messages))
	for i, m := range messages {
		entries[i] = m.ID
		id := m.Values["id"].(string)
		done = append(done, id[len(id)-16:], "ABCDEFGHIJKLMN")
	}
	ids := taskIDs(messages)
	pipe.HMGet(ctx, records, ids...)
	pipe.HSet(ctx, marks, done...)
	pipe.HDel(ctx, records, ids...)
	pipe.XAck(ctx, stream, group, entries...)
	pipe.XDel(ctx, stream, entries...)
	_, err := pipe.Exec(ctx)
	return err
}
