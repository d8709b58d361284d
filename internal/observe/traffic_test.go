package observe

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"time"

	"github.com/claimq/claimq/queue"
)

// traffic is a steady stream of tasks of all sorts.
type traffic struct {
	r    *rig
	n    int  // tasks so far
	held int  // tasks that wait at the receiver
	ill  bool // some fail and some are refused for good
	stop context.CancelFunc
	over sync.WaitGroup
}

const perSecond = 50

// start begins to enqueue, and goes on until halt.
func (f *traffic) start(ill bool) {
	ctx, cancel := context.WithCancel(bg)
	f.stop, f.ill = cancel, ill
	f.over.Go(func() {
		tick := time.NewTicker(time.Second / perSecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				f.one()
			}
		}
	})
}

// halt ends it; nothing is on its way then.
func (f *traffic) halt() {
	if f.stop != nil {
		f.stop()
		f.over.Wait()
	}
}

// one enqueues the next task. Which it is follows from its number.
func (f *traffic) one() {
	f.n++
	n := f.n
	which := n % len(f.r.queues)
	kinds := [][]string{{"invoice.send", "invoice.remind", "report.build"}, {"mail.send", "mail.digest", "webhook.call"}}[which]
	task := queue.Task{Kind: kinds[n/2%len(kinds)], Payload: []byte(`"` + strings.Repeat("x", 10+n*37%900) + `"`)}
	word := "fine"
	switch {
	case f.ill && n%101 == 0:
		word = "bad"
	case f.ill && n%9 == 0:
		word, task.Kind = "fail", kinds[2]
	case n%223 == 0:
		word = "once"
	case n%23 == 0:
		task.Delay = time.Second
	case n%211 == 0:
		task.Delay = time.Hour
	}
	task.ID = queue.TaskID(fmt.Sprintf("%s-%07d", word, n))
	if n%10 == 0 {
		task.Headers = map[string]string{"traceparent": fmt.Sprintf("00-%032x-%016x-01", n, n)}
	}
	f.send(which, task)
	if n%31 == 0 {
		f.send(which, task) // a duplicate
	}
	if n%400 == 0 {
		f.refused(which)
	}
	if n%97 == 0 { // a copy, added by hand to the stream
		f.copy(which, task)
	}
}

func (f *traffic) send(which int, task queue.Task) {
	if _, err := f.r.producers[which].Enqueue(bg, task); err != nil {
		f.r.t.Errorf("enqueue %s: %v", task.ID, err)
	}
}

// refused is a mistake of a producer's own: a task of no kind.
func (f *traffic) refused(which int) {
	if _, err := f.r.producers[which].Enqueue(bg, queue.Task{}); !errors.Is(err, queue.ErrInvalidTask) {
		f.r.t.Errorf("a task of no kind: %v", err)
	}
}

func (f *traffic) copy(which int, task queue.Task) {
	q := f.r.queues[which]
	stream := q.StreamKey(q.PartitionOf(task.ID))
	values := []any{"id", string(task.ID), "kind", task.Kind, "payload", string(task.Payload)}
	if err := f.r.rdb.XAdd(bg, xadd(stream, values)).Err(); err != nil {
		f.r.t.Errorf("copy of %s: %v", task.ID, err)
	}
}

// hold enqueues tasks that occupy slots until their gate opens.
func (f *traffic) hold(count int) {
	for range count {
		f.held++
		f.send(f.held%2, queue.Task{
			ID: queue.TaskID(fmt.Sprintf("hold-%07d", f.held)), Kind: []string{"report.build", "mail.digest"}[f.held%2], Payload: []byte("1"),
		})
	}
}

// pace is how long the receiver takes for a task: mostly a few milliseconds,
// now and then close to a second.
func pace(id string) time.Duration {
	h := fnv.New32a()
	h.Write([]byte(id))
	n := time.Duration(h.Sum32() >> 4)
	if n%25 == 0 {
		return 400*time.Millisecond + n%600*time.Millisecond
	}
	return 5*time.Millisecond + n%60*time.Millisecond
}
