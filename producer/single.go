package producer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/claimq/claimq/queue"
)

// until is a context that ends with another one or at a moment, without a
// timer: a client that looks at the deadline of a context keeps to it, and
// whoever waits for Done waits for the other one. It is for the first send of
// one task, whose waits the client bounds by itself; what comes after has a
// context with a timer.
type until struct {
	context.Context
	at time.Time
}

func (u *until) Deadline() (time.Time, bool) {
	if at, ok := u.Context.Deadline(); ok && at.Before(u.at) {
		return at, true
	}
	return u.at, true
}

func (u *until) Err() error {
	if err := u.Context.Err(); err != nil {
		return err
	}
	if !time.Now().Before(u.at) {
		return context.DeadlineExceeded
	}
	return nil
}

// single delivers one task: its first send may be together with the tasks of
// other calls; where that stays without an answer it is sent again alone.
func (p *Producer) single(ctx context.Context, task *queue.Task, began time.Time) queue.Receipt {
	if ctx.Err() != nil {
		return queue.Receipt{ID: task.ID, Err: noTime(ctx)}
	}
	by := began.Add(p.cfg.Timeout)
	var token queue.Token
	var said queue.Receipt
	if p.cfg.Batch == 1 || p.gather.alone() {
		token, said = p.alone(ctx, task, by)
	} else {
		token, said = p.together(ctx, task, by)
	}
	if token == "" || !retryable(said.Err) || p.cfg.MaxRetries == 0 {
		return said
	}
	return p.singleAgain(ctx, *task, by, token, said)
}

// singleAgain sends a task again whose first send stayed without an answer.
func (p *Producer) singleAgain(ctx context.Context, task queue.Task, by time.Time, token queue.Token, said queue.Receipt) queue.Receipt {
	ctx, cancel := context.WithDeadline(ctx, by)
	defer cancel()
	b := &batch{tasks: []queue.Task{task}, receipts: []queue.Receipt{said}}
	if !errors.Is(said.Err, queue.ErrUnavailable) {
		b.doubt(0)
	}
	if p.wait(ctx, 0) {
		p.again(ctx, token, b, []int{0}, 1)
	}
	return b.receipts[0]
}

// alone sends one task by itself.
func (p *Producer) alone(ctx context.Context, task *queue.Task, by time.Time) (queue.Token, queue.Receipt) {
	if p.cfg.Batch > 1 {
		defer p.gather.next(1, p.cfg)
	}
	c := &struct {
		until until
		tasks [1]queue.Task
	}{until{ctx, by}, [1]queue.Task{*task}}
	token := p.q.NewToken()
	return token, p.send(&c.until, token, c.tasks[:])[0]
}

// together sends one task with those of other calls. The token is empty when
// its time was over before there was an answer.
func (p *Producer) together(ctx context.Context, task *queue.Task, by time.Time) (queue.Token, queue.Receipt) {
	t := p.gather.ticket(ctx, task, by)
	if members := p.gather.enter(t, p.cfg); members != nil {
		p.lead(ctx, t, members)
	} else if err := p.await(ctx, t); err != nil {
		return "", queue.Receipt{ID: task.ID, Err: err} // t may still be sent, and is not used again
	}
	token, said := t.token, t.said
	p.gather.recycle(t)
	return token, said
}

// await waits until the task has been sent, by this call if it is given the
// turn. The error is that of a call whose time was over before there was an
// answer. It needs no timer for that: those on the wire came before, and their
// time is over before.
func (p *Producer) await(ctx context.Context, t *ticket) error {
	if done := ctx.Done(); done == nil {
		<-t.woke
	} else {
		select {
		case <-t.woke:
		case <-done:
			return p.leave(ctx, t)
		}
	}
	if t.lead == nil {
		return nil
	}
	if ctx.Err() != nil || !time.Now().Before(t.by) {
		return p.leave(ctx, t)
	}
	members := t.lead
	t.lead = nil
	p.lead(ctx, t, members)
	return nil
}

// leave ends a call whose time is over.
func (p *Producer) leave(ctx context.Context, t *ticket) error {
	if p.gather.leave(t, p.cfg) {
		return noTime(&until{ctx, t.by})
	}
	select {
	case <-t.woke: // the answer has come meanwhile
		return nil
	default:
		return fmt.Errorf("%w: sent, and there was no time for the answer: %w", queue.ErrIndefinite, context.Cause(ctx))
	}
}

// lead sends the tasks of these calls, once, and answers all but its own.
func (p *Producer) lead(ctx context.Context, own *ticket, members []*ticket) {
	var token queue.Token
	var receipts []queue.Receipt
	defer func() {
		p.gather.next(len(members), p.cfg) // first: the server is waiting
		for i, m := range members {
			if m.token = token; receipts == nil { // a hook of the client has panicked
				m.said = queue.Receipt{ID: m.task.ID, Err: fmt.Errorf("%w: the call that sent it panicked", queue.ErrIndefinite)}
			} else {
				m.said = receipts[i]
			}
			if m != own {
				m.woke <- struct{}{}
			}
		}
	}()
	token = p.q.NewToken()
	// The first of them came first, and its time is over first: nobody's is overrun.
	limit := &until{ctx, own.by}
	if by := members[0].by; by.Before(own.by) && time.Now().Before(by) {
		limit.at = by
	}
	receipts = p.gather.together(members, func(tasks []queue.Task) []queue.Receipt { return p.send(limit, token, tasks) })
}

func noTime(ctx context.Context) error {
	return fmt.Errorf("%w: not sent: %w", queue.ErrUnavailable, context.Cause(ctx))
}
