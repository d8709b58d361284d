package leasetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/claimq/claimq/lease"
)

const (
	historyClients = 4
	historyNames   = 2
	historyGrants  = 12 // to each client
	historyRounds  = 3
	historyLength  = 400 * time.Millisecond
)

// history records what clients that are at odds over a few names are told,
// while some are paused past their lease and some leases are ended by order,
// and has it checked against model: at no moment two trust a lease on one name.
func history(t *testing.T, s Subject) {
	seen := map[string]int{}
	for round := range historyRounds {
		h := &log{epoch: time.Now()}
		granted := newSignals(fmt.Sprintf("%d-", round))
		var all sync.WaitGroup
		for n := range historyClients {
			c := &client{t: t, s: s, h: h, n: n, store: s.Open(), granted: granted,
				rnd: rand.New(rand.NewPCG(uint64(round), uint64(n)))}
			all.Go(c.work)
		}
		all.Wait()
		for _, each := range h.ops {
			seen[each.Input.(op).do+" "+each.Output.(answer).what]++
		}
		res, info := porcupine.CheckOperationsVerbose(model(s.Promises), h.ops, time.Minute)
		if res != porcupine.Ok {
			for _, each := range h.ops {
				t.Logf("%d..%d client %d %+v: %+v", each.Call, each.Return, each.ClientId, each.Input, each.Output)
			}
			t.Fatalf("round %d: %s; the longest part that can be explained: %v", round, res, info.PartialLinearizations())
		}
	}
	t.Logf("%v", seen)
	must := []string{"acquire granted", "acquire held", "extend ok", "extend lost", "release ok", "release lost", "end "}
	if s.Expires {
		must = append(must, "lapse ")
	}
	for _, what := range must {
		if seen[what] == 0 {
			t.Errorf("nothing in the histories is %q: they prove little", what)
		}
	}
}

// client is one process that asks for leases.
type client struct {
	t       *testing.T
	s       Subject
	h       *log
	n       int
	store   lease.Store
	granted *signals
	rnd     *rand.Rand
	tokens  int
}

func (c *client) work() {
	for grants := 0; grants < historyGrants && !c.t.Failed(); {
		name := c.granted.names[c.rnd.IntN(historyNames)]
		c.tokens++
		token := lease.Token(fmt.Sprintf("token%03d%08d", c.n, c.tokens))
		l, ok := c.acquire(name, token)
		if !ok {
			c.linger(20 * time.Millisecond)
			continue
		}
		grants++
		for range c.rnd.IntN(3) {
			c.linger(10 * time.Millisecond)
			l = c.extend(l)
		}
		switch n := c.rnd.IntN(8); {
		case n == 0 && c.s.Expires && c.granted.pausing.TryLock():
			c.pause(l)
			c.granted.pausing.Unlock()
		case n == 1:
			c.h.call(c.n, op{do: "end", name: name}, func() answer { c.s.End(name); return answer{} })
			c.extend(l)
			c.release(l)
		default:
			c.release(l)
		}
	}
}

// linger lets others have a go.
func (c *client) linger(most time.Duration) {
	passed(c.t, time.Now().Add(time.Duration(c.rnd.Int64N(int64(most)))))
}

func (c *client) acquire(name string, token lease.Token) (l lease.Lease, ok bool) {
	c.h.call(c.n, op{do: "acquire", name: name, token: token}, func() answer {
		var err error
		l, err = c.store.Acquire(c.t.Context(), lease.Request{Name: name, Token: token, Length: historyLength})
		switch {
		case err == nil:
			ok = true
			c.granted.signal(name)
			return answer{what: "granted", fence: l.Fence}
		case !errors.Is(err, lease.ErrHeld) && !c.failed(err):
			c.t.Error(err)
		}
		return answer{what: "held"}
	})
	return l, ok
}

func (c *client) extend(l lease.Lease) lease.Lease {
	c.h.call(c.n, op{do: "extend", name: l.Name, token: l.Token}, func() answer {
		next, err := c.store.Extend(c.t.Context(), l)
		if err == nil {
			l = next
		}
		return c.told(err)
	})
	return l
}

// release gives a lease back. If that is late, the lease may have ended before;
// if it fails, the lease may end at any time from then on.
func (c *client) release(l lease.Lease) {
	began := time.Now()
	got := c.h.call(c.n, op{do: "release", name: l.Name, token: l.Token}, func() answer {
		return c.told(c.store.Release(c.t.Context(), l))
	})
	if got.what == "failed" {
		l.TrustedUntil = began
	}
	if !l.Trusted(time.Now()) {
		c.h.lapse(c.n, l)
	}
}

// pause shows no sign of life until somebody else was given the name, or for
// two lengths, and then goes on as if nothing had been.
func (c *client) pause(l lease.Lease) {
	c.h.lapse(c.n, l)
	late := time.NewTimer(2 * historyLength)
	defer late.Stop()
	select {
	case <-c.granted.next(l.Name):
	case <-late.C:
	}
	c.extend(l)
	c.release(l)
}

func (c *client) told(err error) answer {
	switch {
	case err == nil:
		return answer{what: "ok"}
	case c.failed(err):
		return answer{what: "failed"}
	case !errors.Is(err, lease.ErrLost):
		c.t.Error(err)
	}
	return answer{what: "lost"}
}

// failed reports whether a call may have failed like this.
func (c *client) failed(err error) bool {
	return c.s.MayFail && (errors.Is(err, lease.ErrUnavailable) || errors.Is(err, lease.ErrIndefinite))
}

// signals tell of grants.
type signals struct {
	pausing sync.Mutex // one at a time, or all would wait for one another
	names   []string
	mu      sync.Mutex
	waiting map[string]chan struct{}
}

func newSignals(prefix string) *signals {
	s := &signals{waiting: map[string]chan struct{}{}}
	for n := range historyNames {
		s.names = append(s.names, fmt.Sprint(prefix, n))
	}
	return s
}

func (s *signals) next(name string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting[name] == nil {
		s.waiting[name] = make(chan struct{})
	}
	return s.waiting[name]
}

func (s *signals) signal(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.waiting[name]; c != nil {
		close(c)
		delete(s.waiting, name)
	}
}
