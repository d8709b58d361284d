package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/claimq/claimq/internal/ops"
	"github.com/claimq/claimq/producer/outbox"
	"github.com/claimq/claimq/queue"
)

// repeatLog is how often a failure that goes on is logged.
const repeatLog = 10 * time.Second

// rounds is what is known of the relays: counted, logged, and looked at by the
// probes.
type rounds struct {
	log     *slog.Logger
	names   []string
	silence time.Duration // after which a relay that says nothing is stuck
	relayed *prometheus.CounterVec
	failed  *prometheus.CounterVec
	relays  map[string]*watched
}

// watched is one relay as it is seen. It is its outbox.Observer.
type watched struct {
	all   *rounds
	queue string

	mu                        sync.Mutex
	last                      time.Time
	err                       error
	since, logged             time.Time // of the failure that goes on
	added, duplicate, refused int
}

func newRounds(reg prometheus.Registerer, log *slog.Logger, queues []*queue.Queue, silence time.Duration) *rounds {
	r := &rounds{
		log: log, silence: silence, relays: map[string]*watched{},
		relayed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "claimq_outbox_relayed_total",
			Help: "Tasks that left the outbox; outcome is added, duplicate (the queue had it already) or refused (set aside).",
		}, []string{"queue", "outcome"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "claimq_outbox_failures_total",
			Help: "Batches that left tasks in the outbox, or did not reach the database.",
		}, []string{"queue"}),
	}
	reg.MustRegister(r.relayed, r.failed)
	for _, q := range queues {
		r.names = append(r.names, q.Name())
		r.relays[q.Name()] = &watched{all: r, queue: q.Name(), last: time.Now()}
		for _, outcome := range []string{"added", "duplicate", "refused"} {
			r.relayed.WithLabelValues(q.Name(), outcome)
		}
		r.failed.WithLabelValues(q.Name())
	}
	return r
}

func (r *rounds) of(name string) *watched { return r.relays[name] }

// Relayed implements outbox.Observer.
func (w *watched) Relayed(round outbox.Round) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.last, w.err = now, round.Err
	w.added += round.Added
	w.duplicate += round.Duplicate
	w.refused += round.Refused
	for outcome, n := range map[string]int{"added": round.Added, "duplicate": round.Duplicate, "refused": round.Refused} {
		w.all.relayed.WithLabelValues(w.queue, outcome).Add(float64(n))
	}
	log := w.all.log.With("queue", w.queue)
	if round.Refused > 0 {
		log.Warn("tasks were refused and set aside; see outbox_refused", "refused", round.Refused)
	}
	switch {
	case round.Err == nil && !w.since.IsZero():
		log.Info("relaying again", "after", now.Sub(w.since).Round(time.Millisecond).String())
		w.since, w.logged = time.Time{}, time.Time{}
	case round.Err != nil:
		w.all.failed.WithLabelValues(w.queue).Inc()
		if w.since.IsZero() {
			w.since = now
		}
		if now.Sub(w.logged) >= repeatLog {
			w.logged = now
			log.Warn("tasks wait in the outbox; trying again", "error", round.Err, "for", now.Sub(w.since).Round(time.Second).String())
		}
	}
	if round.Taken > 0 {
		log.Debug("relayed", "taken", round.Taken, "added", round.Added, "duplicate", round.Duplicate,
			"refused", round.Refused, "left", round.Left, "took", round.Duration.String())
	}
}

// live says whether each relay still moves.
func (r *rounds) live() []ops.Check {
	var list []ops.Check
	for _, name := range r.names {
		w := r.relays[name]
		w.mu.Lock()
		quiet := time.Since(w.last)
		w.mu.Unlock()
		list = append(list, ops.Check{Name: "relay " + name, OK: quiet < r.silence, Detail: fmt.Sprintf("moved %v ago", quiet.Round(time.Millisecond))})
	}
	return list
}

// ready says how the last batch of each relay ended.
func (r *rounds) ready() []ops.Check {
	list := r.live()
	for i, name := range r.names {
		w := r.relays[name]
		w.mu.Lock()
		if w.err != nil {
			list[i].OK, list[i].Detail = false, w.err.Error()
		}
		w.mu.Unlock()
	}
	return list
}

func (r *rounds) sumUp() {
	for _, name := range r.names {
		w := r.relays[name]
		w.mu.Lock()
		r.log.Info("relayed in all", "queue", name, "added", w.added, "duplicate", w.duplicate, "refused", w.refused)
		w.mu.Unlock()
	}
}

// Bounds of what a scrape costs the database.
const (
	backlogBudget = 2 * time.Second
	backlogAge    = 5 * time.Second // for which an answer is used again
	backlogQueues = 100             // that are reported, beyond those in QUEUES
)

// backlog is a collector of how the outbox stands. What is not known is
// absent. Every relay reports the same.
type backlog struct {
	read      func(context.Context) ([]standing, error)
	lag, rows *prometheus.Desc
	success   *prometheus.Desc

	mu   sync.Mutex
	at   time.Time
	list []standing
	err  error
}

func newBacklog(read func(context.Context) ([]standing, error)) *backlog {
	return &backlog{
		read: read,
		lag: prometheus.NewDesc("claimq_outbox_lag_seconds",
			"Age of the oldest task in the outbox that is not sent, by the database's clock; 0 when there is none.", []string{"queue"}, nil),
		rows: prometheus.NewDesc("claimq_outbox_rows",
			"Tasks in the outbox; state is unsent or refused. Counted up to 100000.", []string{"queue", "state"}, nil),
		success: prometheus.NewDesc("claimq_outbox_collector_success", "1 if the last look at the outbox succeeded, else 0.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (b *backlog) Describe(ch chan<- *prometheus.Desc) {
	ch <- b.lag
	ch <- b.rows
	ch <- b.success
}

// Collect implements prometheus.Collector.
func (b *backlog) Collect(ch chan<- prometheus.Metric) {
	list, err := b.look()
	if err != nil {
		ch <- prometheus.MustNewConstMetric(b.success, prometheus.GaugeValue, 0)
		return
	}
	ch <- prometheus.MustNewConstMetric(b.success, prometheus.GaugeValue, 1)
	others := 0
	for _, s := range list {
		if !s.Relayed {
			if others++; others > backlogQueues {
				return
			}
		}
		ch <- prometheus.MustNewConstMetric(b.lag, prometheus.GaugeValue, s.LagSeconds, s.Queue)
		ch <- prometheus.MustNewConstMetric(b.rows, prometheus.GaugeValue, float64(s.Unsent), s.Queue, "unsent")
		ch <- prometheus.MustNewConstMetric(b.rows, prometheus.GaugeValue, float64(s.Refused), s.Queue, "refused")
	}
}

// look asks the database, or gives the last answer while it is young. Whoever
// comes while it is asked waits for that answer.
func (b *backlog) look() ([]standing, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.at.IsZero() && time.Since(b.at) < backlogAge {
		return b.list, b.err
	}
	ctx, cancel := context.WithTimeout(context.Background(), backlogBudget)
	defer cancel()
	b.list, b.err = b.read(ctx)
	b.at = time.Now()
	return b.list, b.err
}
