package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/queue"
)

// config is what the seed chooses for a run.
type config struct {
	workers, producers, tasks int
	concurrency, prefetch     int
	partitions                int
	lease                     time.Duration
	spread                    time.Duration // over which tasks come in
	odds                      odds
	faults                    []string      // what the nemesis does
	every                     time.Duration // about how often
	trace                     bool          // every step of every task is kept
}

// allFaults is what can go wrong apart from single messages.
var allFaults = []string{
	"crash", "silent crash", "pause", "cut", "hole requests", "hole replies", "drain",
	"OOM", "LOADING", "READONLY", "BUSY", "NOGROUP", "NOSCRIPT", "flush scripts", "lose fence", "copy", "by hand", "garbage",
}

func configOf(w *world) config {
	r := w.rand("config")
	lease := []time.Duration{2 * time.Second, 5 * time.Second, 15 * time.Second}[r.IntN(3)]
	c := config{
		workers: 1 + r.IntN(4), producers: 1 + r.IntN(2), tasks: 12 + r.IntN(24),
		concurrency: 1 + r.IntN(6), prefetch: r.IntN(3), partitions: 1 + r.IntN(2),
		lease: lease, spread: 6 * lease, every: lease / 2, trace: w.draw("trace")%2 == 0,
	}
	if r.IntN(4) > 0 {
		c.odds = odds{cut: r.Float64() * .006, lost: r.Float64() * .006, slow: r.Float64() * .006}
	}
	// Some seeds have all kinds of faults, some few, so that one does not
	// account for what another did.
	few := r.Float64()
	for _, kind := range allFaults {
		if r.Float64() >= few {
			c.faults = append(c.faults, kind)
		}
	}
	return c
}

// fleet is a run in progress.
type fleet struct {
	w        *world
	cfg      config
	qcfg     queue.Config
	bug      *bug
	srv      *server
	watch    *observer
	gateway  *gateway
	operator *proc

	mu      sync.Mutex
	workers []*worker // the present one of each slot
	procs   []*proc

	stop     chan struct{}  // closed: workers drain and are not started again
	slots    sync.WaitGroup // supervisors, producers and the nemesis
	zombies  sync.WaitGroup // Run of what has crashed
	handlers sync.WaitGroup
	nextID   int
}

// worker is a process that runs tasks.
type worker struct {
	*proc
	cancel context.CancelFunc
	done   chan struct{}
	err    error // of Run, once done
}

// result is what came of a run.
type result struct {
	seed    uint64
	hash    uint64
	virtual time.Duration
	tasks   int
	runs    int
	faults  int
	kinds   map[string]int
	found   []finding
	events  []event
}

// simulate runs one seed in a bubble of its own.
func simulate(t *testing.T, seed uint64, b *bug) (out result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(seed)
		f := &fleet{w: w, cfg: configOf(w), bug: b, stop: make(chan struct{}), gateway: newGateway(w)}
		if b != nil && b.config != nil {
			b.config(&f.cfg)
		}
		f.run()
		out = result{seed: seed, hash: w.sum, virtual: w.now(), tasks: len(f.watch.tasks), kinds: w.faults, found: w.found, events: w.events}
		for _, t := range f.watch.tasks {
			out.runs += len(t.runs)
		}
		for _, n := range w.faults {
			out.faults += n
		}
	})
	return out
}

func newGateway(w *world) *gateway {
	return &gateway{w: w, effects: map[string]int{}, known: map[dedupeKey]string{}}
}

func (f *fleet) timeout() time.Duration { return 3 * f.cfg.lease }
func (f *fleet) grace() time.Duration   { return f.cfg.lease / 2 }

func (f *fleet) run() {
	f.srv = newServer(f.w, f.bug)
	f.srv.proc = f.proc
	f.qcfg = queue.Config{
		Name: "sim", Lease: f.cfg.lease, Partitions: f.cfg.partitions, MaxFailures: 5, NoHandlerAfter: 20 * time.Second,
		MaxInterruptions: 6, Trace: f.cfg.trace,
	}
	f.operator = f.newProc(observerName, false)
	f.watch = newObserver(f.w, f.srv, f.operator.queue)
	f.srv.watch = f.watch
	if err := f.operator.queue.Ensure(context.Background()); err != nil {
		panic(err)
	}
	f.workers = make([]*worker, f.cfg.workers)
	for i := range f.cfg.workers {
		f.slots.Go(func() { f.supervise(i) })
	}
	var load sync.WaitGroup
	for i := range f.cfg.producers {
		load.Go(func() { f.produce(i) })
	}
	over := make(chan struct{})
	f.slots.Go(func() { f.nemesis(over) })
	load.Wait()
	time.Sleep(f.w.delay(f.cfg.lease))
	close(over)
	f.heal()
	f.awaitEnd()
	close(f.stop)
	f.slots.Wait()
	f.zombies.Wait()
	f.handlers.Wait()
	f.judge()
	f.shutDown()
}

func (f *fleet) newProc(name string, faulty bool) *proc {
	p := newProc(f.w, f.srv, name, faulty, f.cfg.odds, f.qcfg)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.procs = append(f.procs, p)
	return p
}

