package queue_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/claimq/claimq/internal/faultredis"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/queue"
)

// leaseOp is one call that concerns the lease of one task.
type leaseOp struct {
	do    string // acquire, renew, complete, release or expire
	task  queue.TaskID
	token queue.Token
	entry queue.EntryID // of acquire
	fence queue.Fence   // of complete and release
}

// leaseAnswer is what the caller was told.
type leaseAnswer struct {
	what  string      // granted, busy, copy, ok or lost; "" when the reply was lost
	fence queue.Fence // when granted
}

// leaseState is the lease of a task as I2 to I5 say that it is.
type leaseState struct {
	holder  queue.Token
	fence   queue.Fence
	guessed bool // the reply of the grant was lost: its fence is greater than fence
	live    bool
	entry   queue.EntryID // that it was granted for
	settler queue.Token   // who settled last
	done    bool
}

// step gives the states in which the lease may be once the call has taken
// effect with this answer; none when there is no such state.
func (s leaseState) step(op leaseOp, a leaseAnswer) []leaseState {
	switch op.do {
	case "acquire":
		return s.acquire(op, a)
	case "renew":
		if live := s.holder == op.token && s.live; a.what == "" || (a.what == "ok") == live {
			return []leaseState{s}
		}
	case "expire": // what time does; here by an order to the server
		if s.holder == op.token {
			s.live = false
		}
		return []leaseState{s}
	case "complete", "release":
		return s.settle(op, a)
	}
	return nil
}

func (s leaseState) acquire(op leaseOp, a leaseAnswer) (out []leaseState) {
	again := s.holder == op.token && s.live
	free := !s.done && (s.holder == "" || !s.live)
	switch a.what {
	case "granted":
		if again && (a.fence == s.fence && !s.guessed || a.fence > s.fence && s.guessed) || free && a.fence > s.fence {
			s.holder, s.fence, s.guessed, s.live, s.entry = op.token, a.fence, false, true, op.entry
			return []leaseState{s}
		}
	case "busy":
		if s.holder != "" && s.live && !again {
			return []leaseState{s}
		}
	case "copy":
		if s.done || s.entry != op.entry {
			return []leaseState{s}
		}
	case "":
		out = append(out, s)
		if free {
			s.holder, s.guessed, s.live, s.entry = op.token, true, true, op.entry
			out = append(out, s)
		}
	}
	return out
}

func (s leaseState) settle(op leaseOp, a leaseAnswer) (out []leaseState) {
	holds := s.holder == op.token && !s.guessed && s.fence == op.fence
	before := s.settler == op.token
	if a.what == "lost" || a.what == "" {
		if a.what == "" || !holds && !before {
			out = append(out, s)
		}
	}
	if a.what == "ok" && before && !holds {
		out = append(out, s)
	}
	if (a.what == "ok" || a.what == "") && holds {
		s.holder, s.live, s.entry, s.settler, s.done = "", false, "", op.token, op.do == "complete"
		out = append(out, s)
	}
	return out
}

// leaseModel is the lease of each task, apart from the others.
func leaseModel() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []interface{} { return []interface{}{leaseState{}} },
		Step: func(state, in, out interface{}) (next []interface{}) {
			for _, s := range state.(leaseState).step(in.(leaseOp), out.(leaseAnswer)) {
				next = append(next, s)
			}
			return next
		},
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byTask := map[queue.TaskID][]porcupine.Operation{}
			for _, op := range history {
				id := op.Input.(leaseOp).task
				byTask[id] = append(byTask[id], op)
			}
			var parts [][]porcupine.Operation
			for _, ops := range byTask {
				parts = append(parts, ops)
			}
			return parts
		},
		DescribeOperation: func(in, out interface{}) string { return fmt.Sprintf("%+v: %+v", in, out) },
	}
	return m.ToModel()
}

// history is what several clients asked and were told, by one clock of theirs.
type history struct {
	clock atomic.Int64
	mu    sync.Mutex
	ops   []porcupine.Operation
}

// record runs a call. One whose reply was lost has no end: it may take effect
// at any time after it was made, or never.
func (h *history) record(client int, op leaseOp, call func() leaseAnswer) leaseAnswer {
	began := h.clock.Add(1)
	got := call()
	ended := h.clock.Add(1)
	if got.what == "" {
		ended = math.MaxInt64
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: op, Call: began, Output: got, Return: ended})
	return got
}

