package consumer

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/claimq/claimq/queue"
)

// Worker fetches tasks from one or more queues and runs their handlers. See
// the package documentation for its goroutines.
type Worker struct {
	cfg     Config
	router  Router
	sources []*source
	byQueue map[*queue.Queue]*source
	read    func(context.Context, queue.ReadRequest) ([]queue.Entry, error)
	log     *slog.Logger
	observe guarded
	jitter  *jitter

	baseName string
	consumer atomic.Pointer[string] // consumer name at present
	epoch    time.Time
	tick     time.Duration // longest wait of a loop between two beats
	patience time.Duration // how long a task that was fetched ahead waits for its turn at most, and a tick
	adapts   bool          // tasks may be fetched ahead of the slots while handlers are quick
	onBeat   func(loop string)

	fetch, dispatch, renew, watch, settle, housekeeping *loop
	loops                                               []*loop // the same, in this order

	mu       sync.Mutex // held for moments only, never over a call or a callback
	hand     hand
	chores   []chore
	settling settling // the settle loop's

	lookAt time.Time // when the watch loop looks next, if not before
	counts counts    // of hand, for readers that must not wait

	state atomic.Pointer[State]

	ran      atomic.Bool
	aborted  chan struct{}
	abort    sync.Once
	drain    chan struct{} // closed: fetch and start nothing more
	stop     chan struct{} // closed: the loops end
	progress chan struct{} // poked when something left the worker's hands
	fatal    chan error    // the first fetch found that it cannot work

	// Set by Run before any goroutine starts.
	ops    context.Context // of calls to the server; ends when the worker gives up
	values context.Context // of the handlers' contexts
}

// New checks cfg, reports every problem at once, and returns a worker for q
// and the queues in cfg.More. It does not talk to the server.
func New(q *queue.Queue, cfg Config) (*Worker, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(q); err != nil {
		return nil, err
	}
	var random [16]byte
	if _, err := io.ReadFull(cfg.Entropy, random[:]); err != nil {
		return nil, fmt.Errorf("no entropy for a consumer name: %w", err)
	}
	w := &Worker{
		cfg:      cfg,
		router:   routerOf(cfg.Handler),
		read:     queue.Read,
		log:      cfg.Logger,
		jitter:   newJitter(cfg.Rand),
		baseName: cfg.Consumer + "-" + hex.EncodeToString(random[:]),
		epoch:    time.Now(),
		byQueue:  make(map[*queue.Queue]*source),
		aborted:  make(chan struct{}),
		drain:    make(chan struct{}),
		stop:     make(chan struct{}),
		progress: make(chan struct{}, 1),
		fatal:    make(chan error, 1),
		hand: hand{
			slots:   slots{concurrency: cfg.Concurrency, prefetch: max(cfg.Prefetch, 0), maxStuck: max(cfg.MaxStuck, 0)},
			pace:    newPace(),
			running: make(map[taskKey]*item),
		},
	}
	w.observe = guarded{cfg.Observer, w.log}
	w.consumer.Store(&w.baseName)
	w.setState(StateStarting)
	w.addSource(newSource(q, cfg.Weight))
	for _, m := range cfg.More {
		w.addSource(newSource(m.Queue, m.Weight))
	}
	w.tick = min(time.Second, cfg.UnhealthyAfter/4)
	w.patience, w.adapts = time.Second, cfg.Prefetch == 0
	for _, s := range w.sources {
		// A task that waited for its turn may be interrupted once more than it
		// was run. From soloInterruptions on it runs alone, so that is no harm
		// as long as it is given a run then.
		w.adapts = w.adapts && s.queue.Config().MaxInterruptions > soloInterruptions
		w.tick = max(min(w.tick, s.shortest/10), 10*time.Millisecond)
		w.patience = min(w.patience, s.shortest/20)
	}
	for _, l := range []struct {
		at   **loop
		name string
	}{
		{&w.fetch, loopFetch}, {&w.dispatch, loopDispatch}, {&w.renew, loopRenew},
		{&w.watch, loopWatch}, {&w.settle, loopSettle}, {&w.housekeeping, loopHousekeeping},
	} {
		*l.at = newLoop(w, l.name)
		w.loops = append(w.loops, *l.at)
	}
	return w, nil
}

func (w *Worker) addSource(s *source) {
	w.sources = append(w.sources, s)
	w.byQueue[s.queue] = s
}

// Run works until ctx ends, then drains: it fetches nothing more, hands back
// what has not started, lets running handlers finish, and returns once
// everything in hand is settled. That is nil, or an *AbandonedError when time
// ran out first. Before that it returns only if the queues on the server
// contradict this configuration (queue.ErrMismatch). It survives every other
// error of the server. It may be called once.
func (w *Worker) Run(ctx context.Context) error {
	if !w.ran.CompareAndSwap(false, true) {
		return errors.New("consumer: Run was called before")
	}
	// Neither a settle nor a handler may end because Run's context does:
	// that is when they are needed most.
	detached := context.WithoutCancel(ctx)
	ops, cancelOps := context.WithCancel(detached)
	defer cancelOps()
	defer w.endHandlers()
	w.ops, w.values = ops, detached

	for _, l := range w.loops {
		l.beat()
	}
	var loops sync.WaitGroup
	loops.Go(w.settleLoop)
	loops.Go(w.renewLoop)
	loops.Go(w.watchLoop)
	loops.Go(w.housekeepingLoop)
	loops.Go(w.dispatchLoop)
	fetching := make(chan struct{})
	loops.Go(func() {
		defer close(fetching)
		w.fetchLoop()
	})

	var err error
	select {
	case <-ctx.Done():
	case <-w.aborted:
	case err = <-w.fatal:
	}
	w.beginDrain()
	w.awaitDrain(fetching)
	w.addTimes()
	cancelOps()
	close(w.stop)
	loops.Wait()
	w.setState(StateStopped)
	if err == nil {
		err = w.abandoned()
	}
	return err
}

// Abort ends the contexts of all running handlers at once, with the cause
// ErrDraining, and makes Run drain if it does not yet. It may be called at any
// time and more than once; it does not wait.
func (w *Worker) Abort() { w.abort.Do(func() { close(w.aborted) }) }

func (w *Worker) setState(s State) { w.state.Store(&s) }

func (w *Worker) stopping() bool { return isClosed(w.stop) }
func (w *Worker) draining() bool { return isClosed(w.drain) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// callTimeout bounds every call but renewals, which have less time.
const callTimeout = 5 * time.Second

func (w *Worker) call() (context.Context, context.CancelFunc) {
	return context.WithTimeout(w.ops, callTimeout)
}

// changed publishes the counts and wakes whoever may go on now. The caller
// holds mu.
func (w *Worker) changed() {
	h := &w.hand
	w.counts.store(h)
	if w.room() > 0 {
		w.fetch.poke()
	}
	if h.slots.held > 0 {
		w.dispatch.poke()
	}
	w.employ()
	select {
	case w.progress <- struct{}{}:
	default:
	}
}

func routerOf(h Handler) Router {
	if r, ok := h.(Router); ok {
		return r
	}
	return everyKind{h}
}

// everyKind is a Router that gives every task to one handler.
type everyKind struct{ Handler }

func (e everyKind) Route(string) (Route, bool) { return Route{Handler: e.Handler}, true }
