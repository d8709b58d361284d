// Package demo runs a fleet of worker processes against a receiver that counts
// every request, kills one worker and freezes another in the middle of a task,
// and reports whether every task had its effect once, with no request that the
// faults do not account for.
//
// Goroutines, all ended when Run returns: the receiver's, two for each worker
// process (its end, its log), one that strikes, one that adds tasks.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/queue"
)

// How a run is set up.
const (
	Workers     = 3
	Concurrency = 4 // of each worker
	Lease       = 2 * time.Second

	pollEvery  = 50 * time.Millisecond
	noticeTime = 2 * time.Second
	// Work is spread so that it takes about this long without faults.
	workTime   = 5 * time.Second
	longestJob = 150 * time.Millisecond
	// limit is for a run of manyTasks; each further task adds a little.
	limit     = 28 * time.Second
	manyTasks = 500
	perTask   = 20 * time.Millisecond
)

// Config says what to run, and on what.
type Config struct {
	Tasks []queue.Task
	Seed  uint64
	// Queue is a fresh queue with lease Lease. The demo owns everything in it.
	Queue *queue.Queue
	// Command starts a worker process: its path, then its arguments. Arg0 is
	// what it sees as its name.
	Command []string
	Arg0    string
	// Env is the whole environment of a worker, but for PUSH_URLS.
	Env []string

	Out      io.Writer
	Terminal bool      // redraw instead of printing lines
	Began    time.Time // what times are counted from
}

type demo struct {
	cfg      Config
	producer *producer.Producer
	receiver *receiver
	fleet    *fleet
	scraper  *scraper
	plan     *plan
	view     *view

	added atomic.Int64 // tasks, once all are accepted

	faults []*fault // written by strike only, read when it has ended
}

var errTime = errors.New("out of time")

// Run runs the demo. The report is nil when it could not come to one.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	allowed := limit + time.Duration(max(0, len(cfg.Tasks)-manyTasks))*perTask
	ctx, cancel := context.WithDeadlineCause(ctx, cfg.Began.Add(allowed), fmt.Errorf("%w after %v", errTime, allowed))
	defer cancel()
	d, err := newDemo(cfg)
	if err != nil {
		return nil, err
	}
	defer d.close()
	for range Workers {
		if _, err := d.fleet.start(); err != nil {
			return nil, err
		}
	}
	d.view.event("%d workers started, %d slots each; tasks: %d", Workers, Concurrency, len(cfg.Tasks))
	early, late := twice(cfg.Tasks)
	duplicates, err := d.work(ctx, early)
	if err != nil {
		return nil, err
	}
	again, err := d.enqueueAgain(ctx, late)
	if err != nil {
		return nil, err
	}
	return d.conclude(ctx, duplicates+again)
}

func newDemo(cfg Config) (*demo, error) {
	p, err := producer.New(cfg.Queue, producer.Config{})
	if err != nil {
		return nil, err
	}
	d := &demo{
		cfg: cfg, producer: p, scraper: newScraper(),
		plan: newPlan(cfg.Seed, len(cfg.Tasks)),
		view: &view{w: cfg.Out, terminal: cfg.Terminal, began: cfg.Began},
	}
	job := min(workTime*Workers*Concurrency/time.Duration(len(cfg.Tasks)), longestJob)
	d.receiver, err = startReceiver(cfg.Seed, job*2/3, job*4/3, d.plan.arrived)
	if err != nil {
		return nil, err
	}
	d.fleet = &fleet{command: cfg.Command, arg0: cfg.Arg0, env: func(worker string) []string {
		return append(append([]string(nil), cfg.Env...), "PUSH_URLS=*="+d.receiver.url(worker))
	}}
	return d, nil
}

// close leaves nothing behind, however the run ended.
func (d *demo) close() {
	d.fleet.close()
	d.receiver.close()
	d.scraper.close()
	d.view.finish()
}

