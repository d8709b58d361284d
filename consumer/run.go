package consumer

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/claimq/claimq/queue"
)

// begins prepares the run of an item that is in a slot. The caller holds mu
// and then runs it in a goroutine of runItems.
func (w *Worker) begins(it *item, now time.Time) {
	timeout := it.route.Timeout
	if timeout <= 0 {
		timeout = w.cfg.Timeout
	}
	it.ctx.values, it.ctx.deadline = w.values, now.Add(timeout)
	if it.ctx.deadline.Before(w.lookAt) {
		w.watch.poke()
	}
	it.startedAt = now
	it.stuckAt = it.ctx.deadline.Add(w.cfg.Grace)
	w.hand.runs(it)
	it.wait = -1
	if it.lease.Attempt <= 1 && !it.task.EnqueuedAt.IsZero() {
		if clock := it.src.clock(now); !clock.IsZero() {
			from := it.task.EnqueuedAt
			if it.task.Due.After(from) {
				from = it.task.Due
			}
			it.wait = max(0, clock.Sub(from))
		}
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

// runItems runs handlers one after the other, for as long as there are tasks
// on record as started whose turn it is: a goroutine serves many short tasks.
func (w *Worker) runItems(it *item) {
	for it != nil {
		it = w.runItem(it)
	}
}

// runNext is the goroutine that employ starts.
func (w *Worker) runNext() {
	now := time.Now()
	w.mu.Lock()
	w.hand.coming = false
	it, losses := w.take(now)
	w.changed()
	w.mu.Unlock()
	w.reportLosses(losses)
	w.runItems(it)
}

// employ starts a goroutine for tasks whose turn it is, if one is needed. It
// looks for the next when it has taken its task, so as many start as have
// something to do: for handlers that take no time few are enough. The caller
// holds mu.
func (w *Worker) employ() {
	h := &w.hand
	if len(h.ready) > 0 && !h.coming && h.slots.vacant() > 0 && w.mayStart() {
		h.coming = true
		go w.runNext()
	}
}

// take gives the task whose turn it is a slot and prepares its run; nil when
// there is none, or none may start. The caller holds mu.
func (w *Worker) take(now time.Time) (next *item, losses []loss) {
	h := &w.hand
	for len(h.ready) > 0 && h.slots.vacant() > 0 && w.mayStart() {
		it := h.ready[0]
		h.pace.waited(now.Sub(it.since), h.slots.concurrency)
		switch {
		case !queue.Trusted(it.grant.trusted, now):
			losses = w.lose(losses, it, LossExpired, now)
		case w.settleUnstarted(it, now):
			h.unready(it)
		default:
			h.popReady()
			h.slots.run()
			w.begins(it, now)
			return it, losses
		}
	}
	return nil, losses
}

// runItem runs the handler of an item and returns the one to run next.
func (w *Worker) runItem(it *item) (next *item) {
	exited := true // until the handler has returned or panicked
	var result []byte
	var err error
	defer func() {
		if exited {
			err = &PanicError{Goexit: true, Stack: stack()}
		}
		cause := it.ctx.close()
		next = w.finish(it, w.verdictOf(it, result, err, cause))
		if exited && next != nil { // this goroutine ends
			go w.runItems(next)
		}
	}()
	w.observe.Started(Started{
		Queue: it.src.name, Kind: it.task.Kind, TaskID: it.lease.TaskID, Attempt: it.lease.Attempt,
		TraceParent: it.trace, Wait: it.wait,
	})
	result, err = recovering{it.route.Handler}.HandleTask(&it.ctx, Delivery{Task: it.task, Lease: it.lease, Source: it.origin})
	exited = false
	return nil // the deferred function knows
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

// finish frees the slot of a handler that has ended, passes its outcome on, and
// returns the item that this goroutine may run next, in the same slot.
func (w *Worker) finish(it *item, v verdict) (next *item) {
	now := time.Now()
	took := now.Sub(it.startedAt)
	if v.err != nil {
		w.logVerdict(it, v)
		now = time.Now() // a log may take its time, which is not the next handler's
	}
	w.mu.Lock()
	h := &w.hand
	h.ran(it)
	h.pace.ran(took)
	wasStuck := it.stuck
	stuck := h.slots.stuck
	// The server decides about a lease that has ended, unless it has already
	// or the worker gave the task up. An error of a handler whose context was
	// ended by the loss is most likely a consequence of it.
	late := it.stuck || it.confirmed || it.lost && !v.stands
	it.ran, it.took = true, took
	it.src.times.observe(it.task.Kind, took)
	var end Ended
	var about subject
	if late {
		about = it.subject()
		it.verdict = v
		end = w.ended(it, queue.Lost, now)
		h.drop(it)
	} else {
		w.queueOutcome(it, v)
	}
	next, losses := w.take(now)
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
	w.reportLosses(losses)
	return next
}

// ended is the event of a task that leaves. The caller holds mu.
func (w *Worker) ended(it *item, o queue.Outcome, now time.Time) Ended {
	e := Ended{
		Queue: it.src.name, Kind: it.task.Kind, TaskID: it.lease.TaskID, Outcome: o, Reason: it.verdict.reason,
		Ran: it.ran, Duration: it.took,
		Lease: it.lease.Grant.Length, Attempt: it.lease.Attempt, TraceParent: it.trace,
	}
	if o == queue.DeadLettered {
		e.DeadReason = it.deadReason()
	}
	if !it.task.EnqueuedAt.IsZero() {
		if clock := it.src.clock(now); !clock.IsZero() {
			e.SinceEnqueue = max(0, clock.Sub(it.task.EnqueuedAt))
		}
	}
	return e
}
