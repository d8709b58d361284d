package producer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/claimq/claimq/queue"
)

// batch is the tasks of one call and their answers, side by side.
type batch struct {
	tasks    []queue.Task
	receipts []queue.Receipt
}

// prepare copies the tasks and gives each its ID, once, before the first send.
func (p *Producer) prepare(tasks []queue.Task) *batch {
	b := &batch{tasks: slices.Clone(tasks), receipts: make([]queue.Receipt, len(tasks))}
	for i := range b.tasks {
		t := &b.tasks[i]
		if t.ID == "" {
			id, err := p.newID()
			if err != nil {
				b.receipts[i].Err = fmt.Errorf("%w: no entropy for a task ID: %w", queue.ErrUnavailable, err)
				continue
			}
			t.ID = id
		}
		b.receipts[i].ID = t.ID
	}
	return b
}

func (p *Producer) newID() (queue.TaskID, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id, err := uuid.NewV7FromReader(p.cfg.Entropy)
	return queue.TaskID(id.String()), err
}

// chunks cuts the tasks into runs that are sent together. A second task of the
// same ID starts a new one: under the token of the first it would be taken for
// a re-send of it and answered as added.
func (b *batch) chunks(cfg Config) [][]int {
	var all [][]int
	var run []int
	seen := map[queue.TaskID]bool{}
	bytes := 0
	for i, t := range b.tasks {
		if b.receipts[i].Err != nil {
			continue
		}
		full := len(run) == cfg.Batch || bytes+len(t.Payload) > cfg.BatchBytes || seen[t.ID]
		if full && len(run) > 0 {
			all = append(all, run)
			run, bytes = nil, 0
			clear(seen)
		}
		run = append(run, i)
		bytes += len(t.Payload)
		seen[t.ID] = true
	}
	if len(run) > 0 {
		all = append(all, run)
	}
	return all
}

// enqueue delivers the chunks in order and stops at one that stays undelivered.
func (p *Producer) enqueue(ctx context.Context, b *batch, chunks [][]int) {
	for n, c := range chunks {
		if p.deliver(ctx, b, c) {
			continue
		}
		for _, i := range slices.Concat(chunks[n+1:]...) {
			b.receipts[i].Err = fmt.Errorf("%w: not sent, because the batch before it was not delivered", queue.ErrUnavailable)
		}
		return
	}
}

// deliver sends one chunk, and again what was left of it, with one token. It
// reports whether the server answered for every task.
func (p *Producer) deliver(ctx context.Context, b *batch, open []int) bool {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	return p.again(ctx, p.q.NewToken(), b, open, map[int]bool{}, 0)
}

// again sends the open tasks, from a number of tries on. A send of those that
// are doubtful may have been applied.
func (p *Producer) again(ctx context.Context, token queue.Token, b *batch, open []int, doubtful map[int]bool, try int) bool {
	for ; ; try++ {
		if ctx.Err() != nil {
			b.unsent(ctx, open, doubtful)
			return false
		}
		open = p.attempt(ctx, token, b, open, doubtful)
		if len(open) == 0 {
			return true
		}
		if try == p.cfg.MaxRetries || !p.wait(ctx, try) {
			return false
		}
	}
}

// attempt sends the open tasks once and returns those that are still open.
func (p *Producer) attempt(ctx context.Context, token queue.Token, b *batch, open []int, doubtful map[int]bool) []int {
	tasks := make([]queue.Task, len(open))
	for n, i := range open {
		tasks[n] = b.tasks[i]
	}
	var left []int
	for n, r := range p.send(ctx, token, tasks) {
		i := open[n]
		if retryable(r.Err) {
			left = append(left, i)
			doubtful[i] = doubtful[i] || !errors.Is(r.Err, queue.ErrUnavailable)
			if doubtful[i] && !errors.Is(r.Err, queue.ErrIndefinite) {
				// This send changed nothing, but an earlier one may have.
				r.Err = fmt.Errorf("%w: an earlier send: then %w", queue.ErrIndefinite, r.Err)
			}
		}
		b.receipts[i] = r
	}
	return left
}

// retryable is queue.IsRetryable, and the end of a context in the middle of a
// send, which leaves its outcome unknown.
func retryable(err error) bool {
	return queue.IsRetryable(err) || errors.Is(err, context.Canceled)
}

// unsent answers tasks for which there was no time left.
func (b *batch) unsent(ctx context.Context, open []int, doubtful map[int]bool) {
	for _, i := range open {
		if doubtful[i] || b.receipts[i].Err != nil {
			continue // the answer of the last send says more
		}
		b.receipts[i].Err = fmt.Errorf("%w: not sent: %w", queue.ErrUnavailable, context.Cause(ctx))
	}
}

// wait sleeps before retry number try+1 and reports whether it slept to the
// end. Half of the wait is random, so that producers that lost the same server
// do not come back in step.
func (p *Producer) wait(ctx context.Context, try int) bool {
	d := min(firstWait<<min(try, 20), longestWait)
	p.mu.Lock()
	d = d/2 + time.Duration(p.jitter.Int64N(int64(d/2)+1))
	p.mu.Unlock()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
