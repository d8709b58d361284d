package consumer

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/claimq/claimq/queue"
)

// begins prepares the run of an item that is in a slot. The caller holds mu
// and then runs runTask in a goroutine of its own.
func (w *Worker) begins(it *item, now time.Time) {
	timeout := it.route.Timeout
	if timeout <= 0 {
		timeout = w.cfg.Timeout
	}
	it.ctx = &taskContext{values: w.values, deadline: now.Add(timeout)}
	if it.ctx.deadline.Before(w.lookAt) {
		w.watch.poke()
	}
	it.startedAt = now
	it.stuckAt = now.Add(timeout + w.cfg.Grace)
	w.hand.runs(it)
	it.wait = -1
	if clock := it.src.clock(now); it.lease.Attempt <= 1 && !clock.IsZero() && !it.task.EnqueuedAt.IsZero() {
		from := it.task.EnqueuedAt
		if it.task.Due.After(from) {
			from = it.task.Due
		}
		it.wait = max(0, clock.Sub(from))
	}
}

// endHandlers ends the contexts of all running handlers. None is started
// afterwards: the worker drains.
func (w *Worker) endHandlers() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, it := range w.hand.running {
		it.ctx.end(context.Canceled, ErrDraining)
	}
}

// runTask is the goroutine of one handler.
func (w *Worker) runTask(it *item) {
	exited := true // until the handler has returned or panicked
	var result []byte
	var err error
	defer func() {
		cause := context.Cause(it.ctx)
		if exited {
			err = &PanicError{Goexit: true, Stack: stack()}
		}
		it.ctx.end(context.Canceled, nil)
		w.finish(it, w.verdictOf(it, result, err, cause))
	}()
	w.observe.Started(Started{
		Queue: it.src.name, Kind: it.task.Kind, TaskID: it.lease.TaskID, Attempt: it.lease.Attempt,
		TraceParent: it.trace, Wait: it.wait,
	})
	result, err = recovering{it.route.Handler}.HandleTask(it.ctx, Delivery{Task: it.task, Lease: it.lease, Source: it.origin})
	exited = false
}

// recovering turns a panic of a handler into an error.
type recovering struct{ Handler }

func (r recovering) HandleTask(ctx context.Context, d Delivery) (result []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			result, err = nil, &PanicError{Value: cut(fmt.Sprint(v), 256), Stack: stack()}
		}
	}()
	return r.Handler.HandleTask(ctx, d)
}

func stack() string { return cut(string(debug.Stack()), MaxStackBytes) }

// finish frees the slot of a handler that has ended and passes its outcome on.
func (w *Worker) finish(it *item, v verdict) {
	now := time.Now()
	w.logVerdict(it, v)
	w.mu.Lock()
	h := &w.hand
	h.ran(it)
	wasStuck := it.stuck
	stuck := h.slots.stuck
	// The server decides about a lease that has ended, unless it has already
	// or the worker gave the task up. An error of a handler whose context was
	// ended by the loss is most likely a consequence of it.
	late := it.stuck || it.confirmed || it.lost && !v.stands
	it.end = it.endOf(v.reason)
	it.end.Ran, it.end.Duration = true, now.Sub(it.startedAt)
	it.src.times.observe(it.task.Kind, it.end.Duration)
	var end Ended
	var about subject
	if late {
		about = it.subject()
		it.end.Outcome = queue.Lost
		end = w.ended(it, now)
		h.drop(it)
	} else {
		w.queueOutcome(it, v.verb, v.settlement)
	}
	w.changed()
	w.mu.Unlock()

	if wasStuck {
		w.observe.Stuck(stuck)
	}
	if late {
		w.observe.Refused(Refused{Queue: it.src.name, Kind: it.task.Kind, TaskID: it.lease.TaskID, Late: true})
		w.observe.Ended(end)
		w.log.Warn("outcome dropped: the lease was lost before the handler returned",
			about.attrs("stuck", wasStuck)...)
	}
}

// endOf begins the event of a task that leaves.
func (it *item) endOf(reason FailureReason) Ended {
	return Ended{
		Queue: it.src.name, Kind: it.task.Kind, TaskID: it.lease.TaskID, Reason: reason,
		Lease: it.lease.Grant.Length, Attempt: it.lease.Attempt, TraceParent: it.trace,
	}
}

// ended completes the event of a task that leaves. The caller holds mu.
func (w *Worker) ended(it *item, now time.Time) Ended {
	if clock := it.src.clock(now); !clock.IsZero() && !it.task.EnqueuedAt.IsZero() {
		it.end.SinceEnqueue = max(0, clock.Sub(it.task.EnqueuedAt))
	}
	return it.end
}
