package sim

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/dedupe"
	"github.com/claimq/claimq/queue"
)

// gateway is the other side of the effect. It honours keys.
type gateway struct {
	w *world

	mu      sync.Mutex
	effects map[string]int // by task
	known   map[dedupe.Key]string
}

var errNoAnswer = errors.New("the gateway did not answer")

// pay has the effect once for each key, and sometimes does not answer.
func (g *gateway) pay(p *proc, id string, key dedupe.Key, run string) (string, error) {
	if err := p.gate(); err != nil {
		return "", err // a dead process sends nothing
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	receipt, known := g.known[key]
	if !known {
		receipt = "receipt-" + id
		g.known[key] = receipt
		g.effects[id]++
	}
	g.w.log(p.name, "EFFECT", id, fmt.Sprint(known))
	if !g.w.isCalm() && g.w.unit("no answer", id, run) < 0.02 {
		return "", errNoAnswer
	}
	return receipt, nil
}

// act is what a run of a handler does.
type act string

const (
	actWork    act = "work"
	actFail    act = "fail"
	actPanic   act = "panic"
	actExit    act = "goexit"
	actLater   act = "retry later"
	actRelease act = "release"
	actReject  act = "reject"
	actSlow    act = "slow"
	actStuck   act = "stuck"
)

// act draws what the nth run of a task does. Most tasks succeed in the end.
func (f *fleet) act(id string, n int) act {
	if f.w.unit("doomed", id) < 0.04 {
		return actFail
	}
	if n >= 3 {
		return actWork
	}
	u := f.w.unit("act", id, fmt.Sprint(n))
	for _, c := range []struct {
		act  act
		part float64
	}{
		{actFail, .06}, {actPanic, .03}, {actExit, .01}, {actLater, .03}, {actRelease, .03}, {actReject, .01}, {actSlow, .2}, {actStuck, .01},
	} {
		if u < c.part {
			return c.act
		}
		u -= c.part
	}
	return actWork
}

// handler runs the tasks of one process.
type handler struct {
	f *fleet
	p *proc
}

var _ consumer.Handler = handler{}

func (h handler) HandleTask(ctx context.Context, d consumer.Delivery) (result []byte, err error) {
	id := string(d.Task.ID)
	r, n := h.f.watch.starts(h.p, d)
	if h.f.bug != nil && h.f.bug.early {
		h.f.handlers.Go(func() {
			defer func() { _ = recover() }()
			_, _ = h.work(context.WithoutCancel(ctx), id, n, r, d)
		})
		h.f.watch.ends(h.p, id, r, nil)
		return nil, nil
	}
	done := false
	defer func() {
		if !done {
			err = errors.New("panic or goexit")
		}
		h.f.watch.ends(h.p, id, r, err)
	}()
	h.f.handlers.Add(1)
	defer h.f.handlers.Done()
	result, err = h.work(ctx, id, n, r, d)
	done = true
	return result, err
}

// work takes its time, then does what the task wants.
func (h handler) work(ctx context.Context, id string, n int, r *run, d consumer.Delivery) ([]byte, error) {
	w, lease := h.f.w, h.f.cfg.lease
	try := fmt.Sprint(n)
	time := w.between(10*time.Millisecond, lease/3, "work", id, try)
	act := h.f.act(id, n)
	switch act {
	case actSlow:
		time = w.between(lease, 2*lease, "slow", id, try)
	case actStuck:
		time = h.f.timeout() + h.f.grace() + 2*lease
		h.f.watch.sticks(r)
		ctx = context.WithoutCancel(ctx) // it does not look
	}
	if err := h.p.sleep(ctx, time); err != nil {
		return nil, err
	}
	switch act {
	case actFail:
		return nil, errors.New("no luck")
	case actPanic:
		panic("a bug in the handler")
	case actExit:
		runtime.Goexit()
	case actLater:
		return nil, consumer.RetryAfter(lease/4, nil)
	case actRelease:
		return nil, consumer.Release(nil)
	case actReject:
		h.f.watch.rejects(id)
		return nil, consumer.DeadLetter(nil)
	}
	receipt, err := dedupe.Step(ctx, h.ledger(), d.Lease, "pay", func(ctx context.Context, key dedupe.Key) (string, error) {
		if err := h.p.sleep(ctx, w.between(time/100, time/10+1, "pay", id, try)); err != nil {
			return "", err
		}
		return h.f.gateway.pay(h.p, id, key, try)
	})
	return []byte(receipt), err
}

func (h handler) ledger() dedupe.Ledger {
	ledger := dedupe.NewRedisLedger(h.p.queue)
	if h.f.bug != nil && h.f.bug.marker {
		return markerFirst{ledger}
	}
	return ledger
}

// starts judges the start of a run: on record, under a live lease, and
// accounted for.
func (o *observer) starts(p *proc, d consumer.Delivery) (*run, int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	id, fence := string(d.Task.ID), uint64(d.Lease.Fence)
	o.w.log(p.name, "RUN", id, fmt.Sprint(fence))
	t := o.task(id)
	if t.done {
		o.w.report(id, "I5: run of a task that is done")
	}
	if !t.started[fence] {
		o.w.report(id, "I6: runs under fence %d before that is on record", fence)
	}
	part := o.parts[d.Lease.Grant.Partition]
	if now := part.records[id]; now.fence != fence || part.leases[now.token] <= millis() {
		o.w.report(id, "I2: runs without a live lease (fence %d, held as %v)", fence, now)
	}
	for i, r := range t.runs {
		switch {
		case r.proc == p && !r.over:
			o.w.report(id, "it runs twice at once in %s", p.name)
		case r.why == "":
			o.w.report(id, "run %d, and nothing accounts for more than %d (%s, fence %d, ended=%v %v)", len(t.runs)+1, i+1, r.proc.name, r.fence, r.over, r.err)
			r.why = "reported"
		}
	}
	r := &run{proc: p, fence: fence}
	t.runs = append(t.runs, r)
	return r, len(t.runs) - 1
}

func (o *observer) ends(p *proc, id string, r *run, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r.over, r.err = true, err
	o.w.log(p.name, "END", id, fmt.Sprint(err))
}

func (o *observer) sticks(r *run) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r.stuck = true
}

func (o *observer) rejects(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.task(id).rejected = true
}

// markerFirst records the result before the call: a planted bug.
type markerFirst struct{ dedupe.Ledger }

func (m markerFirst) Intend(ctx context.Context, l queue.Lease, step string, key dedupe.Key, call queue.Token) (queue.Step, error) {
	before, err := m.Ledger.Intend(ctx, l, step, key, call)
	if err == nil && before.State != queue.StepDone {
		_, err = m.Record(ctx, l, step, queue.StepDone, []byte("receipt-"+string(l.TaskID)))
	}
	return before, err
}
