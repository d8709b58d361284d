package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/claimq/claimq/bench/internal/contender"
	"github.com/claimq/claimq/queue"
)

const (
	heldKind  = "held"    // tasks that somebody else has in hand
	heldLease = time.Hour // longer than any run, so that nobody has to renew them
	fillers   = 4         // goroutines that bring the queue into its state
)

// fill brings the queue into the state that the options ask for.
func (r *rig) fill() error {
	for i := range r.o.Workers {
		if err := r.alive(workerName(i)); err != nil {
			return err
		}
	}
	if err := r.each(r.o.Pending, heldKind, 0, r.take); err != nil {
		return fmt.Errorf("pending: %w", err)
	}
	if err := r.each(r.o.Dead, kind, 0, r.bury); err != nil {
		return fmt.Errorf("dead letters: %w", err)
	}
	if err := r.each(r.o.Scheduled, kind, time.Hour, nil); err != nil {
		return fmt.Errorf("scheduled: %w", err)
	}
	if err := r.each(r.o.Backlog, kind, 0, nil); err != nil {
		return fmt.Errorf("backlog: %w", err)
	}
	return nil
}

func workerName(i int) string { return fmt.Sprintf("worker-%d", i) }

// alive makes a consumer that has just been heard of.
func (r *rig) alive(name string) error {
	ctx := context.Background()
	if _, err := queue.Read(ctx, queue.ReadRequest{Queues: []*queue.Queue{r.q}, Consumer: name, Max: max(1, r.o.Partitions)}); err != nil {
		return err
	}
	return r.beat(name)
}

// beat is a heartbeat that takes on no chores.
func (r *rig) beat(name string) error {
	for _, t := range r.q.Turn(context.Background(), queue.TurnRequest{Consumer: name, Interval: heldLease}) {
		if t.Err != nil {
			return t.Err
		}
	}
	return nil
}

// each enqueues n tasks and calls then after each batch of them.
func (r *rig) each(n int, kind string, delay time.Duration, then func(n int) error) error {
	var mu sync.Mutex
	var failed error
	next := func() []queue.Task {
		mu.Lock()
		defer mu.Unlock()
		if failed != nil {
			return nil
		}
		tasks := r.tasks(min(n, queue.MaxBatch), kind)
		n -= len(tasks)
		return tasks
	}
	var wg sync.WaitGroup
	for range fillers {
		wg.Go(func() {
			for tasks := next(); len(tasks) > 0; tasks = next() {
				for i := range tasks {
					tasks[i].Delay, tasks[i].Due = delay, r.due
				}
				err := r.enqueue(tasks)
				if err == nil && then != nil {
					err = then(len(tasks))
				}
				if err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return failed
}

// begin reads and begins n tasks, and gives them to f in batches.
func (r *rig) begin(n int, f func([]queue.Delivery) error) error {
	ctx := context.Background()
	for n > 0 {
		entries, err := queue.Read(ctx, queue.ReadRequest{Queues: []*queue.Queue{r.q}, Consumer: "holder", Max: n})
		if err != nil || len(entries) == 0 { // another filler has taken them
			return err
		}
		batch, err := r.q.Begin(ctx, queue.BeginRequest{Token: r.q.NewToken(), Entries: entries, Start: len(entries)})
		if err != nil {
			return err
		}
		if err := f(batch.Deliveries); err != nil {
			return err
		}
		n -= len(entries)
	}
	return nil
}

func (r *rig) take(n int) error {
	return r.begin(n, func([]queue.Delivery) error { return nil })
}

func (r *rig) bury(n int) error {
	return r.begin(n, func(deliveries []queue.Delivery) error {
		settlements := make([]queue.Settlement, len(deliveries))
		for i, d := range deliveries {
			settlements[i] = queue.Settlement{Lease: d.Lease, EndsGrant: true, Reason: queue.DeadRejected, Error: "no"}
		}
		for _, s := range r.q.DeadLetter(context.Background(), settlements) {
			if s.Outcome != queue.DeadLettered {
				return fmt.Errorf("not buried: %+v", s)
			}
		}
		return nil
	})
}

// keepAlive sends the holder's heartbeats to the end of the process.
func (r *rig) keepAlive() {
	for range time.Tick(time.Second) {
		if r.beat("holder") != nil {
			return
		}
	}
}

func newRig(o contender.Options) (*rig, error) {
	c, err := connect(o)
	if err != nil {
		return nil, err
	}
	calls := max(1, contender.Calls*100/max(1, o.Batch))
	return &rig{contestant: c, o: o, calls: calls, payloads: contender.NewPayloads(o.Size), seed: time.Now().UnixNano()}, nil
}
