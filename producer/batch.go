package producer

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/claimq/claimq/queue"
)

// batch is the tasks of one call and their answers, side by side.
type batch struct {
	tasks    []queue.Task
	receipts []queue.Receipt
	doubtful map[int]bool // tasks of which an earlier send may have been applied
}

// prepare gives each task its ID, once, before the first send. The tasks are
// copied if one has none.
func (p *Producer) prepare(tasks []queue.Task) *batch {
	b := &batch{tasks: tasks, receipts: make([]queue.Receipt, len(tasks))}
	copied := false
	for i := range b.tasks {
		if b.tasks[i].ID == "" {
			if !copied {
				b.tasks, copied = slices.Clone(tasks), true
			}
			if b.tasks[i].ID, b.receipts[i].Err = p.newID(); b.receipts[i].Err != nil {
				continue
			}
		}
		b.receipts[i].ID = b.tasks[i].ID
	}
	return b
}

func (p *Producer) newID() (queue.TaskID, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id, err := uuid.NewV7FromReader(p.cfg.Entropy)
	if err != nil {
		return "", fmt.Errorf("%w: no entropy for a task ID: %w", queue.ErrUnavailable, err)
	}
	return queue.TaskID(id.String()), nil
}

// chunks cuts the tasks into runs that are sent together. A second task of the
// same ID starts a new one: under the token of the first it would be taken for
// a re-send of it and answered as added.
func (b *batch) chunks(cfg Config, seed maphash.Seed) [][]int {
	var all [][]int
	index := make([]int, 0, len(b.tasks)) // all runs, one after the other
	from, bytes := 0, 0
	var seen idSet
	for i := range b.tasks {
		t := &b.tasks[i]
		if b.receipts[i].Err != nil {
			continue
		}
		n := len(index) - from
		twice := seen.add(maphash.String(seed, string(t.ID))) && slices.ContainsFunc(index[from:], func(j int) bool { return b.tasks[j].ID == t.ID })
		if n == cfg.Batch || n > 0 && bytes+len(t.Payload) > cfg.BatchBytes || twice {
			all = append(all, index[from:])
			from, bytes = len(index), 0
			seen = idSet{}
			seen.add(maphash.String(seed, string(t.ID)))
		}
		index = append(index, i)
		bytes += len(t.Payload)
	}
	if from < len(index) {
		all = append(all, index[from:])
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
	return p.again(ctx, p.q.NewToken(), b, open, 0)
}

// again sends the open tasks, from a number of tries on.
func (p *Producer) again(ctx context.Context, token queue.Token, b *batch, open []int, try int) bool {
	for ; ; try++ {
		if ctx.Err() != nil {
			b.unsent(ctx, open)
			return false
		}
		open = p.attempt(ctx, token, b, open)
		if len(open) == 0 {
			return true
		}
		if try == p.cfg.MaxRetries || !p.wait(ctx, try) {
			return false
		}
	}
}

// attempt sends the open tasks once and returns those that are still open.
func (p *Producer) attempt(ctx context.Context, token queue.Token, b *batch, open []int) []int {
	var left []int
	for n, r := range p.send(ctx, token, b.pick(open)) {
		i := open[n]
		if retryable(r.Err) {
			left = append(left, i)
			if !errors.Is(r.Err, queue.ErrUnavailable) {
				b.doubt(i)
			}
			if b.doubtful[i] && !errors.Is(r.Err, queue.ErrIndefinite) {
				// This send changed nothing, but an earlier one may have.
				r.Err = fmt.Errorf("%w: an earlier send: then %w", queue.ErrIndefinite, r.Err)
			}
		}
		b.receipts[i] = r
	}
	return left
}

// pick returns the tasks with these indexes, without a copy where they are
// neighbours.
func (b *batch) pick(open []int) []queue.Task {
	first, last := open[0], open[len(open)-1]
	if last-first == len(open)-1 {
		return b.tasks[first : last+1]
	}
	tasks := make([]queue.Task, len(open))
	for n, i := range open {
		tasks[n] = b.tasks[i]
	}
	return tasks
}

// doubt notes that a send of a task may have been applied.
func (b *batch) doubt(i int) {
	if b.doubtful == nil {
		b.doubtful = map[int]bool{}
	}
	b.doubtful[i] = true
}

// retryable is queue.IsRetryable, and the end of a context in the middle of a
// send, which leaves its outcome unknown.
func retryable(err error) bool {
	return err != nil && (queue.IsRetryable(err) || errors.Is(err, context.Canceled))
}

// unsent answers tasks for which there was no time left.
func (b *batch) unsent(ctx context.Context, open []int) {
	for _, i := range open {
		if b.doubtful[i] || b.receipts[i].Err != nil {
			continue // the answer of the last send says more
		}
		b.receipts[i].Err = noTime(ctx)
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
