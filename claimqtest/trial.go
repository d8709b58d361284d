package claimqtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/claimq/claimq/queue"
)

const (
	lookEvery    = time.Second // how often a run is looked at
	lookRealTime = 10 * time.Millisecond
	longestPause = 3               // leases, for a worker that others wait for
	holdFor      = 3 * time.Second // how long the second of two at once waits for the first
	awayPart     = 2               // a server is away for a lease divided by this
	callTimeout  = 10 * time.Second
	quietLooks   = 2
)

// trial is one run of the task.
type trial struct {
	plan      *Plan
	queueName string
	at        int // point of the first worker at which the fault happens; negative: none
	fault     Fault

	server   *server
	operator *process
	over     chan struct{} // closed when the run has been judged
	handlers sync.WaitGroup

	mu      sync.Mutex
	workers []*Worker
	points  []point // of the first worker
	fired   bool
	key     string    // name of the point of the fault
	since   time.Time // of the pause
	met     bool      // the second worker has come to the point
	runs    int       // of handlers
	judged  bool      // what workers do from here on does not count

	result result
	err    error
}

// run runs the task to its end.
func (tr *trial) run() {
	tr.server, tr.over = newServer(), make(chan struct{})
	tr.operator = newProcess(tr)
	defer tr.server.close()
	defer tr.operator.close()
	q, err := tr.operator.newQueue(tr.config())
	if err != nil {
		tr.err = fmt.Errorf("%w: %w", ErrPlan, err)
		return
	}
	if tr.err = tr.enqueue(q); tr.err != nil {
		return
	}
	if tr.err = tr.addWorker(); tr.err == nil {
		tr.watch(q)
	}
	if tr.fault == forgotten && tr.err == nil && tr.result.problem == "" {
		tr.server.forget()
		if tr.err = tr.enqueue(q); tr.err == nil {
			tr.fired = true
			tr.watch(q)
		}
	}
	tr.end()
	tr.result.points, tr.result.fired, tr.result.runs = tr.points, tr.fired, tr.runs
}

func (tr *trial) config() queue.Config {
	return queue.Config{Name: tr.queueName, Lease: tr.plan.Lease}
}

func (tr *trial) enqueue(q *queue.Queue) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if err := q.Ensure(ctx); err != nil {
		return err
	}
	r := q.Enqueue(ctx, q.NewToken(), []queue.Task{tr.plan.Task})[0]
	if r.Err != nil {
		return fmt.Errorf("%w: Task: %w", ErrPlan, r.Err)
	}
	return nil
}

// watch waits for the end of the task, and moves on whoever waits for the kit.
func (tr *trial) watch(q *queue.Queue) {
	every := lookEvery
	if tr.plan.RealTime {
		every = lookRealTime
	}
	quiet := 0 // looks at which all was quiet
	for began := time.Now(); ; time.Sleep(every) {
		info := tr.look(q)
		settled := info.Place == queue.Done || info.Place == queue.Dead
		tr.result.place, tr.result.lastError = info.Place, info.LastError
		if tr.err = tr.help(settled); tr.err != nil {
			return
		}
		if !settled || !tr.quiet() {
			quiet = 0
		} else if quiet++; quiet == quietLooks { // replies arrive, too
			return
		}
		if time.Since(began) > tr.plan.Limit {
			tr.result.problem = fmt.Sprintf("not ended after %v: the task is %s, %d handlers are running",
				tr.plan.Limit, info.Place, tr.handlersRunning())
			return
		}
	}
}

func (tr *trial) look(q *queue.Queue) queue.TaskInfo {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	info, err := q.Inspect(ctx, tr.plan.Task.ID)
	if err != nil && !errors.Is(err, queue.ErrNotFound) {
		return queue.TaskInfo{LastError: err.Error()}
	}
	return info
}

// help starts the second worker when the first has met its fault, and lets a
// paused one go on when it is time.
func (tr *trial) help(settled bool) error {
	tr.mu.Lock()
	second := tr.fired && len(tr.workers) == 1 && tr.fault.needsAnother()
	first := tr.workers[0]
	long := time.Since(tr.since) > longestPause*tr.plan.Lease
	goOn := first.isPaused() && (settled || long || tr.met)
	tr.mu.Unlock()
	if goOn {
		first.resume()
	}
	if second {
		return tr.addWorker()
	}
	return nil
}

func (f Fault) needsAnother() bool {
	return f == Killed || f == Paused || f == Together || f == Cancelled
}

// quiet reports whether nobody who lives is at work.
func (tr *trial) quiet() bool {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for _, w := range tr.workers {
		if w.isPaused() || !w.isDead() && w.running > 0 {
			return false
		}
	}
	return true
}

func (tr *trial) somebodyIsPaused() bool {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return slices.ContainsFunc(tr.workers, func(w *Worker) bool { return w.isPaused() })
}

func (tr *trial) handlersRunning() int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	n := 0
	for _, w := range tr.workers {
		n += w.running
	}
	return n
}

func (tr *trial) addWorker() error {
	w, err := newWorker(tr)
	if err != nil {
		return err
	}
	tr.mu.Lock()
	tr.workers = append(tr.workers, w)
	tr.mu.Unlock()
	w.start()
	return nil
}

// end stops what is left. Nothing that a worker reaches through the kit has an
// effect from here on.
func (tr *trial) end() {
	tr.mu.Lock()
	tr.judged = true
	tr.mu.Unlock()
	for _, w := range tr.workers {
		w.kill()
	}
	close(tr.over)
	for _, w := range tr.workers {
		w.stop()
	}
	tr.handlers.Wait()
	for _, w := range tr.workers {
		w.close()
	}
}

// arrive notes that a worker has come to a point, and answers the fault that
// happens there.
func (tr *trial) arrive(w *Worker, name string, s seam) Fault {
	tr.mu.Lock()
	if tr.judged {
		tr.mu.Unlock()
		return ""
	}
	n := w.came[name] + 1
	w.came[name] = n
	if n > 1 {
		name = fmt.Sprintf("%s (%d)", name, n)
	}
	if len(tr.workers) == 0 || w != tr.workers[0] {
		meets := tr.fault == Together && name == tr.key && !tr.met
		if meets {
			tr.met = true
		}
		tr.mu.Unlock()
		if meets {
			tr.holdSecond()
		}
		return ""
	}
	at := len(tr.points)
	tr.points = append(tr.points, point{name, s})
	if at != tr.at || tr.fired || !s.allows(tr.fault) {
		tr.mu.Unlock()
		return ""
	}
	tr.fired, tr.key, tr.since = true, name, time.Now()
	tr.mu.Unlock()
	return tr.fault
}

// holdSecond keeps the second worker until the first one's handler has ended,
// or has had time enough.
func (tr *trial) holdSecond() {
	for began := time.Now(); time.Since(began) < holdFor; time.Sleep(lookRealTime) {
		tr.mu.Lock()
		first := tr.workers[0]
		idle := !first.isPaused() && first.running == 0
		tr.mu.Unlock()
		if idle {
			return
		}
	}
}
