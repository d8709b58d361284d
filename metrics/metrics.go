// Package metrics reports claimq to Prometheus. What it reports is the
// catalogue (see Catalogue and docs/metrics.md):
//
//	Observer  what one worker does: events, its Status, its recorded steps
//	Producer  what one process enqueues
//	State     how the queues stand on the server, read at scrape
//	Client    how a Redis client fares
//	Build     which program this is
//
// Everything is registered with a registry that is handed in.
//
// No label ever holds a task ID, a consumer name or an error text. Queues come
// from configuration; outcomes, reasons, sources and loops are closed sets;
// kinds are bounded (see MaxKinds). Every series of a known label value exists
// from the start at 0, so that increase() sees the first event too.
//
// Histograms are classic and native in one. Those of waiting, running and
// completing carry a trace ID as exemplar where a task came with a sampled
// traceparent header.
package metrics

//go:generate go test -run TestDocs -update .

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/queue"
)

// Observer counts what one worker does.
type Observer struct {
	consumer.NopObserver // events that are not counted

	reg    prometheus.Registerer
	in     instruments
	swept  *prometheus.GaugeVec // by queue; only what has swept
	kinds  kindNames
	queues table[*workerSeries]
}

var _ consumer.Observer = (*Observer)(nil)

// workerSeries are the series of one queue.
type workerSeries struct {
	deliveries, failures, dead, lost, steps                   closed
	duplicates, missing, promoted, refused, reclaimed         prometheus.Counter
	sweeps, sweepFailures, renewals, renewalFailures, removed prometheus.Counter
	wait, endToEnd, attempts, sweepDuration, reclaimDelay     prometheus.Observer
	kinds                                                     *byKind[*kindSeries]
}

// kindSeries are those of one kind in one queue.
type kindSeries struct {
	processed      closed
	process, ratio prometheus.Observer
}

// New registers the counters and histograms of a worker, all at 0, and the
// State of the queues. It panics when reg holds them already, as MustRegister
// does: one worker, one registry.
func New(reg prometheus.Registerer, queues ...*queue.Queue) *Observer {
	o := &Observer{reg: reg, in: register(reg, FromWorker), swept: gauge(reg, "last_reclaim_sweep_timestamp_seconds")}
	for _, q := range queues {
		o.of(q.Name())
	}
	reg.MustRegister(NewState(queues...))
	return o
}

// of returns the series of a queue. One that was not named beforehand gets its
// own at its first event: its name is from the configuration all the same.
func (o *Observer) of(name string) *workerSeries {
	s, ok := o.queues.get(name)
	if !ok {
		s, _ = o.queues.put(name, math.MaxInt, func() *workerSeries { return o.series(name) })
	}
	return s
}

func (o *Observer) series(q string) *workerSeries {
	count := func(name string) prometheus.Counter { return o.in.counters[name].WithLabelValues(q) }
	measure := func(name string) prometheus.Observer { return o.in.histograms[name].WithLabelValues(q) }
	return &workerSeries{
		deliveries:      o.in.closed("deliveries_total", q),
		failures:        o.in.closed("failures_total", q),
		dead:            o.in.closed("dead_lettered_total", q),
		lost:            o.in.closed("leases_lost_total", q),
		steps:           o.in.closed("steps_total", q),
		duplicates:      count("duplicates_suppressed_total"),
		missing:         count("missing_entries_total"),
		promoted:        count("promoted_tasks_total"),
		refused:         count("refused_settles_total"),
		reclaimed:       count("reclaimed_entries_total"),
		sweeps:          count("reclaim_sweeps_total"),
		sweepFailures:   count("reclaim_sweep_failures_total"),
		renewals:        count("lease_renewals_total"),
		renewalFailures: count("lease_renewal_failures_total"),
		removed:         count("consumers_removed_total"),
		wait:            measure("wait_duration_seconds"),
		endToEnd:        measure("end_to_end_duration_seconds"),
		attempts:        measure("delivery_attempts"),
		sweepDuration:   measure("reclaim_sweep_duration_seconds"),
		reclaimDelay:    measure("reclaim_delay_seconds"),
		kinds:           newByKind(&o.kinds, func(kind string) *kindSeries { return o.kindSeries(q, kind) }),
	}
}