func (f *fleet) proc(name string) *proc {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.procs {
		if p.name == name {
			return p
		}
	}
	return nil
}

// supervise keeps one worker running.
func (f *fleet) supervise(slot int) {
	for life := 0; ; life++ {
		wk := f.startWorker(fmt.Sprintf("w%d.%d", slot, life))
		f.mu.Lock()
		f.workers[slot] = wk
		f.mu.Unlock()
		select {
		case <-f.stop:
			f.drain(wk)
			<-wk.done
			if wk.err != nil && !wk.isDead() {
				f.w.report("", "%s: Run at the end: %v", wk.name, wk.err)
			}
			wk.close()
			return
		case <-wk.done: // it drained
			wk.close()
		case <-wk.died:
			wk.cancel()
		}
		wait := f.w.between(0, f.cfg.lease, "restart", wk.name)
		time.Sleep(f.w.delay(wait))
	}
}

func (p *proc) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

func (f *fleet) startWorker(name string) *worker {
	p := f.newProc(name, true)
	mux := &consumer.Mux{}
	consumer.HandleTask(mux, "work", handler{f, p}.HandleTask)
	c, err := consumer.New(p.queue, consumer.Config{
		Handler: mux, Concurrency: f.cfg.concurrency, Prefetch: f.cfg.prefetch, Consumer: name,
		Timeout: f.timeout(), Grace: f.grace(), RetryBase: f.cfg.lease / 8, RetryMax: 2 * f.cfg.lease,
		DrainTimeout: 3 * f.cfg.lease, AbortGrace: f.cfg.lease / 2,
		Rand: f.w.source("jitter/" + name), Entropy: f.w.source("name/" + name),
	})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	wk := &worker{proc: p, cancel: cancel, done: make(chan struct{})}
	f.w.log(name, "UP")
	f.zombies.Go(func() {
		wk.err = c.Run(ctx)
		cancel()
		f.w.log(name, "DOWN", fmt.Sprint(wk.err))
		if wk.err != nil && wk.die(false) { // what it left running ends with the process
			f.w.fault(name, "gave up draining", forever)
		}
		close(wk.done)
	})
	return wk
}

// drain asks a worker to stop.
func (f *fleet) drain(wk *worker) {
	wk.draining.Store(true)
	f.w.log(wk.name, "DRAIN")
	wk.cancel()
}

// produce adds tasks, some of them again, until each is accepted.
func (f *fleet) produce(n int) {
	name := fmt.Sprintf("p%d", n)
	p := f.newProc(name, true)
	defer p.close()
	pr, err := producer.New(p.queue, producer.Config{
		Timeout: 10 * time.Second, Rand: f.w.source("jitter/" + name), Entropy: f.w.source("ids/" + name),
	})
	if err != nil {
		panic(err)
	}
	r := f.w.rand(name)
	share := f.cfg.tasks / f.cfg.producers
	for i := 0; i < share; {
		time.Sleep(f.w.delay(time.Duration(r.Int64N(int64(2 * f.cfg.spread / time.Duration(share))))))
		var batch []queue.Task
		for range 1 + r.IntN(3) {
			batch = append(batch, f.newTask(r, fmt.Sprintf("%s-task%d.", name, i)))
			i++
		}
		if r.IntN(5) == 0 {
			batch = append(batch, queue.Task{ID: queue.TaskID(fmt.Sprintf("%s-task%d.", name, r.IntN(i))), Kind: "work"})
		}
		f.enqueue(p, pr, batch)
	}
}

func (f *fleet) newTask(r *rand.Rand, id string) queue.Task {
	t := queue.Task{ID: queue.TaskID(id), Kind: "work", Payload: []byte("x")}
	switch u := r.Float64(); {
	case u < .03:
		t.Kind = "unknown"
	case u < .2:
		t.Delay = time.Duration(r.Int64N(int64(f.cfg.lease)))
	case u < .25:
		t.Deadline = time.Now().Add(f.cfg.lease / 4)
	}
	f.watch.mu.Lock()
	defer f.watch.mu.Unlock()
	m := f.watch.task(id)
	m.kind, m.deadline = t.Kind, t.Deadline
	return t
}

// enqueue asks until each task has a clear answer, as a producer that is owed
// one does.
func (f *fleet) enqueue(p *proc, pr *producer.Producer, batch []queue.Task) {
	for len(batch) > 0 {
		receipts, err := pr.EnqueueMany(context.Background(), batch)
		var again []queue.Task
		f.watch.mu.Lock()
		for i, r := range receipts {
			if r.Err != nil {
				again = append(again, batch[i])
				continue
			}
			f.watch.task(string(r.ID)).accepted = true
		}
		f.watch.mu.Unlock()
		if err != nil && !errors.Is(err, queue.ErrIndefinite) && !errors.Is(err, queue.ErrUnavailable) {
			f.w.report("", "enqueue: %v", err)
			return
		}
		if batch = again; len(batch) > 0 {
			_ = p.sleep(context.Background(), time.Second)
		}
	}
}
