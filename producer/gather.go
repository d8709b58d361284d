package producer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/claimq/claimq/queue"
)

// onTheWire is how many sends of single tasks are under way at once. Calls of
// Enqueue that come while there are as many gather, and go out together as soon
// as one of them is answered: no timer holds a lone call up, and the busier the
// producer is, the larger its batches are.
const onTheWire = 2

// gatherer makes batches of single tasks. It starts no goroutine: of the calls
// that wait, the first is given the turn to send for all.
type gatherer struct {
	mu      sync.Mutex
	sending int
	waiting []*ticket // in the order of the calls; only while sending == onTheWire
}

// ticket is one call of Enqueue.
type ticket struct {
	task  queue.Task
	turn  chan []*ticket // the call is to send these, itself the first of them
	done  chan struct{}  // closed: it was sent, and answered
	gone  bool           // its context has ended; guarded by gatherer.mu
	token queue.Token    // under which it was sent; read after done
	said  queue.Receipt  // read after done
}

// enter returns what the call is to send at once, or nil: then it waits.
func (g *gatherer) enter(t *ticket) []*ticket {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sending < onTheWire {
		g.sending++
		return []*ticket{t}
	}
	g.waiting = append(g.waiting, t)
	return nil
}

// leave takes back a call whose context has ended, and reports whether its task
// was not sent. A turn that it was given goes to the next: nobody's task waits
// for the context of another call.
func (g *gatherer) leave(t *ticket, cfg Config) (unsent bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.waiting, t); i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
		return true
	}
	t.gone = true
	select {
	case members := <-t.turn:
		g.pass(members, cfg)
		return true
	default:
		return false
	}
}

// next ends a send and gives the turn to those who wait.
func (g *gatherer) next(cfg Config) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pass(nil, cfg)
}

// pass gives the turn to one of these calls, or, when none of them is left, to
// the first that waits, for it and for those after it that fit into one batch.
// The caller holds mu.
func (g *gatherer) pass(batch []*ticket, cfg Config) {
	batch = slices.DeleteFunc(batch, func(t *ticket) bool { return t.gone })
	if len(batch) == 0 && len(g.waiting) > 0 {
		n := g.fit(cfg)
		batch = slices.Clone(g.waiting[:n])
		g.waiting = slices.Delete(g.waiting, 0, n)
	}
	if len(batch) == 0 {
		g.sending--
		return
	}
	batch[0].turn <- batch
}

// fit is how many of those that wait go into one batch, one at least.
func (g *gatherer) fit(cfg Config) int {
	n, bytes := 0, 0
	seen := make(map[queue.TaskID]bool, min(len(g.waiting), cfg.Batch))
	for _, t := range g.waiting {
		// A second task of the same ID would be taken for a re-send of the first.
		if n == cfg.Batch || n > 0 && bytes+len(t.task.Payload) > cfg.BatchBytes || seen[t.task.ID] {
			break
		}
		seen[t.task.ID] = true
		bytes += len(t.task.Payload)
		n++
	}
	return n
}

// together sends the one task of b, with those of other calls where that saves
// time, and again alone where its first send stays without an answer.
func (p *Producer) together(ctx context.Context, b *batch) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	if ctx.Err() != nil {
		b.unsent(ctx, []int{0}, nil)
		return
	}
	t := &ticket{task: b.tasks[0], turn: make(chan []*ticket, 1), done: make(chan struct{})}
	if members := p.gather.enter(t); members != nil {
		p.lead(ctx, members)
	} else if !p.await(ctx, t, b) {
		return
	}
	b.receipts[0] = t.said
	if !retryable(t.said.Err) {
		return
	}
	doubtful := map[int]bool{0: !errors.Is(t.said.Err, queue.ErrUnavailable)}
	if p.cfg.MaxRetries == 0 || !p.wait(ctx, 0) {
		return
	}
	p.again(ctx, t.token, b, []int{0}, doubtful, 1)
}

// await waits until the task has been sent, by this call if it is given the
// turn. It is false when ctx ended before there was an answer.
func (p *Producer) await(ctx context.Context, t *ticket, b *batch) bool {
	select {
	case <-t.done:
		return true
	case members := <-t.turn:
		if ctx.Err() == nil {
			p.lead(ctx, members)
			return true
		}
		t.turn <- members
	case <-ctx.Done():
	}
	unsent := p.gather.leave(t, p.cfg)
	select {
	case <-t.done:
		return true
	default:
	}
	if unsent {
		b.unsent(ctx, []int{0}, nil)
	} else {
		b.receipts[0].Err = fmt.Errorf("%w: sent, and there was no time for the answer: %w", queue.ErrIndefinite, context.Cause(ctx))
	}
	return false
}

// lead sends the tasks of these calls, once, and answers them.
func (p *Producer) lead(ctx context.Context, members []*ticket) {
	defer p.gather.next(p.cfg)
	tasks := make([]queue.Task, len(members))
	for i, m := range members {
		tasks[i] = m.task
	}
	token := p.q.NewToken()
	for i, r := range p.send(ctx, token, tasks) {
		members[i].token, members[i].said = token, r
		close(members[i].done)
	}
}
