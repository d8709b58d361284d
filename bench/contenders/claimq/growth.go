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

// growth says what a task, and a round of chores, cost in a state of the queue,
// beside an almost empty queue on another server.
func growth(o contender.Options, start func()) (contender.Result, error) {
	r, err := filled(o)
	if err != nil {
		return contender.Result{}, err
	}
	base, err := filled(contender.BaseOf(o))
	if err != nil {
		return contender.Result{}, err
	}
	base.calls = r.perRound() / base.o.Batch // as many tasks between two steps of one of them
	start()
	for i := range o.Workers { // filling may have taken longer than their grace
		if err := r.beat(workerName(i)); err != nil {
			return contender.Result{}, err
		}
	}
	if err := r.meter.CountSlow(slow); err != nil {
		return contender.Result{}, err
	}
	a, b := contender.Side{Meter: r.meter, Work: r.life}, contender.Side{Meter: base.meter, Work: base.life}
	ratio, err := contender.Beside(o.N, max(r.perRound(), sliceTasks), a, b)
	if err != nil {
		return contender.Result{}, err
	}
	out, err := contender.Compared(o, ratio, a, b)
	if err != nil {
		return out, err
	}
	for _, x := range []*rig{r, base} {
		x.meter = contender.NewMeter(x.rdb, chores)
	}
	a, b = contender.Side{Meter: r.meter, Work: r.choreRounds}, contender.Side{Meter: base.meter, Work: base.choreRounds}
	if ratio, err = contender.Beside(chores, chores/10, a, b); err != nil {
		return out, err
	}
	out.More["chores_us"], out.More["chores_ratio"] = r.meter.Total(), ratio
	out.More["slow_calls"], err = r.meter.Slow()
	return out, err
}

// sliceTasks is how many tasks are measured on one server before it is the
// other's turn.
const sliceTasks = 3000

// filled is a rig in the state that the options ask for.
func filled(o contender.Options) (*rig, error) {
	r, err := newRig(o)
	if err != nil {
		return nil, err
	}
	if err := r.fill(); err != nil {
		return nil, err
	}
	r.meter = contender.NewMeter(r.rdb, o.N)
	return r, nil
}

func (r *rig) choreRounds(n int) error {
	for range n {
		if err := r.chores(); err != nil {
			return err
		}
	}
	r.meter.Lap("chores")
	return nil
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
