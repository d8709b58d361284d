package main

import (
	"context"
	"time"

	"github.com/claimq/claimq/bench/internal/contender"
	"github.com/claimq/claimq/queue"
)

const (
	chores = 50                    // rounds of chores that are measured
	slow   = 50 * time.Millisecond // a script call that takes longer is counted
	dueIn  = 4 * time.Second       // until a wave of scheduled tasks is due
)

// growth says what a task, and a round of chores, cost in a state of the queue.
func growth(o contender.Options, start func()) (contender.Result, error) {
	r, err := newRig(o)
	if err != nil {
		return contender.Result{}, err
	}
	if err := r.fill(); err != nil {
		return contender.Result{}, err
	}
	r.meter = contender.NewMeter(r.rdb, o.N)
	start()
	for i := range o.Workers { // filling may have taken longer than their grace
		if err := r.beat(workerName(i)); err != nil {
			return contender.Result{}, err
		}
	}
	if err := r.meter.CountSlow(slow); err != nil {
		return contender.Result{}, err
	}
	before := contender.Spent()
	if err := r.life(o.N); err != nil {
		return contender.Result{}, err
	}
	out := contender.Result{N: o.N}
	out.Since(before, o.N)
	if out.More, err = r.meter.Result(); err != nil {
		return out, err
	}
	r.meter = contender.NewMeter(r.rdb, chores)
	for range chores {
		if err := r.chores(); err != nil {
			return out, err
		}
	}
	r.meter.Lap("chores")
	more, err := r.meter.Result()
	if err != nil {
		return out, err
	}
	out.More["chores_us"] = more["chores_us"]
	out.More["slow_calls"], err = r.meter.Slow()
	return out, err
}

// chores is one round of everything that looks for something to do.
func (r *rig) chores() error {
	ctx := context.Background()
	for _, t := range r.q.Turn(ctx, queue.TurnRequest{Consumer: "c", Slots: true, Interval: time.Millisecond}) {
		if t.Err != nil {
			return t.Err
		}
	}
	for p := range r.q.Partitions() {
		if _, err := r.q.Reclaim(ctx, queue.ReclaimRequest{Partition: p, Consumer: "c", Max: queue.MaxBatch}); err != nil {
			return err
		}
		if _, err := r.q.Tidy(ctx, p); err != nil {
			return err
		}
	}
	_, err := r.q.Stats(ctx)
	return err
}

// promote says what it costs to move N tasks that are due in the same second
// to the stream, beside others that are not due.
func promote(o contender.Options, start func()) (contender.Result, error) {
	ctx := context.Background()
	r, err := newRig(o)
	if err != nil {
		return contender.Result{}, err
	}
	if err := r.fill(); err != nil {
		return contender.Result{}, err
	}
	r.due = time.Now().Add(dueIn) // one moment for all of them
	if err := r.each(o.N, kind, 0, nil); err != nil {
		return contender.Result{}, err
	}
	time.Sleep(time.Until(r.due) + time.Second)
	r.meter = contender.NewMeter(r.rdb, o.N)
	start()
	if err := r.meter.CountSlow(slow); err != nil {
		return contender.Result{}, err
	}
	before, moved := contender.Spent(), 0
	r.meter.Skip()
	for more := true; more && moved < o.N; {
		p, err := r.q.Promote(ctx, 0, o.Batch)
		if err != nil {
			return contender.Result{}, err
		}
		moved, more = moved+p.Count, p.Count > 0
	}
	r.meter.Lap("promote")
	out := contender.Result{N: moved}
	out.Since(before, o.N)
	if out.More, err = r.meter.Result(); err != nil {
		return out, err
	}
	out.More["moved"] = float64(moved)
	out.More["slow_calls"], err = r.meter.Slow()
	return out, err
}
