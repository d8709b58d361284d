package metrics

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/claimq/claimq/queue"
)

// Bounds of what a scrape costs the server.
const (
	// StateBudget is how long one scrape waits for the state of all queues.
	StateBudget = 2 * time.Second
	// StateAge is how long an answer, or the lack of one, is used again.
	StateAge = 5 * time.Second
)

// State is a collector of the queues' state on the server, read at scrape and
// kept for StateAge. What is unknown is absent, never 0: a backlog that cannot
// be read must not look like an empty one.
//
// A queue is read by one call at a time: a scrape that comes while it is read
// waits for that answer, for StateBudget at most. The read goes on by itself
// then, with a client that does not look at its context as long as that takes.
//
// Every process that runs it reports the same state, so a query takes
// max by (queue) before it sums.
type State struct {
	sources  []*source
	now      func() time.Time
	readings readings
}

// NewState returns a collector to register.
func NewState(queues ...*queue.Queue) *State {
	var sources []*source
	for _, q := range queues {
		sources = append(sources, &source{name: q.Name(), lease: q.Config().Lease, read: q.Stats})
	}
	return newState(time.Now, sources...)
}

func newState(now func() time.Time, sources ...*source) *State {
	return &State{sources: sources, now: now, readings: newReadings(namesFrom(FromState)...)}
}

// Describe implements prometheus.Collector.
func (s *State) Describe(ch chan<- *prometheus.Desc) { s.readings.describe(ch) }

// Collect implements prometheus.Collector.
func (s *State) Collect(ch chan<- prometheus.Metric) {
	now := s.now()
	s.refresh(now)
	for _, src := range s.sources {
		src.collect(ch, s.readings, src.fresh(now))
	}
}

// refresh reads the queues whose last answer is old, all at the same time, and
// returns when they have answered or the budget is spent.
func (s *State) refresh(now time.Time) {
	budget := time.NewTimer(StateBudget)
	defer budget.Stop()
	var reads []<-chan struct{}
	for _, src := range s.sources {
		if done := src.refresh(now); done != nil {
			reads = append(reads, done)
		}
	}
	for _, done := range reads {
		select {
		case <-done:
		case <-budget.C:
			return
		}
	}
}

// StateRead is how the last read of a queue ended.
type StateRead struct {
	Queue string
	At    time.Time // when it began; zero: there was none yet
	Err   error     // context.DeadlineExceeded also while an answer is overdue
}

// Reads tells how the last read of each queue ended. It asks nobody.
func (s *State) Reads() []StateRead {
	var reads []StateRead
	for _, src := range s.sources {
		a := src.last()
		reads = append(reads, StateRead{Queue: src.name, At: a.at, Err: a.err})
	}
	return reads
}

// source is one queue as the collector sees it.
type source struct {
	name  string
	lease time.Duration
	read  func(context.Context) (queue.Stats, error)

	mu      sync.Mutex
	answer  answer
	pending chan struct{} // closed at the end of the read in progress; nil: none
	began   time.Time     // that read, by the machine's clock
}

// answer is what a read came to.
type answer struct {
	stats queue.Stats
	err   error
	at    time.Time // when it was asked
	took  time.Duration
}

// refresh begins a read if the last answer is old. It returns the end of the
// read in progress, nil if there is none.
func (s *source) refresh(now time.Time) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending == nil && (s.answer.at.IsZero() || now.Sub(s.answer.at) >= StateAge) {
		s.pending = make(chan struct{})
		s.began = time.Now()
		go s.ask(now, s.began, s.pending) // ends with the call, and only one is made at a time
	}
	return s.pending
}

func (s *source) ask(now, began time.Time, done chan<- struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), StateBudget)
	defer cancel()
	stats, err := s.read(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer{stats, err, now, time.Since(began)}
	s.pending = nil
	close(done)
}

// fresh is an answer that may be reported at now: the last one, or, where that
// is old, that a newer one is overdue.
func (s *source) fresh(now time.Time) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answer.at.IsZero() || s.pending != nil && now.Sub(s.answer.at) >= StateAge {
		return s.overdue()
	}
	return s.answer
}

// last is the last answer, unless a newer one is overdue.
func (s *source) last() answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending != nil && time.Since(s.began) >= StateBudget {
		return s.overdue()
	}
	return s.answer
}

func (s *source) overdue() answer {
	return answer{at: s.answer.at, err: context.DeadlineExceeded, took: time.Since(s.began)}
}

func (s *source) collect(ch chan<- prometheus.Metric, r readings, a answer) {
	send := func(name string, v float64, labels ...string) {
		r.send(ch, name, v, append([]string{s.name}, labels...)...)
	}
	send("queue_lease_seconds", s.lease.Seconds())
	send("collector_success", truth(a.err == nil))
	send("collector_duration_seconds", a.took.Seconds())
	if a.err != nil {
		return
	}
	st := a.stats
	send("waiting_entries", float64(st.Waiting))
	send("pending_entries", float64(st.Pending))
	send("expired_pending_entries", float64(st.Expired))
	send("scheduled_tasks", float64(st.Scheduled))
	send("dead_entries", float64(st.Dead))
	send("consumers", float64(st.Consumers), "active")
	send("consumers", float64(st.Silent), "stale")
	if st.Added >= 0 {
		send("entries_added_total", float64(st.Added))
	}
	for name, age := range map[string]time.Duration{
		"oldest_waiting_age_seconds": st.OldestWaiting,
		"oldest_pending_age_seconds": st.OldestPending,
		"oldest_overdue_age_seconds": st.Overdue,
	} {
		if age >= 0 {
			send(name, age.Seconds())
		}
	}
}
