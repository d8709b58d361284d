// Command floor is what a user would write without any safety: XADD,
// XREADGROUP, XACK and XDEL, in batches of 100 where it can. No lease, no
// duplicate check, no memory of what is done.
//
// Variant "single" sends each command in a round trip of its own, from each
// handler.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/bench/internal/contender"
)

const (
	stream = "jobs"
	group  = "bench"
	batch  = 100
	block  = time.Second
)

type queue struct {
	rdb    *redis.Client
	single bool
}

func main() {
	contender.Main(open, map[string]contender.Mode{"cycle": cycle, "growth": growth})
}

func open(o contender.Options) (contender.Queue, error) {
	rdb := redis.NewClient(&redis.Options{Addr: o.Addr, PoolSize: o.Callers + o.Handlers + 16})
	err := rdb.XGroupCreateMkStream(context.Background(), stream, group, "0").Err()
	if err != nil && !redis.HasErrorPrefix(err, "BUSYGROUP") {
		return nil, err
	}
	return &queue{rdb, o.Variant == "single"}, nil
}

func entry(id, payload string) *redis.XAddArgs {
	return &redis.XAddArgs{Stream: stream, Values: []string{"id", id, "kind", "task", "payload", payload}}
}

func (q *queue) Enqueue(id, payload string) error {
	return q.rdb.XAdd(context.Background(), entry(id, payload)).Err()
}

func (q *queue) EnqueueBatch(ids, payloads []string) error {
	ctx, pipe := context.Background(), q.rdb.Pipeline()
	for i := range ids {
		pipe.XAdd(ctx, entry(ids[i], payloads[i]))
	}
	_, err := pipe.Exec(ctx)
	return err
}

// read reads up to n new entries.
func (q *queue) read(n int64, wait time.Duration) ([]redis.XMessage, error) {
	streams, err := q.rdb.XReadGroup(context.Background(), &redis.XReadGroupArgs{
		Group: group, Consumer: "c", Streams: []string{stream, ">"}, Count: n, Block: wait,
	}).Result()
	if errors.Is(err, redis.Nil) || err == nil && len(streams) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return streams[0].Messages, nil
}

// settle acks and deletes entries.
func (q *queue) settle(ids []string) error {
	ctx, pipe := context.Background(), q.rdb.Pipeline()
	pipe.XAck(ctx, stream, group, ids...)
	pipe.XDel(ctx, stream, ids...)
	_, err := pipe.Exec(ctx)
	return err
}

func (q *queue) Consume(handlers int, s *contender.Sink) error {
	if q.single {
		for range handlers {
			go q.one(s)
		}
		return nil
	}
	tasks, done := make(chan redis.XMessage, batch), make(chan string, batch)
	go func() {
		for {
			messages, err := q.read(batch, block)
			for _, m := range messages {
				tasks <- m
			}
			if err != nil {
				return
			}
		}
	}()
	for range handlers {
		go func() {
			for m := range tasks {
				s.String(m.Values["payload"].(string))
				done <- m.ID
			}
		}()
	}
	go q.settleAll(done)
	return nil
}

// one is a handler that does everything by itself.
func (q *queue) one(s *contender.Sink) {
	ctx := context.Background()
	for {
		messages, err := q.read(1, block)
		if err != nil {
			return
		}
		for _, m := range messages {
			s.String(m.Values["payload"].(string))
			q.rdb.XAck(ctx, stream, group, m.ID)
			q.rdb.XDel(ctx, stream, m.ID)
		}
	}
}

// settleAll settles what is done: one call at a time, and what comes in
// meanwhile is the next.
func (q *queue) settleAll(done chan string) {
	for id := range done {
		ids := []string{id}
		for more := true; more && len(ids) < batch; {
			select {
			case id := <-done:
				ids = append(ids, id)
			default:
				more = false
			}
		}
		if q.settle(ids) != nil {
			return
		}
	}
}

// cycle takes tasks through their life, Batch at a time, from one goroutine.
func cycle(o contender.Options, start func()) (contender.Result, error) {
	made, err := open(o)
	if err != nil {
		return contender.Result{}, err
	}
	q := made.(*queue)
	payloads, seed := contender.NewPayloads(o.Size), time.Now().UnixNano()
	meter := contender.NewMeter(q.rdb, o.N)
	start()
	before := contender.Spent()
	ids, texts := make([]string, o.Batch), make([]string, o.Batch)
	for i := 0; i < o.N; i += o.Batch {
		for j := range ids {
			ids[j], texts[j] = contender.ID(seed, i+j, o.IDBytes), payloads.Make()
		}
		if err := q.EnqueueBatch(ids, texts); err != nil {
			return contender.Result{}, err
		}
	}
	meter.Lap("enqueue")
	meter.Memory("waiting")
	for done := 0; done < o.N; done += contender.Calls * o.Batch {
		var read [contender.Calls][]string
		for c := range read {
			messages, err := q.read(int64(o.Batch), -1)
			if err != nil {
				return contender.Result{}, err
			}
			for _, m := range messages {
				read[c] = append(read[c], m.ID)
			}
		}
		meter.Lap("read")
		for _, ids := range read {
			if err := q.settle(ids); err != nil {
				return contender.Result{}, err
			}
		}
		meter.Lap("settle")
	}
	meter.Memory("done")
	r := contender.Result{N: o.N}
	r.Since(before, o.N)
	r.More, err = meter.Result()
	return r, err
}