// work adds the tasks, strikes, and waits until every task is done. It returns
// how many of the second enqueues were recognised.
func (d *demo) work(ctx context.Context, early []queue.Task) (int, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel(nil)
	struck := make(chan struct{})
	wg.Go(func() {
		if err := d.strike(ctx); err != nil {
			cancel(err)
			return
		}
		close(struck)
	})
	added := make(chan int, 1)
	wg.Go(func() {
		n, err := d.enqueue(ctx, early)
		if err != nil {
			cancel(err)
			return
		}
		added <- n
	})
	show := time.NewTicker(d.view.every())
	defer show.Stop()
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return 0, d.explainEnd(context.Cause(ctx))
		case <-show.C:
			d.show(ctx)
		case <-poll.C:
			if err := d.fleet.failed(); err != nil {
				return 0, err
			}
			if !closed(struck) || len(added) == 0 {
				continue
			}
			s, err := d.cfg.Queue.Stats(ctx)
			if err != nil {
				return 0, d.explainEnd(err)
			}
			if s.Unfinished() == 0 {
				d.show(ctx)
				return <-added, nil
			}
		}
	}
}

// explainEnd adds to an error how far the run had come.
func (d *demo) explainEnd(err error) error {
	if !errors.Is(err, errTime) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s, serr := d.cfg.Queue.Stats(ctx)
	requests, effects := d.receiver.counts()
	if serr != nil {
		return fmt.Errorf("%w: %d requests, %d effects; the server: %w", err, requests, effects, serr)
	}
	return fmt.Errorf("%w: %d waiting, %d pending, %d scheduled, %d dead, %d requests, %d effects",
		err, s.Waiting, s.Pending, s.Scheduled, s.Dead, requests, effects)
}

// enqueue adds all tasks, then some of them a second time.
func (d *demo) enqueue(ctx context.Context, early []queue.Task) (duplicates int, err error) {
	receipts, err := d.producer.EnqueueMany(ctx, d.cfg.Tasks)
	if err != nil {
		return 0, fmt.Errorf("enqueue: %w", err)
	}
	for _, r := range receipts {
		if !r.Added {
			return 0, fmt.Errorf("enqueue: %s was there before", r.ID)
		}
	}
	d.added.Store(int64(len(receipts)))
	return d.enqueueAgain(ctx, early)
}

func (d *demo) enqueueAgain(ctx context.Context, tasks []queue.Task) (duplicates int, err error) {
	if len(tasks) == 0 {
		return 0, nil
	}
	receipts, err := d.producer.EnqueueMany(ctx, tasks)
	if err != nil {
		return 0, fmt.Errorf("enqueue a second time: %w", err)
	}
	for _, r := range receipts {
		if !r.Duplicate {
			return 0, fmt.Errorf("enqueue a second time: %s was added again", r.ID)
		}
	}
	d.view.event("%s enqueued again: known, nothing added", tasksText(len(tasks)))
	return len(tasks), nil
}

// conclude stops the fleet and looks at what was left.
func (d *demo) conclude(ctx context.Context, duplicates int) (*Report, error) {
	c := d.scraper.scrape(ctx, d.fleet.all())
	r := &Report{Reclaimed: c.reclaimed, Refused: c.refused, Duplicates: duplicates + c.duplicates}
	if err := d.fleet.failed(); err != nil {
		r.problem("%v", err)
	}
	if err := d.fleet.stop(); err != nil {
		r.problem("%v", err)
	}
	s, err := d.cfg.Queue.Stats(ctx)
	if err != nil {
		return nil, err
	}
	if s.Unfinished() != 0 || s.Dead != 0 {
		r.problem("left over: %d waiting, %d pending, %d scheduled, %d dead", s.Waiting, s.Pending, s.Scheduled, s.Dead)
	}
	ids := make([]string, len(d.cfg.Tasks))
	for i, t := range d.cfg.Tasks {
		ids[i] = string(t.ID)
	}
	byTask, effects, odd := d.receiver.snapshot()
	r.judge(ids, byTask, effects, odd, d.faults)
	return r, nil
}

func (d *demo) show(ctx context.Context) {
	f := figures{tasks: len(d.cfg.Tasks)}
	s, err := d.cfg.Queue.Stats(ctx)
	if err != nil {
		return // the next look may succeed; the run's end does not depend on it
	}
	f.waiting, f.pending = s.Waiting, s.Pending
	f.done = max(0, d.added.Load()-s.Unfinished()-s.Dead)
	f.requests, f.effects = d.receiver.counts()
	f.reclaimed = d.scraper.scrape(ctx, d.fleet.all()).reclaimed
	for _, p := range d.fleet.all() {
		p.mu.Lock()
		f.workers = append(f.workers, p.name+" "+p.state)
		p.mu.Unlock()
	}
	d.view.show(f)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
