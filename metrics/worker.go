package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/claimq/claimq/consumer"
)

// worker reports a worker's Status at scrape.
type worker struct {
	status   func() consumer.Status
	readings readings
}

// Watch registers the gauges that come from a worker's Status.
func (o *Observer) Watch(status func() consumer.Status) {
	o.reg.MustRegister(worker{status, newReadings(
		"worker_slots", "worker_busy_slots", "worker_held_tasks", "worker_unsettled_tasks", "worker_stuck_handlers",
		"worker_state", "worker_ready", "oldest_lease_age_seconds", "loop_heartbeat_timestamp_seconds",
	)})
}

// Describe implements prometheus.Collector.
func (w worker) Describe(ch chan<- *prometheus.Desc) { w.readings.describe(ch) }

// Collect implements prometheus.Collector.
func (w worker) Collect(ch chan<- prometheus.Metric) {
	s := w.status()
	w.readings.send(ch, "worker_slots", float64(s.Slots))
	w.readings.send(ch, "worker_busy_slots", float64(s.Busy))
	w.readings.send(ch, "worker_held_tasks", float64(s.Held))
	w.readings.send(ch, "worker_unsettled_tasks", float64(s.Unsettled))
	w.readings.send(ch, "worker_stuck_handlers", float64(s.Stuck))
	for _, state := range family("worker_state").values() {
		w.readings.send(ch, "worker_state", truth(state == string(s.State)), state)
	}
	w.readings.send(ch, "worker_ready", truth(s.Ready))
	age := 0.0
	if !s.OldestLease.IsZero() {
		age = max(0, time.Since(s.OldestLease).Seconds())
	}
	w.readings.send(ch, "oldest_lease_age_seconds", age)
	for _, l := range s.Loops {
		if !l.Beat.IsZero() {
			w.readings.send(ch, "loop_heartbeat_timestamp_seconds", float64(l.Beat.UnixNano())/1e9, l.Name)
		}
	}
}

func truth(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
