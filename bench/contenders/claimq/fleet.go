package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/bench/internal/contender"
	"github.com/claimq/claimq/consumer"
)

const fleetHandlers = 16 // of each idle worker

// warmUp is how long a fleet runs before it is measured.
const warmUp = 3 * time.Second

// idle says what share of a core the server needs for a fleet of Workers that
// has nothing to do, each with connections of its own, while somebody else
// holds Pending tasks.
func idle(o contender.Options, start func()) (contender.Result, error) {
	fleet := o.Workers
	o.Workers = 0 // these are real ones
	r, err := newRig(o)
	if err != nil {
		return contender.Result{}, err
	}
	if err := r.fill(); err != nil {
		return contender.Result{}, err
	}
	if o.Pending > 0 {
		go r.keepAlive()
	}
	for range fleet {
		c, err := connect(o)
		if err != nil {
			return contender.Result{}, err
		}
		w, err := c.worker(fleetHandlers, func(context.Context, consumer.Delivery) ([]byte, error) { return nil, nil })
		if err != nil {
			return contender.Result{}, err
		}
		go func() { _ = w.Run(context.Background()) }() // to the end of the process
	}
	return rest(r.rdb, o, start, 1)
}

// renew says what share of a core the server needs for one worker that has N
// tasks in hand.
func renew(o contender.Options, start func()) (contender.Result, error) {
	r, err := newRig(o)
	if err != nil {
		return contender.Result{}, err
	}
	if err := r.each(o.N, kind, 0, nil); err != nil {
		return contender.Result{}, err
	}
	var running atomic.Int64
	full := make(chan struct{})
	w, err := r.worker(o.N, func(ctx context.Context, _ consumer.Delivery) ([]byte, error) {
		if running.Add(1) == int64(o.N) {
			close(full)
		}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	if err != nil {
		return contender.Result{}, err
	}
	go func() { _ = w.Run(context.Background()) }()
	<-full
	out, err := rest(r.rdb, o, start, o.N)
	if err != nil {
		return out, err
	}
	stats, err := r.q.Stats(context.Background())
	if err == nil && (int(stats.Pending) != o.N || int(running.Load()) != o.N) {
		err = fmt.Errorf("%d pending and %d started, not %d", stats.Pending, running.Load(), o.N)
	}
	return out, err
}

// rest measures the server while nothing happens.
func rest(rdb *redis.Client, o contender.Options, start func(), n int) (contender.Result, error) {
	time.Sleep(warmUp)
	meter := contender.NewMeter(rdb, 1)
	start()
	meter.Skip()
	before, began := contender.Spent(), time.Now()
	time.Sleep(o.For)
	meter.Lap("rest")
	out := contender.Result{N: n, Seconds: time.Since(began).Seconds()}
	out.Since(before, n)
	more, err := meter.Result()
	out.More = map[string]float64{"core_percent": more["rest_us"] / 1e4 / out.Seconds}
	return out, err
}
