package main

import (
	"context"
	"errors"
	"time"

	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/queue"
)

// linger is how long a batch that is not full waits for the next line, so that
// a slow pipe is passed on as it comes.
const linger = 20 * time.Millisecond

// publisher moves tasks from the source to the queue, batch by batch.
type publisher struct {
	producer   *producer.Producer
	in         *source
	report     *report
	shown      *progress
	batch      int
	batchBytes int

	held  []item // read and not yet sent
	bytes int
}

// run publishes until the source ends, stop ends, or a batch could not be
// delivered: those after it would only fail in turn.
func (p *publisher) run(stop, abort context.Context) {
	feeding, cancel := context.WithCancel(stop)
	defer cancel()
	items := make(chan item)
	go p.in.feed(feeding, items)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	defer p.shown.finish()
	idle := time.NewTimer(linger)
	defer idle.Stop()
	for stop.Err() == nil {
		select {
		case it, ok := <-items:
			if !ok {
				p.flush(abort)
				p.report.Stopped = p.report.Stopped || stop.Err() != nil
				return
			}
			if !p.take(abort, it) {
				return
			}
			idle.Reset(linger)
		case <-idle.C:
			if !p.flush(abort) {
				return
			}
		case <-tick.C:
			p.shown.tick(p.report)
		case <-stop.Done():
		}
	}
	// What was read and not sent is left: the next run reads it again.
	p.report.Stopped = true
}

// take holds one item, sends the batch when it is full, and reports whether to
// go on.
func (p *publisher) take(ctx context.Context, it item) bool {
	p.report.Lines = it.line
	switch {
	case it.err != nil:
		p.flush(ctx)
		p.report.ReadError = it.err.Error()
		p.shown.problem(p.report, it.line, it.err)
		return false
	case it.bad != nil:
		p.report.Bad++
		p.shown.problem(p.report, it.line, it.bad)
		p.shown.advance(p.report, it.end)
		return true
	}
	if len(p.held) > 0 && p.bytes+len(it.task.Payload) > p.batchBytes {
		if !p.flush(ctx) {
			return false
		}
	}
	p.held = append(p.held, it)
	p.bytes += len(it.task.Payload)
	if it.task.ID == "" && it.line > 0 {
		p.report.NoID++
	}
	return len(p.held) < p.batch || p.flush(ctx)
}

// flush sends what is held and reports whether it was delivered.
func (p *publisher) flush(ctx context.Context) bool {
	if len(p.held) == 0 {
		return true
	}
	tasks := make([]queue.Task, len(p.held))
	for i, it := range p.held {
		tasks[i] = it.task
	}
	receipts, _ := p.producer.EnqueueMany(ctx, tasks)
	delivered := true
	for i, r := range receipts {
		p.report.count(r)
		if r.Err != nil {
			p.shown.problem(p.report, p.held[i].line, r.Err)
		}
		if errors.Is(r.Err, queue.ErrIndefinite) || errors.Is(r.Err, queue.ErrUnavailable) {
			delivered = false
		}
	}
	if p.report.single {
		p.report.ID, p.report.Place = string(receipts[0].ID), string(receipts[0].Place)
	}
	p.shown.advance(p.report, p.held[len(p.held)-1].end)
	p.held, p.bytes = p.held[:0], 0
	p.report.Stopped = p.report.Stopped || !delivered && !p.report.single
	return delivered
}
