package main

import (
	"context"
	"fmt"
	"time"

	"github.com/claimq/claimq/bench/internal/contender"
	"github.com/claimq/claimq/queue"
)

// cycle takes tasks through their life, Batch at a time, from one goroutine:
// enqueue with a duplicate check, read, begin with leases and fences, complete
// with a done mark.
func cycle(o contender.Options, start func()) (contender.Result, error) {
	r, err := newRig(o)
	if err != nil {
		return contender.Result{}, err
	}
	r.meter = contender.NewMeter(r.rdb, o.N)
	start()
	before := contender.Spent()
	for range o.N / r.perRound() {
		if err := r.add(); err != nil {
			return contender.Result{}, err
		}
	}
	r.meter.Memory("waiting")
	for range o.N / r.perRound() {
		if err := r.round(); err != nil {
			return contender.Result{}, err
		}
	}
	r.meter.Memory("done")
	out := contender.Result{N: o.N}
	out.Since(before, o.N)
	out.More, err = r.meter.Result()
	return out, err
}

// rig runs the verbs of the queue by hand.
type rig struct {
	*contestant
	o        contender.Options
	payloads contender.Payloads
	meter    *contender.Meter
	seed     int64
	calls    int       // of a kind between two looks at the account
	made     int       // tasks enqueued
	due      time.Time // of the tasks that each enqueues; zero: now
}

// tasks makes the next n tasks.
func (r *rig) tasks(n int, kind string) []queue.Task {
	tasks := make([]queue.Task, n)
	for i := range tasks {
		tasks[i] = task(contender.ID(r.seed, r.made, r.o.IDBytes), r.payloads.Make())
		tasks[i].Kind = kind
		r.made++
	}
	return tasks
}

func (r *rig) enqueue(tasks []queue.Task) error {
	for _, receipt := range r.q.Enqueue(context.Background(), r.q.NewToken(), tasks) {
		if !receipt.Added {
			return fmt.Errorf("not added: %+v", receipt)
		}
	}
	return nil
}

// life takes n tasks from enqueue to done, in rounds. What waits already stays
// behind them: as many others are taken from the front.
func (r *rig) life(n int) error {
	r.meter.Skip()
	for range n / r.perRound() {
		if err := r.add(); err != nil {
			return err
		}
		if err := r.round(); err != nil {
			return err
		}
	}
	return nil
}

// perRound is how many tasks there are between two looks at the account.
func (r *rig) perRound() int { return r.o.Batch * r.calls }

// add enqueues the tasks of a round.
func (r *rig) add() error {
	for range r.calls {
		if err := r.enqueue(r.tasks(r.o.Batch, kind)); err != nil {
			return err
		}
	}
	r.meter.Lap("enqueue")
	return nil
}

// round runs the tasks of a round.
func (r *rig) round() error {
	ctx := context.Background()
	var read [][]queue.Entry
	most := r.o.Batch
	if r.q.Partitions() > 1 { // what the enqueue calls have put there: about as many
		most = queue.MaxBatch
	}
	for n, p := 0, 0; n < r.perRound(); p = (p + 1) % r.q.Partitions() {
		entries, err := queue.Read(ctx, queue.ReadRequest{
			Queues: []*queue.Queue{r.q}, Partitions: []int{p}, Consumer: "c", Max: min(most, r.perRound()-n),
		})
		if err != nil {
			return err
		}
		if n += len(entries); len(entries) > 0 {
			read = append(read, entries)
		}
	}
	r.meter.Lap("read")
	var begun []queue.Batch
	for _, entries := range read {
		batch, err := r.q.Begin(ctx, queue.BeginRequest{Token: r.q.NewToken(), Entries: entries, Start: len(entries)})
		if err != nil {
			return err
		}
		begun = append(begun, batch)
	}
	r.meter.Lap("begin")
	for _, batch := range begun {
		if err := r.complete(batch.Deliveries); err != nil {
			return err
		}
	}
	r.meter.Lap("complete")
	return nil
}

func (r *rig) complete(deliveries []queue.Delivery) error {
	settlements := make([]queue.Settlement, len(deliveries))
	for i, d := range deliveries {
		settlements[i] = queue.Settlement{Lease: d.Lease, EndsGrant: true}
	}
	for _, s := range r.q.Complete(context.Background(), settlements) {
		if s.Outcome != queue.Completed {
			return fmt.Errorf("not completed: %+v", s)
		}
	}
	return nil
}
