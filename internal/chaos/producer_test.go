package chaos

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/queue"
)

// outstanding is how many tasks may wait for their first run before the
// producer pauses, so that an outage is made up for and not piled up.
const outstanding = 2000

// ledger is the producers' own database: what was asked for, and what the
// queue acknowledged.
type ledger struct {
	p *producer.Producer
	h *history

	mu      sync.Mutex
	acked   []time.Time // when it was last added, by number of task; zero: not yet
	first   []time.Time // when it was first acknowledged
	gone    []time.Time // when it was first found to be forgotten
	sent    []time.Time // when the call was made that added it last
	unsaid  []int       // not acknowledged
	missing []string    // acknowledged, gone, and no fault to explain it
	again   int         // enqueued again
}

func id(task int) string { return fmt.Sprintf("task-%07d", task) }

func number(id string) int {
	n, err := strconv.Atoi(id[len("task-"):])
	if err != nil {
		return -1
	}
	return n
}

// produce enqueues new tasks until ctx ends. ran says how many tasks have run.
func (l *ledger) produce(ctx context.Context, perSecond int, ran func() int) {
	const every = 50 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	began, issued := time.Now(), 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		owed := min(int(time.Since(began).Seconds()*float64(perSecond))-issued, 500)
		l.mu.Lock()
		send := l.unsaid
		l.unsaid = nil
		if len(l.acked)-ran() < outstanding {
			for range owed {
				send = append(send, len(l.acked))
				l.acked, l.first = append(l.acked, time.Time{}), append(l.first, time.Time{})
				l.gone, l.sent = append(l.gone, time.Time{}), append(l.sent, time.Time{})
				issued++
			}
		}
		l.mu.Unlock()
		l.enqueue(ctx, send)
	}
}

// enqueue sends tasks by their IDs and returns how many the queue did not
// know. What is not acknowledged is kept for the next time.
func (l *ledger) enqueue(ctx context.Context, tasks []int) (added int) {
	if len(tasks) == 0 {
		return 0
	}
	batch := make([]queue.Task, len(tasks))
	for i, n := range tasks {
		batch[i] = queue.Task{ID: queue.TaskID(id(n)), Kind: "job", Payload: []byte(id(n))}
	}
	sent := time.Now()
	receipts, _ := l.p.EnqueueMany(ctx, batch) // each receipt has its own error
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, n := range tasks {
		if receipts[i].Err != nil {
			l.unsaid = append(l.unsaid, n)
			continue
		}
		if receipts[i].Added {
			added++
			l.wasKnown(n)
		}
		if receipts[i].Added || l.acked[n].IsZero() {
			l.acked[n], l.sent[n] = time.Now(), sent
			if l.first[n].IsZero() {
				l.first[n] = l.acked[n]
			}
		}
	}
	return added
}

// wasKnown looks into a task that the queue did not know: it may be new.
func (l *ledger) wasKnown(n int) {
	before := l.acked[n]
	// A fault that came between call and answer may have destroyed it too.
	written := l.sent[n]
	if before.IsZero() {
		return
	}
	if l.gone[n].IsZero() {
		l.gone[n] = time.Now()
	}
	if !l.h.forgotten(n, written) {
		l.missing = append(l.missing, fmt.Sprintf("%s was acknowledged at %s and is not known any more", id(n), before.Format(clockTime)))
	}
}

// reconcile sends again, by ID, the tasks that want it, until each is
// acknowledged, and returns how many the queue had forgotten.
func (l *ledger) reconcile(ctx context.Context, wanted func(task int) bool) int {
	const chunk = 1000
	l.mu.Lock()
	var tasks []int
	for n := range l.acked {
		if !l.acked[n].IsZero() && wanted(n) {
			tasks = append(tasks, n)
		}
	}
	l.mu.Unlock()
	added := 0
	for len(tasks) > 0 && ctx.Err() == nil {
		some := tasks[:min(chunk, len(tasks))]
		added += l.enqueue(ctx, some)
		tasks = tasks[len(some):]
	}
	l.mu.Lock()
	l.again += added
	l.mu.Unlock()
	return added
}

// flushed sends what is not acknowledged until nothing is left.
func (l *ledger) flushed(ctx context.Context) bool {
	for ctx.Err() == nil {
		l.mu.Lock()
		send := l.unsaid
		l.unsaid = nil
		l.mu.Unlock()
		if len(send) == 0 {
			return true
		}
		l.enqueue(ctx, send)
	}
	return false
}

// since returns what a fault may forget that destroys what was acknowledged
// from a moment on. One that is not acknowledged may be at any moment: the
// answer is on its way.
func (l *ledger) since(at time.Time, touched func(task int) bool) []bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	may := make([]bool, len(l.acked))
	for n, acked := range l.acked {
		may[n] = acked.IsZero() || acked.After(at) || touched(n)
	}
	return may
}

func (l *ledger) issued() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}