// TestLeaseHistory records what real clients that are at odds over a few tasks
// are told by a real server, some of their replies lost, and has it checked for
// linearizability against leaseState.
func TestLeaseHistory(t *testing.T) {
	rounds := 30
	total, open := 0, 0
	verbs := map[string]int{}
	for round := range rounds {
		h := &history{}
		r := newRig(t, func(c *queue.Config) { c.Lease = 30 * time.Minute })
		r.add(tasksNamed("a", "b")...)
		var wg sync.WaitGroup
		for n := range 4 {
			c := newClaimant(t, r, h, n, uint64(round))
			wg.Go(c.work)
		}
		wg.Wait()
		for _, op := range h.ops {
			verbs[op.Input.(leaseOp).do+" "+op.Output.(leaseAnswer).what]++
			if op.Return == math.MaxInt64 {
				open++
			}
		}
		total += len(h.ops)
		res, info := porcupine.CheckOperationsVerbose(leaseModel(), h.ops, time.Minute)
		if res != porcupine.Ok {
			for _, op := range h.ops {
				t.Logf("%d..%d client %d %+v: %+v", op.Call, op.Return, op.ClientId, op.Input, op.Output)
			}
			t.Fatalf("round %d: %s; the longest part that can be explained: %v", round, res, info.PartialLinearizations())
		}
	}
	t.Logf("%d calls, %d of them without an answer: %v", total, open, verbs)
	for _, must := range []string{"acquire granted", "acquire busy", "acquire ", "renew ok", "renew lost", "complete ok", "complete lost", "release ok", "expire ok"} {
		if verbs[must] == 0 {
			t.Errorf("nothing in the histories is %q: they prove little", must)
		}
	}
}

// claimant is one client of the server.
type claimant struct {
	*rig
	h      *history
	n      int
	name   string
	rnd    *rand.Rand
	hook   *faultredis.Hook
	held   []queue.Lease // also what it has lost meanwhile
	budget int           // calls that may still fail
}

func newClaimant(t *testing.T, r *rig, h *history, n int, seed uint64) *claimant {
	c := redistest.Shared(t).Client()
	hook := faultredis.New(c)
	mine := &rig{t: t, c: r.c, prefix: r.prefix, q: newQueue(t, queue.Config{Name: "q", Client: c, Prefix: r.prefix, Lease: 30 * time.Minute})}
	return &claimant{rig: mine, h: h, n: n, name: fmt.Sprint("w", n), hook: hook, rnd: rand.New(rand.NewPCG(seed, uint64(n))), budget: 3}
}

// lose makes some of the calls fail that come next. Few do: each is one that
// may take effect at any later time, and the checker tries them all.
func (c *claimant) lose() {
	c.hook.Clear()
	if c.budget == 0 || c.rnd.IntN(8) > 0 {
		return
	}
	c.budget--
	fault := faultredis.LoseReply
	if c.rnd.IntN(2) == 0 {
		fault = faultredis.FailBefore
	}
	c.hook.Inject(fault(faultredis.Mentions(c.prefix)).Once())
}

func (c *claimant) work() {
	for range 40 {
		switch n := c.rnd.IntN(10); {
		case n < 4 || len(c.held) == 0:
			c.acquire()
		case n < 6:
			c.renew(c.any())
		case n < 8:
			c.expire(c.any())
		case n < 9:
			c.settle(c.any(), "release", c.q.Release)
		default:
			if c.rnd.IntN(4) == 0 {
				c.settle(c.any(), "complete", c.q.Complete)
			}
		}
	}
}

func (c *claimant) any() queue.Lease { return c.held[c.rnd.IntN(len(c.held))] }

// acquire reads or takes over entries, and asks for a lease on each. A lost
// reply is now and then asked again, at once.
func (c *claimant) acquire() {
	es, err := queue.Read(bg, queue.ReadRequest{Queues: []*queue.Queue{c.q}, Consumer: c.name, Max: 1})
	if err != nil {
		c.t.Error(err)
	}
	taken, err := c.q.Reclaim(bg, queue.ReclaimRequest{Consumer: c.name, Max: 2})
	if err != nil {
		c.t.Error(err)
	}
	for _, e := range append(es, taken.Entries...) {
		token := c.q.NewToken()
		c.lose()
		if got := c.begin(e, token); got.what == "" && c.rnd.IntN(2) == 0 {
			c.begin(e, token)
		}
	}
}

func (c *claimant) begin(e queue.Entry, token queue.Token) leaseAnswer {
	id := queue.TaskID(e.Fields[slices.Index(e.Fields, "id")+1])
	return c.h.record(c.n, leaseOp{do: "acquire", task: id, token: token, entry: e.ID}, func() leaseAnswer {
		b, err := c.q.Begin(bg, queue.BeginRequest{Token: token, Entries: []queue.Entry{e}, Start: 1})
		switch {
		case err != nil:
			return leaseAnswer{}
		case len(b.Deliveries) == 1:
			c.held = append(c.held, b.Deliveries[0].Lease)
			return leaseAnswer{what: "granted", fence: b.Deliveries[0].Lease.Fence}
		case len(b.Busy) == 1:
			return leaseAnswer{what: "busy"}
		}
		return leaseAnswer{what: "copy"}
	})
}

func (c *claimant) renew(l queue.Lease) {
	c.lose()
	c.h.record(c.n, leaseOp{do: "renew", task: l.TaskID, token: l.Grant.Token}, func() leaseAnswer {
		return told(c.q.Renew(bg, []queue.Grant{l.Grant})[0].Err)
	})
}

