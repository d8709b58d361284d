// Package metrics reports claimq to Prometheus: what one worker does (an
// Observer, counted in this process) and how the queues stand on the server
// (a State, read at scrape). Everything is registered with a registry that is
// handed in.
//
// No label ever holds a task ID, a consumer name or an error text. Queues come
// from configuration; outcomes, reasons, sources and loops are closed sets;
// kinds are bounded (see MaxKinds). Every series of a known label value exists
// from the start at 0, so that increase() sees the first event too.
package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/queue"
)

// MaxKinds is how many kinds get a label of their own; any further one is
// counted as OtherKind. Kinds named with Observer.Kinds come first, then those
// that are seen first.
const (
	MaxKinds  = 100
	OtherKind = "other"
)

// The closed label sets. A test compares them with package consumer.
var (
	sources  = []consumer.Source{consumer.SourceNew, consumer.SourceReclaimed}
	outcomes = []queue.Outcome{queue.Completed, queue.Retried, queue.Released, queue.DeadLettered, queue.Lost}
	reasons  = []consumer.FailureReason{consumer.FailedError, consumer.FailedPanic, consumer.FailedTimeout,
		consumer.FailedCanceled, consumer.FailedDecode, consumer.FailedNoHandler}
)

// Observer counts what one worker does.
type Observer struct {
	consumer.NopObserver // events that are not counted yet

	reg    prometheus.Registerer
	queues []string

	deliveries *prometheus.CounterVec // queue, source
	processed  *prometheus.CounterVec // queue, kind, outcome
	failures   *prometheus.CounterVec // queue, reason
	lost       *prometheus.CounterVec // queue
	refused    *prometheus.CounterVec // queue
	reclaimed  *prometheus.CounterVec // queue
	duplicates *prometheus.CounterVec // queue
	missing    *prometheus.CounterVec // queue

	mu    sync.RWMutex
	kinds map[string]bool
}

var _ consumer.Observer = (*Observer)(nil)

// New registers the counters, all at 0, and the state of the queues. It panics
// when reg holds them already, as MustRegister does: one worker, one registry.
func New(reg prometheus.Registerer, queues ...*queue.Queue) *Observer {
	o := &Observer{reg: reg, kinds: map[string]bool{}}
	for _, q := range queues {
		o.queues = append(o.queues, q.Name())
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "claimq_" + name, Help: help}, append([]string{"queue"}, labels...))
		reg.MustRegister(v)
		return v
	}
	o.deliveries = counter("deliveries_total", "Tasks leased to this worker; source is new or reclaimed.", "source")
	o.processed = counter("processed_total", "Tasks that left this worker; outcome is completed, retried, released, dead or lost.", "kind", "outcome")
	o.failures = counter("failures_total", "Attempts that did not succeed; reason is error, panic, timeout, canceled, decode or no_handler.", "reason")
	o.lost = counter("leases_lost_total", "Leases lost while the task was in hand.")
	o.refused = counter("refused_settles_total", "Outcomes that were not accepted because the lease had been lost.")
	o.reclaimed = counter("reclaimed_entries_total", "Entries this worker took over from another consumer after their lease had ended.")
	o.duplicates = counter("duplicates_suppressed_total", "Entries that were copies of a live or finished task and were not run.")
	o.missing = counter("missing_entries_total", "Tasks whose entry was deleted or trimmed from outside.")
	for _, q := range o.queues {
		o.create(q)
	}
	o.Kinds(OtherKind)
	reg.MustRegister(NewState(queues...))
	return o
}

// create makes the series of a queue that have no kind.
func (o *Observer) create(q string) {
	for _, s := range sources {
		o.deliveries.WithLabelValues(q, string(s))
	}
	for _, r := range reasons {
		o.failures.WithLabelValues(q, string(r))
	}
	for _, v := range []*prometheus.CounterVec{o.lost, o.refused, o.reclaimed, o.duplicates, o.missing} {
		v.WithLabelValues(q)
	}
}

// Kinds creates the series of kinds that are known beforehand.
func (o *Observer) Kinds(kinds ...string) {
	for _, k := range kinds {
		o.kind(k)
	}
}

// kind returns the label for a kind, and creates its series at its first use.
func (o *Observer) kind(k string) string {
	o.mu.RLock()
	known, full := o.kinds[k], len(o.kinds) > MaxKinds // OtherKind is one of them
	o.mu.RUnlock()
	switch {
	case known:
		return k
	case full:
		return OtherKind
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.kinds[k] {
		return k
	}
	if len(o.kinds) > MaxKinds {
		return OtherKind
	}
	o.kinds[k] = true
	for _, q := range o.queues {
		for _, out := range outcomes {
			o.processed.WithLabelValues(q, k, string(out))
		}
	}
	return k
}

// Delivered implements consumer.Observer.
func (o *Observer) Delivered(q string, s consumer.Source, n int) {
	o.deliveries.WithLabelValues(q, string(s)).Add(float64(n))
}

// Duplicates implements consumer.Observer.
func (o *Observer) Duplicates(q string, n int) {
	o.duplicates.WithLabelValues(q).Add(float64(n))
}

// Ended implements consumer.Observer.
func (o *Observer) Ended(e consumer.Ended) {
	o.processed.WithLabelValues(e.Queue, o.kind(e.Kind), string(e.Outcome)).Inc()
	if e.Reason != consumer.FailedNone {
		o.failures.WithLabelValues(e.Queue, string(e.Reason)).Inc()
	}
}

// LeaseLost implements consumer.Observer.
func (o *Observer) LeaseLost(l consumer.LeaseLost) { o.lost.WithLabelValues(l.Queue).Inc() }

// Refused implements consumer.Observer.
func (o *Observer) Refused(r consumer.Refused) { o.refused.WithLabelValues(r.Queue).Inc() }

// Swept implements consumer.Observer.
func (o *Observer) Swept(s consumer.Swept) {
	o.reclaimed.WithLabelValues(s.Queue).Add(float64(s.Count))
}

// Lost implements consumer.Observer.
func (o *Observer) Lost(l consumer.Lost) {
	o.missing.WithLabelValues(l.Queue).Add(float64(len(l.Tasks)))
}
