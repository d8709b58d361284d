package leasetest

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/claimq/claimq/lease"
	"github.com/claimq/claimq/queue"
)

// op is one call, or one thing that happened to a lease.
type op struct {
	// do is acquire, extend, release; lapse: the holder stopped trusting the
	// lease; end: it was ended at the server by order.
	do    string
	name  string
	token lease.Token
}

// answer is what the caller was told: granted or held, ok or lost; failed, after
// which a lapse says what may come of it.
type answer struct {
	what  string
	fence queue.Fence
}

// state is who has a name.
type state struct {
	holder lease.Token
	fence  queue.Fence
}

// step gives the state after the call took effect with this answer, and
// whether it could have.
func (s state) step(p Promises, o op, a answer) (state, bool) {
	holds := s.holder != "" && s.holder == o.token
	switch o.do + " " + a.what {
	case "acquire granted":
		if s.holder != "" || p.Fenced && a.fence <= s.fence {
			return s, false
		}
		return state{holder: o.token, fence: a.fence}, true
	case "acquire held":
		return s, s.holder != "" || !p.ErrHeldProves
	case "extend ok":
		return s, holds
	case "extend lost":
		return s, !holds
	case "extend failed", "release failed":
		return s, true
	case "release ok":
		s.holder = ""
		return s, holds
	case "release lost":
		return s, !holds
	case "lapse ":
		if holds {
			s.holder = ""
		}
		return s, true
	case "end ":
		s.holder = ""
		return s, true
	}
	return s, false
}

// model is each name for itself.
func model(p Promises) porcupine.Model {
	return porcupine.Model{
		Init: func() interface{} { return state{} },
		Step: func(s, in, out interface{}) (bool, interface{}) {
			next, ok := s.(state).step(p, in.(op), out.(answer))
			return ok, next
		},
		Partition: func(ops []porcupine.Operation) [][]porcupine.Operation {
			byName := map[string][]porcupine.Operation{}
			for _, o := range ops {
				name := o.Input.(op).name
				byName[name] = append(byName[name], o)
			}
			var parts [][]porcupine.Operation
			for _, part := range byName {
				parts = append(parts, part)
			}
			return parts
		},
		DescribeOperation: func(in, out interface{}) string { return fmt.Sprintf("%+v: %+v", in, out) },
	}
}

// log is what several clients asked and were told, by the monotonic clock:
// that a lease is trusted until some moment is a statement about time.
type log struct {
	epoch time.Time
	mu    sync.Mutex
	ops   []porcupine.Operation
}

func (h *log) at(t time.Time) int64 { return int64(t.Sub(h.epoch)) }

// call records a call by the moments around it.
func (h *log) call(client int, o op, f func() answer) answer {
	began := time.Now()
	got := f()
	h.add(client, o, got, h.at(began), h.at(time.Now()))
	return got
}

// lapse records that a client takes its lease for lost from a moment on: the
// store may end it then or at any later time, and not before.
func (h *log) lapse(client int, l lease.Lease) {
	h.add(client, op{do: "lapse", name: l.Name, token: l.Token}, answer{}, h.at(l.TrustedUntil), math.MaxInt64)
}

func (h *log) add(client int, o op, a answer, from, to int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: o, Output: a, Call: from, Return: to})
}
