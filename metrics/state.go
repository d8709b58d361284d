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

// source is one queue as the collector sees it.
type source struct {
	name string
	read func(context.Context) (queue.Stats, error)
}

// State is a collector of the queues' state on the server, read at scrape and
// kept for StateAge. What is unknown is absent, never 0: a backlog that cannot
// be read must not look like an empty one.
//
// Every process that runs it reports the same state, so a query takes
// max by (queue) before it sums.
type State struct {
	sources []source
	now     func() time.Time

	mu     sync.Mutex
	readAt time.Time
	stats  map[string]queue.Stats // by queue name; absent: unknown
}

// NewState returns a collector to register.
func NewState(queues ...*queue.Queue) *State {
	s := &State{now: time.Now}
	for _, q := range queues {
		s.sources = append(s.sources, source{name: q.Name(), read: q.Stats})
	}
	return s
}

func stateDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("claimq_"+name, help, []string{"queue"}, nil)
}

var stateGauges = []struct {
	desc  *prometheus.Desc
	value func(queue.Stats) int64
}{
	{stateDesc("waiting_entries", "Entries not yet delivered; absent when the server cannot tell."),
		func(s queue.Stats) int64 { return s.Waiting }},
	{stateDesc("pending_entries", "Entries delivered to a worker and not yet settled."),
		func(s queue.Stats) int64 { return s.Pending }},
	{stateDesc("scheduled_tasks", "Tasks waiting for their due time."),
		func(s queue.Stats) int64 { return s.Scheduled }},
	{stateDesc("dead_entries", "Entries in the dead letters."),
		func(s queue.Stats) int64 { return s.Dead }},
	{stateDesc("ended_grants", "Grants whose lease has ended and that no worker has reclaimed yet."),
		func(s queue.Stats) int64 { return s.EndedGrants }},
	{stateDesc("consumers", "Live consumers of the group; one that serves several partitions counts in each."),
		func(s queue.Stats) int64 { return s.Consumers }},
}

var stateSuccess = stateDesc("collector_success", "1 if the last read of the queue's state succeeded, else 0.")

// Describe implements prometheus.Collector.
func (s *State) Describe(ch chan<- *prometheus.Desc) {
	for _, g := range stateGauges {
		ch <- g.desc
	}
	ch <- stateSuccess
}

// Collect implements prometheus.Collector. Scrapes at the same time share one
// read.
func (s *State) Collect(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.now(); s.readAt.IsZero() || now.Sub(s.readAt) >= StateAge {
		s.stats = s.readAll()
		s.readAt = now
	}
	for _, src := range s.sources {
		stats, known := s.stats[src.name]
		success := 0.0
		if known {
			success = 1
			for _, g := range stateGauges {
				ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(g.value(stats)), src.name)
			}
		}
		ch <- prometheus.MustNewConstMetric(stateSuccess, prometheus.GaugeValue, success, src.name)
	}
}

// readAll reads every queue at once, one goroutine each, all ended on return.
func (s *State) readAll() map[string]queue.Stats {
	ctx, cancel := context.WithTimeout(context.Background(), StateBudget)
	defer cancel()
	var (
		wg  sync.WaitGroup
		mu  sync.Mutex
		out = make(map[string]queue.Stats, len(s.sources))
	)
	for _, src := range s.sources {
		wg.Go(func() {
			stats, err := src.read(ctx)
			if err != nil {
				return // absent, and claimq_collector_success says so
			}
			mu.Lock()
			defer mu.Unlock()
			out[src.name] = stats
		})
	}
	wg.Wait()
	return out
}
