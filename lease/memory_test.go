package lease_test

import (
	"context"
	"sync"
	"time"

	"github.com/claimq/claimq/lease"
	"github.com/claimq/claimq/queue"
)

// memory is a store for tests of what Locker makes of a store's answers, in
// virtual time. Its own clock is the test's.
type memory struct {
	mu       sync.Mutex
	held     map[string]lease.Lease
	ends     map[string]time.Time
	fence    queue.Fence
	extends  []time.Duration // when, since began
	asked    int             // acquires
	released int
	began    time.Time

	// answer replaces what a verb answers when it is not nil.
	onAcquire func(n int, apply func() (lease.Lease, error)) (lease.Lease, error)
	onExtend  func(ctx context.Context, n int, apply func() (lease.Lease, error)) (lease.Lease, error)
	onRelease func(n int, apply func() error) error
}

func newMemory() *memory {
	return &memory{held: map[string]lease.Lease{}, ends: map[string]time.Time{}, began: time.Now()}
}

func (m *memory) Acquire(_ context.Context, r lease.Request) (lease.Lease, error) {
	m.mu.Lock()
	m.asked++
	n := m.asked
	m.mu.Unlock()
	apply := func() (lease.Lease, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		now := time.Now()
		l, ok := m.held[r.Name]
		if ok && now.Before(m.ends[r.Name]) && l.Token != r.Token {
			return lease.Lease{}, lease.ErrHeld
		}
		if l.Token != r.Token {
			m.fence++
			l = lease.Lease{Name: r.Name, Token: r.Token, Length: r.Length, Fence: m.fence}
		}
		m.held[r.Name], m.ends[r.Name] = l, now.Add(r.Length)
		return l.Since(now), nil
	}
	if m.onAcquire != nil {
		return m.onAcquire(n, apply)
	}
	return apply()
}

func (m *memory) Extend(ctx context.Context, l lease.Lease) (lease.Lease, error) {
	m.mu.Lock()
	m.extends = append(m.extends, time.Since(m.began))
	n := len(m.extends)
	m.mu.Unlock()
	apply := func() (lease.Lease, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		now := time.Now()
		if m.held[l.Name].Token != l.Token || !now.Before(m.ends[l.Name]) {
			return l, lease.ErrLost
		}
		m.ends[l.Name] = now.Add(l.Length)
		return l.Since(now), nil
	}
	if m.onExtend != nil {
		return m.onExtend(ctx, n, apply)
	}
	return apply()
}

func (m *memory) Release(_ context.Context, l lease.Lease) error {
	m.mu.Lock()
	m.released++
	n := m.released
	m.mu.Unlock()
	apply := func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.held[l.Name].Token != l.Token || !time.Now().Before(m.ends[l.Name]) {
			return lease.ErrLost
		}
		delete(m.held, l.Name)
		return nil
	}
	if m.onRelease != nil {
		return m.onRelease(n, apply)
	}
	return apply()
}

func (m *memory) counts() (asked, released int, extends []time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked, m.released, m.extends
}

// watched is a memory that sees a loss when lost is closed.
type watched struct {
	*memory
	lost chan struct{}
}

func (w watched) Watch(ctx context.Context, _ lease.Lease) error {
	select {
	case <-w.lost:
		return lease.ErrLost
	case <-ctx.Done():
		return nil
	}
}
