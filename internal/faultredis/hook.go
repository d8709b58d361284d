package faultredis

import (
	"context"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Hook carries the faults of one client, or of several that share it with
// AddHook. It is safe for concurrent use.
type Hook struct {
	mu     sync.Mutex
	faults []*Injected
}

// New returns a hook that is added to client. Only the client itself passes
// through it, not one made from its options.
func New(client interface{ AddHook(redis.Hook) }) *Hook {
	h := &Hook{}
	client.AddHook(h)
	return h
}

// Injected is a fault at work.
type Injected struct {
	hook    *Hook
	fault   Fault
	fired   int           // guarded by hook.mu
	reached chan struct{} // closed at the first command
	release chan struct{} // closed by Release
	once    sync.Once
}

// Inject puts a fault to work. Where several match, the one injected first
// acts.
func (h *Hook) Inject(f Fault) *Injected {
	i := &Injected{hook: h, fault: f, reached: make(chan struct{}), release: make(chan struct{})}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = append(h.faults, i)
	return i
}

// Clear removes every fault and releases what they hold.
func (h *Hook) Clear() {
	h.mu.Lock()
	faults := slices.Clone(h.faults)
	h.mu.Unlock()
	for _, i := range faults {
		i.Remove()
	}
}

// Fired tells how many commands (for FailDial: connections) it has met.
func (i *Injected) Fired() int {
	i.hook.mu.Lock()
	defer i.hook.mu.Unlock()
	return i.fired
}

// Reached is closed once the fault has met its first command: for one that is
// held before it is sent, when it is held; for one held after, when the server
// has answered.
func (i *Injected) Reached() <-chan struct{} { return i.reached }

// Release lets held commands go on, those held now and those to come.
func (i *Injected) Release() { i.once.Do(func() { close(i.release) }) }

// Remove ends the fault and releases what it holds.
func (i *Injected) Remove() {
	i.Release()
	i.hook.mu.Lock()
	defer i.hook.mu.Unlock()
	i.hook.faults = slices.DeleteFunc(i.hook.faults, func(other *Injected) bool { return other == i })
}

func (i *Injected) arrived() {
	i.hook.mu.Lock()
	defer i.hook.mu.Unlock()
	select {
	case <-i.reached:
	default:
		close(i.reached)
	}
}

// hold waits for Release. Its error is that of the context.
func (i *Injected) hold(ctx context.Context) error {
	i.arrived()
	select {
	case <-i.release:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// take finds the fault for a set of commands sent together, counts it, and
// returns the position of the first command that it concerns.
func (h *Hook) take(cmds []redis.Cmder) (*Injected, int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, i := range h.faults {
		if i.fault.do == failDial || !i.live() {
			continue
		}
		at := slices.IndexFunc(cmds, i.fault.concerns)
		if at >= 0 {
			i.fired++
			return i, at
		}
	}
	return nil, 0
}

func (i *Injected) live() bool { return i.fault.times == 0 || i.fired < i.fault.times }

func (h *Hook) takeDial() *Injected {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, i := range h.faults {
		if i.fault.do == failDial && i.live() {
			i.fired++
			return i
		}
	}
	return nil
}
