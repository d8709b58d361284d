package killpoints

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/claimq/claimq/queue"
)

// queueLane is one queue.
type queueLane struct {
	r    *rig
	q    *queue.Queue
	plan plan
}

func (r *rig) open(name string) (*queueLane, error) {
	rdb := r.srv.Client()
	q, err := openQueue(name, r.base.Prefix, rdb, nil)
	if err != nil {
		return nil, err
	}
	l := &queueLane{r: r, q: q, plan: r.base}
	l.plan.Queue = name
	return l, q.Ensure(context.Background())
}

// add enqueues the tasks of one worker.
func (l *queueLane) add(n int) {
	var tasks []queue.Task
	for _, kind := range []string{kindTx, kindStep} {
		for i := range ofEachKind {
			tasks = append(tasks, queue.Task{ID: queue.TaskID(fmt.Sprintf("%s-%s-%d-%d", l.q.Name(), kind, n, i)), Kind: kind})
		}
	}
	for i, receipt := range l.q.Enqueue(context.Background(), l.q.NewToken(), tasks) {
		if receipt.Err != nil || !receipt.Added {
			l.r.t.Errorf("%s: %+v", tasks[i].ID, receipt)
		}
		l.r.mu.Lock()
		l.r.tasks = append(l.r.tasks, tasks[i].Kind+" "+string(tasks[i].ID))
		l.r.mu.Unlock()
	}
}

// killOne runs one worker to its death: at its point, or when its life is over.
func (l *queueLane) killOne(p plan, life time.Duration) error {
	w, err := l.r.start(p)
	if err != nil {
		return err
	}
	select {
	case <-w.out.up:
	case <-w.exited:
	}
	over := time.NewTimer(life)
	defer over.Stop()
	select {
	case <-w.exited:
	case <-over.C:
	}
	w.kill()
	where := elsewhere
	if died := w.out.said("died"); len(died) > 0 {
		where = died[0]
	} else if state, ok := w.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !state.Signaled() {
		return fmt.Errorf("the worker was not killed: %v\n%s", w.cmd.ProcessState, w.out.text.String())
	}
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	l.r.died[where]++
	return nil
}

// drained waits until no task of the queue is left to do.
func (l *queueLane) drained(w *process, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		s, err := l.q.Stats(ctx)
		switch {
		case err != nil:
			return err
		case s.Unfinished() == 0 && s.Dead == 0:
			return nil
		case s.Dead > 0:
			return fmt.Errorf("queue %s: %d dead letters", l.q.Name(), s.Dead)
		}
		select {
		case <-tick.C:
		case <-w.exited:
			return fmt.Errorf("queue %s: the last worker ended: %s", l.q.Name(), w.out.text.String())
		case <-ctx.Done():
			return fmt.Errorf("queue %s: not finished within %v: %+v", l.q.Name(), limit, s.PartitionStats)
		}
	}
}