func told(err error) leaseAnswer {
	switch {
	case err == nil:
		return leaseAnswer{what: "ok"}
	case queue.IsRetryable(err):
		return leaseAnswer{}
	}
	return leaseAnswer{what: "lost"}
}

// expire is what time does to a lease, at a moment that the history knows.
func (c *claimant) expire(l queue.Lease) {
	c.h.record(c.n, leaseOp{do: "expire", task: l.TaskID, token: l.Grant.Token}, func() leaseAnswer {
		z := c.c.Do(bg, "ZADD", c.key(0, "leases"), "XX", time.Now().Add(-time.Minute).UnixMilli(), string(l.Grant.Token))
		if z.Err() != nil {
			c.t.Error(z.Err())
		}
		return leaseAnswer{what: "ok"}
	})
}

func (c *claimant) settle(l queue.Lease, do string, verb settlingVerb) {
	op := leaseOp{do: do, task: l.TaskID, token: l.Grant.Token, fence: l.Fence}
	c.lose()
	for range 2 {
		got := c.h.record(c.n, op, func() leaseAnswer {
			s := verb(bg, []queue.Settlement{{Lease: l, EndsGrant: true}})[0]
			switch {
			case s.Err != nil:
				return leaseAnswer{}
			case s.Outcome == queue.Lost:
				return leaseAnswer{what: "lost"}
			}
			return leaseAnswer{what: "ok"}
		})
		if got.what != "" || c.rnd.IntN(2) == 0 {
			break
		}
	}
}

// TestLeaseHistoryChecker: histories that must not be, and their like that may.
func TestLeaseHistoryChecker(t *testing.T) {
	op := func(do string, token queue.Token, a string, fence queue.Fence) porcupine.Operation {
		in := leaseOp{do: do, task: "a", token: token, entry: "1-1"}
		if do == "complete" || do == "release" {
			in.fence = fence
		}
		return porcupine.Operation{Input: in, Output: leaseAnswer{what: a, fence: fence}}
	}
	for _, tt := range []struct {
		name string
		ok   bool
		ops  []porcupine.Operation
	}{
		{"one after the other", true, []porcupine.Operation{op("acquire", "A", "granted", 1), op("renew", "A", "ok", 0), op("complete", "A", "ok", 1)}},
		{"taken over", true, []porcupine.Operation{op("acquire", "A", "granted", 1), op("expire", "A", "ok", 0), op("acquire", "B", "granted", 2), op("complete", "A", "lost", 1), op("complete", "B", "ok", 2)}},
		{"settled late, untaken", true, []porcupine.Operation{op("acquire", "A", "granted", 1), op("expire", "A", "ok", 0), op("complete", "A", "ok", 1)}},
		{"a lost reply that was applied", true, []porcupine.Operation{op("acquire", "A", "", 0), op("acquire", "B", "busy", 0), op("acquire", "A", "granted", 1)}},
		{"a lost reply that was not", true, []porcupine.Operation{op("acquire", "A", "", 0), op("acquire", "B", "granted", 1)}},

		{"I2: two holders", false, []porcupine.Operation{op("acquire", "A", "granted", 1), op("acquire", "B", "granted", 2)}},
		{"I3: the fence stays", false, []porcupine.Operation{op("acquire", "A", "granted", 2), op("expire", "A", "ok", 0), op("acquire", "B", "granted", 2)}},
		{"I4: a replaced holder settles", false, []porcupine.Operation{op("acquire", "A", "granted", 1), op("expire", "A", "ok", 0), op("acquire", "B", "granted", 2), op("complete", "A", "ok", 1)}},
		{"I4: the holder is refused", false, []porcupine.Operation{op("acquire", "A", "granted", 1), op("complete", "A", "lost", 1)}},
		{"a lease that had ended is renewed", false, []porcupine.Operation{op("acquire", "A", "granted", 1), op("expire", "A", "ok", 0), op("renew", "A", "ok", 0)}},
		{"I5: what is done is granted", false, []porcupine.Operation{op("acquire", "A", "granted", 1), op("complete", "A", "ok", 1), op("acquire", "B", "granted", 2)}},
		{"a live lease is reported lost", false, []porcupine.Operation{op("acquire", "A", "granted", 1), op("renew", "A", "lost", 0)}},
		{"I7: the second ask has another fence", false, []porcupine.Operation{op("acquire", "A", "granted", 1), op("acquire", "A", "granted", 2)}},
		{"dropped as a copy of itself", false, []porcupine.Operation{op("acquire", "A", "granted", 1), op("release", "A", "lost", 2), op("acquire", "B", "copy", 0)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for i := range tt.ops {
				tt.ops[i].Call, tt.ops[i].Return = int64(2*i), int64(2*i+1)
				if tt.ops[i].Output.(leaseAnswer).what == "" {
					tt.ops[i].Return = math.MaxInt64
				}
			}
			if got := porcupine.CheckOperations(leaseModel(), tt.ops); got != tt.ok {
				t.Errorf("accepted: %v, want %v", got, tt.ok)
			}
		})
	}
}