func (o *Observer) kindSeries(q, kind string) *kindSeries {
	return &kindSeries{
		processed: o.in.closed("processed_total", q, kind),
		process:   o.in.histograms["process_duration_seconds"].WithLabelValues(q, kind),
		ratio:     o.in.histograms["process_lease_ratio"].WithLabelValues(q, kind),
	}
}

// Kinds makes the series of kinds that are known beforehand, in all queues
// known by then.
func (o *Observer) Kinds(kinds ...string) {
	for _, s := range o.queues.all() {
		for _, kind := range kinds {
			s.kinds.of(kind)
		}
	}
}

// Delivered implements consumer.Observer.
func (o *Observer) Delivered(q string, source consumer.Source, n int) {
	o.of(q).deliveries.add(string(source), float64(n))
}

// Duplicates implements consumer.Observer.
func (o *Observer) Duplicates(q string, n int) { o.of(q).duplicates.Add(float64(n)) }

// Buried implements consumer.Observer.
func (o *Observer) Buried(q string, n int) {
	o.of(q).dead.add(string(queue.DeadUndecodable), float64(n))
}

// Started implements consumer.Observer.
func (o *Observer) Started(e consumer.Started) {
	s := o.of(e.Queue)
	s.kinds.of(e.Kind) // its series exist before its first outcome
	if e.Wait >= 0 {
		observe(s.wait, e.Wait.Seconds(), e.TraceParent)
	}
}

// Ended implements consumer.Observer.
func (o *Observer) Ended(e consumer.Ended) {
	s := o.of(e.Queue)
	kind := s.kinds.of(e.Kind)
	kind.processed.add(string(e.Outcome), 1)
	s.failures.add(string(e.Reason), 1) // FailedNone is none of them
	attempts := e.Attempt - 1
	if e.Ran {
		attempts++
		observe(kind.process, e.Duration.Seconds(), e.TraceParent)
		if e.Lease > 0 {
			kind.ratio.Observe(e.Duration.Seconds() / e.Lease.Seconds())
		}
	}
	switch e.Outcome {
	case queue.Completed:
		s.attempts.Observe(float64(attempts))
		if e.SinceEnqueue > 0 {
			observe(s.endToEnd, e.SinceEnqueue.Seconds(), e.TraceParent)
		}
	case queue.DeadLettered:
		s.attempts.Observe(float64(attempts))
		s.dead.add(string(e.DeadReason), 1)
	}
}

// Renewed implements consumer.Observer.
func (o *Observer) Renewed(e consumer.Renewed) {
	s := o.of(e.Queue)
	s.renewals.Add(float64(e.Grants))
	s.renewalFailures.Add(float64(e.Failed))
}

// LeaseLost implements consumer.Observer.
func (o *Observer) LeaseLost(e consumer.LeaseLost) { o.of(e.Queue).lost.add(string(e.How), 1) }

// Refused implements consumer.Observer.
func (o *Observer) Refused(e consumer.Refused) { o.of(e.Queue).refused.Inc() }

// Swept implements consumer.Observer.
func (o *Observer) Swept(e consumer.Swept) {
	s := o.of(e.Queue)
	s.sweeps.Inc()
	s.reclaimed.Add(float64(e.Count))
	s.sweepDuration.Observe(e.Duration.Seconds())
	for _, d := range e.Delays {
		if d > 0 { // 0: not known
			s.reclaimDelay.Observe(d.Seconds())
		}
	}
	if e.Err != nil {
		s.sweepFailures.Inc()
		return
	}
	o.swept.WithLabelValues(e.Queue).Set(float64(time.Now().UnixNano()) / 1e9)
}

// Lost implements consumer.Observer.
func (o *Observer) Lost(e consumer.Lost) { o.of(e.Queue).missing.Add(float64(len(e.Tasks))) }

// Promoted implements consumer.Observer.
func (o *Observer) Promoted(q string, n int) { o.of(q).promoted.Add(float64(n)) }

// ConsumersRemoved implements consumer.Observer.
func (o *Observer) ConsumersRemoved(q string, n int) { o.of(q).removed.Add(float64(n)) }
