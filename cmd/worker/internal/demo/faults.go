package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/claimq/claimq/queue"
)

// plan decides which requests are held so that a worker can be hit in the
// middle of a task: the first for the kill, the second for the freeze.
type plan struct {
	mu     sync.Mutex
	at     []int // number of requests at which each fault is due
	armed  bool
	spared string // the worker that must not be hit: it is gone
	caught chan victim
}

// victim is a request whose worker is to be hit while it waits.
type victim struct {
	request request
	release chan struct{} // close it to let the request be answered
}

// newPlan spreads the faults over n tasks.
func newPlan(seed uint64, n int) *plan {
	rng := rand.New(rand.NewPCG(seed, 1))
	near := func(at int) int { return max(1, at+rng.IntN(n/10+1)) }
	return &plan{at: []int{near(n / 6), max(2, near(n/3))}, armed: true, caught: make(chan victim, 1)}
}

// arrived implements receiver.arrived.
func (p *plan) arrived(r request) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.armed || r.seq < p.at[0] || r.worker == p.spared {
		return nil
	}
	p.armed = false
	p.at = p.at[1:]
	v := victim{request: r, release: make(chan struct{})}
	p.caught <- v
	return v.release
}

// rearm makes the next fault possible.
func (p *plan) rearm(spared string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed, p.spared = len(p.at) > 0, spared
}

func (p *plan) next(ctx context.Context) (victim, error) {
	select {
	case v := <-p.caught:
		return v, nil
	case <-ctx.Done():
		return victim{}, context.Cause(ctx)
	}
}

// fault is what was done to one worker, and what it had in hand then.
type fault struct {
	what   string // "killed" or "frozen"
	worker string
	at     time.Time
	thawed time.Time // when it was woken; zero for a killed worker
	// inHand maps each task that the worker held and had sent a request for
	// to the fence of that lease, as the server had it while the worker could
	// do nothing.
	inHand map[string]uint64
	// seen maps tasks of earlier faults to the fence they had at this one:
	// those were taken over by then, perhaps by this very worker.
	seen map[string]uint64
	// after is a fence granted while the worker was frozen. Fences grow over
	// a whole partition, and the demo has one.
	after uint64
}

// covers reports whether the fault explains that another request followed
// prev.
func (f *fault) covers(prev request) bool {
	if prev.worker != f.worker {
		return false
	}
	if fence, ok := f.inHand[prev.task]; ok && fence == prev.fence {
		return true
	}
	if fence, ok := f.seen[prev.task]; ok && fence == prev.fence {
		return true
	}
	// The request was on its way, or not yet written, when the worker was hit;
	// so it arrived later, from a dead worker, or under a lease that was
	// older than the fault.
	return !prev.at.Before(f.at) && (f.what == "killed" || prev.fence < f.after)
}

// strike kills one worker in the middle of a task and replaces it, then
// freezes another for longer than its lease and wakes it.
func (d *demo) strike(ctx context.Context) error {
	if err := d.kill(ctx); err != nil {
		return err
	}
	return d.freeze(ctx)
}

func (d *demo) kill(ctx context.Context) error {
	v, err := d.plan.next(ctx)
	if err != nil {
		return err
	}
	defer close(v.release)
	p := d.fleet.byName(v.request.worker)
	f := d.fault("killed", p.name)
	if err := p.kill(); err != nil {
		return err
	}
	if err := d.takeStock(ctx, f); err != nil {
		return err
	}
	d.view.event("%s killed with %s in hand (SIGKILL)", p.name, tasksText(len(f.inHand)))
	next, err := d.fleet.start()
	if err != nil {
		return err
	}
	d.view.event("%s started in its place", next.name)
	d.plan.rearm(p.name)
	return nil
}

func (d *demo) freeze(ctx context.Context) error {
	v, err := d.plan.next(ctx)
	if err != nil {
		return err
	}
	p := d.fleet.byName(v.request.worker)
	f := d.fault("frozen", p.name)
	err = p.freeze(ctx)
	if err == nil {
		err = d.takeStock(ctx, f)
	}
	// Its answers wait for it in its sockets: it will wake with results in
	// hand that are no longer its own to settle.
	close(v.release)
	if err != nil {
		return err
	}
	d.view.event("%s frozen with %s in hand (SIGSTOP)", p.name, tasksText(len(f.inHand)))
	if err := d.takenOver(ctx, f); err != nil {
		return err
	}
	before := p.known()
	f.thawed = time.Now()
	if err := p.thaw(); err != nil {
		return err
	}
	d.view.event("%s woken after %.1f s; others have its tasks", p.name, f.thawed.Sub(f.at).Seconds())
	return d.noticed(ctx, p, before)
}

func (d *demo) fault(what, worker string) *fault {
	f := &fault{what: what, worker: worker, at: time.Now(), inHand: map[string]uint64{}}
	d.faults = append(d.faults, f)
	return f
}

// takeStock asks the server which of the worker's requests were for tasks that
// it still holds. The worker can do nothing now, and its leases last longer
// than this takes.
func (d *demo) takeStock(ctx context.Context, f *fault) error {
	held, seen := map[string]uint64{}, map[string]uint64{}
	for _, r := range d.receiver.sentBy(f.worker) {
		info, err := d.cfg.Queue.Inspect(ctx, queue.TaskID(r.task))
		if err != nil {
			return fmt.Errorf("what %s had in hand: %w", f.worker, err)
		}
		if info.Place == queue.Pending && uint64(info.Fence) == r.fence {
			held[r.task] = r.fence
		}
	}
	for _, earlier := range d.faults[:len(d.faults)-1] {
		for task := range earlier.inHand {
			info, err := d.cfg.Queue.Inspect(ctx, queue.TaskID(task))
			if err != nil {
				return fmt.Errorf("what became of %s: %w", task, err)
			}
			if info.Place == queue.Pending {
				seen[task] = uint64(info.Fence)
			}
		}
	}
	f.inHand, f.seen = held, seen
	return nil
}

// takenOver waits until each task of a frozen worker is somebody else's, or
// finished; those too that it held without having sent a request.
func (d *demo) takenOver(ctx context.Context, f *fault) error {
	for task, fence := range f.inHand {
		for {
			info, err := d.cfg.Queue.Inspect(ctx, queue.TaskID(task))
			if err != nil && !errors.Is(err, queue.ErrNotFound) {
				return fmt.Errorf("waiting for %s to be taken over: %w", task, err)
			}
			if info.Place != queue.Pending || uint64(info.Fence) > fence {
				break
			}
			if err := pause(ctx, pollEvery); err != nil {
				return err
			}
		}
	}
	for {
		s, err := d.cfg.Queue.Stats(ctx)
		if err != nil || s.EndedGrants == 0 {
			return err
		}
		if err := pause(ctx, pollEvery); err != nil {
			return err
		}
	}
}

// noticed waits until a woken worker has said that its leases are lost, which
// is for the report only: it has until noticeTime.
func (d *demo) noticed(ctx context.Context, p *process, before counters) error {
	ctx, cancel := context.WithTimeout(ctx, noticeTime)
	defer cancel()
	for {
		d.scraper.scrape(ctx, []*process{p})
		if now := p.known(); now.refused > before.refused {
			return nil
		}
		if err := pause(ctx, pollEvery); err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				return nil
			}
			return err
		}
	}
}

func tasksText(n int) string {
	if n == 1 {
		return "1 task"
	}
	return fmt.Sprintf("%d tasks", n)
}
