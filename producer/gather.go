package producer

import (
	"context"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/claimq/claimq/queue"
)

// onTheWire is how many sends of single tasks are under way at once.
const onTheWire = 2

// gatherer makes batches of single tasks. A call that finds nothing on the wire
// goes at once. Calls that come while others are on the wire gather; they go out
// together as soon as they are as many as are under way, or when those are
// answered, whichever comes first. So a lone call waits for nothing, a busy
// producer keeps two sends of about the same size on the wire, one at the server
// while the callers of the other come back, and there is no timer.
//
// It starts no goroutine: the call that makes the number full sends for all, or,
// when an answer makes room, the first of those that wait.
type gatherer struct {
	seed maphash.Seed
	free sync.Pool // of *ticket
	room sync.Pool // of *[]queue.Task, for those that are sent together

	mu      sync.Mutex
	sending int       // sends that are under way, or whose turn is given
	tasks   int       // that are in them
	waiting []*ticket // in the order of the calls; only while sending > 0
}

// ticket is one call of Enqueue that could not go at once.
type ticket struct {
	task queue.Task
	hash uint64        // of its ID
	by   time.Time     // when its time is over
	woke chan struct{} // holds one: the turn was given, or the answer is there

	lead []*ticket // the turn: the calls to send for, itself the first; guarded by gatherer.mu
	gone bool      // its context has ended; guarded by gatherer.mu

	token queue.Token   // under which it was sent; read after it woke without the turn
	said  queue.Receipt // the answer; likewise
}

// ticket returns one for a task. The task of a call that may leave before its
// send is over is copied: what the caller does with it then is its own affair.
func (g *gatherer) ticket(ctx context.Context, task *queue.Task, by time.Time) *ticket {
	t, _ := g.free.Get().(*ticket)
	if t == nil {
		t = &ticket{woke: make(chan struct{}, 1)}
	}
	t.task, t.hash, t.by = *task, maphash.String(g.seed, string(task.ID)), by
	if ctx.Done() != nil {
		t.task.Payload, t.task.Headers = slices.Clone(task.Payload), maps.Clone(task.Headers)
	}
	return t
}

// recycle takes back a ticket to which nobody else has a reference any more.
func (g *gatherer) recycle(t *ticket) {
	*t = ticket{woke: t.woke}
	g.free.Put(t)
}

// together sends the tasks of these calls with one send.
func (g *gatherer) together(members []*ticket, send func([]queue.Task) []queue.Receipt) []queue.Receipt {
	room, _ := g.room.Get().(*[]queue.Task)
	if room == nil {
		room = new([]queue.Task)
	}
	tasks := (*room)[:0]
	for _, m := range members {
		tasks = append(tasks, m.task)
	}
	receipts := send(tasks)
	clear(tasks)
	*room = tasks
	g.room.Put(room)
	return receipts
}

// alone reports whether a call may go at once by itself: nothing is on the wire.
func (g *gatherer) alone() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sending > 0 {
		return false
	}
	g.sending, g.tasks = 1, 1
	return true
}

// enter lets a call wait, or returns the calls, itself among them, that it is to
// send now.
func (g *gatherer) enter(t *ticket, cfg Config) []*ticket {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = append(g.waiting, t)
	members := g.take(cfg)
	if len(members) == 0 || members[len(members)-1] == t {
		return members
	}
	g.give(members)
	return nil
}

// leave takes back a call whose context has ended, and reports whether its task
// was not sent. A turn that it was given goes to the next: nobody's task waits
// for the context of another call.
func (g *gatherer) leave(t *ticket, cfg Config) (unsent bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t.gone = true
	if i := slices.Index(g.waiting, t); i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
		return true
	}
	if t.lead == nil {
		return false
	}
	members := slices.DeleteFunc(t.lead, func(t *ticket) bool { return t.gone })
	g.tasks -= len(t.lead) - len(members)
	if t.lead = nil; len(members) > 0 {
		g.give(members)
		return true
	}
	g.end(0, cfg)
	return true
}

// next ends a send of n tasks and gives the turn to those who wait.
func (g *gatherer) next(n int, cfg Config) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.end(n, cfg)
}

func (g *gatherer) end(n int, cfg Config) {
	g.sending--
	g.tasks -= n
	if members := g.take(cfg); len(members) > 0 {
		g.give(members)
	}
}

func (g *gatherer) give(members []*ticket) {
	members[0].lead = members
	members[0].woke <- struct{}{}
}

// take takes the calls that go out now, if it is time for that: the first of
// those that wait, as many as fit into one batch.
func (g *gatherer) take(cfg Config) []*ticket {
	if len(g.waiting) == 0 || g.sending == onTheWire || g.sending > 0 && len(g.waiting) < min(g.tasks, cfg.Batch) {
		return nil
	}
	n := g.fit(cfg)
	members := slices.Clone(g.waiting[:n])
	g.waiting = slices.Delete(g.waiting, 0, n)
	g.sending++
	g.tasks += n
	return members
}

// fit is how many of those that wait go into one batch, one at least.
func (g *gatherer) fit(cfg Config) int {
	n, bytes := 0, 0
	var seen idSet
	for _, t := range g.waiting {
		// A second task of the same ID would be taken for a re-send of the first.
		if n == cfg.Batch || n > 0 && bytes+len(t.task.Payload) > cfg.BatchBytes ||
			seen.add(t.hash) && slices.ContainsFunc(g.waiting[:n], func(u *ticket) bool { return u.task.ID == t.task.ID }) {
			break
		}
		bytes += len(t.task.Payload)
		n++
	}
	return n
}

// idSet says of most IDs, by their hashes, that they are new in a batch.
type idSet [64]uint64

// add reports whether the ID may have been added before.
func (s *idSet) add(hash uint64) bool {
	word, bit := &s[hash>>6%uint64(len(s))], uint64(1)<<(hash%64)
	was := *word&bit != 0
	*word |= bit
	return was
}
