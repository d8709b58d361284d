package claimqtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/queue"
)

// Worker is one process that runs the task. What a handler takes from it can be
// cut off, paused and killed with it.
type Worker struct {
	*process
	consumer *consumer.Worker
	stopped  chan struct{} // closed when Run has returned
	cancel   context.CancelFunc
	closers  []func() // once nothing runs any more
	err      error    // of what the handler asked for

	came    map[string]int // how often it came to a point; guarded by trial.mu
	running int            // handlers; guarded by trial.mu

	contextsMu sync.Mutex
	contexts   map[context.Context]bool // of running handlers
}

// newWorker makes a worker and its handler.
func newWorker(tr *trial) (*Worker, error) {
	w := &Worker{
		process: newProcess(tr), stopped: make(chan struct{}), came: map[string]int{},
		contexts: map[context.Context]bool{},
	}
	if _, err := w.newQueue(tr.config(), hook{w}); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPlan, err)
	}
	h := tr.plan.Handler(w)
	cfg := consumer.Config{
		Handler: h, DrainTimeout: tr.plan.Lease, AbortGrace: tr.plan.Lease,
		HousekeepingEvery: min(max(tr.plan.Lease/4, 50*time.Millisecond), 10*time.Second),
		Rand:              rand.NewPCG(0, uint64(len(tr.workers))), // a report is the same each time
	}
	_, err := consumer.New(w.queue, cfg) // looks at a mux, which the wrapper hides
	if err == nil && w.err == nil {
		cfg.Handler = w.around(h)
		w.consumer, err = consumer.New(w.queue, cfg)
	}
	if err == nil {
		err = w.err
	}
	if err != nil {
		w.close()
		return nil, fmt.Errorf("%w: Handler: %w", ErrPlan, err)
	}
	return w, nil
}

// Queue returns the queue as this worker sees it.
func (w *Worker) Queue() *queue.Queue { return w.queue }

// Do runs f, which has an effect that others can see, or asks for one: a write
// to a store that the kit does not know, a call of a fake of your own. It is a
// point called what. When the worker is killed there f is not run, or what it
// did is all that is left of the worker.
func (w *Worker) Do(ctx context.Context, what string, f func() error) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	var err error
	lost := w.cross(what, seamCall, func(bool) error {
		err = f()
		return nil
	})
	if lost != nil {
		return lost
	}
	return err
}

// cross is a point: do is what the worker is about to do. An error is not do's:
// what was to be done was not, or nobody knows.
func (w *Worker) cross(name string, s seam, do func(replyLost bool) error) error {
	f := w.tr.arrive(w, name, s)
	if err := w.suffer(f, s); err != nil {
		return err
	}
	if w.gate() != nil {
		return w.buried()
	}
	if err := do(f == ReplyLost); err != nil {
		return err
	}
	if w.gate() != nil {
		return w.buried()
	}
	if f == ReplyLost {
		return errReply
	}
	return nil
}

// suffer makes a fault come about. An error: the call does not take place.
func (w *Worker) suffer(f Fault, s seam) error {
	switch f {
	case Killed:
		w.kill()
	case Paused, Together:
		w.pause()
	case Cancelled:
		w.consumer.Abort()
		w.awaitCancelled()
	case RequestLost:
		return errRequest
	case ServerAway:
		w.leave(s, w.tr.plan.Lease/awayPart)
	}
	return nil
}

// buried keeps a goroutine of a dead worker until it can do no harm.
func (w *Worker) buried() error {
	<-w.tr.over
	return ErrKilled
}

// awaitCancelled waits until the contexts of running handlers have ended.
func (w *Worker) awaitCancelled() {
	w.contextsMu.Lock()
	var all []context.Context
	for ctx := range w.contexts {
		all = append(all, ctx)
	}
	w.contextsMu.Unlock()
	for _, ctx := range all {
		<-ctx.Done()
	}
}

func (w *Worker) start() {
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	go func() {
		defer close(w.stopped)
		_ = w.consumer.Run(ctx) // what it gave up on, the trial sees
	}()
}

func (w *Worker) stop() {
	w.cancel()
	w.consumer.Abort()
	<-w.stopped
}

func (w *Worker) close() {
	for _, f := range w.closers {
		f()
	}
	w.process.close()
}
