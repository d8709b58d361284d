package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/claimq/claimq/consumer"
)

// worker reports a worker's Status at scrape.
type worker struct{ status func() consumer.Status }

// Watch registers the gauges that come from a worker's Status.
func (o *Observer) Watch(status func() consumer.Status) {
	o.reg.MustRegister(worker{status})
}

func workerDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("claimq_"+name, help, labels, nil)
}

var (
	slots     = workerDesc("worker_slots", "Handlers this process may run at once.")
	busySlots = workerDesc("worker_busy_slots", "Slots in use.")
	held      = workerDesc("worker_held_tasks", "Tasks leased to this process and not started.")
	unsettled = workerDesc("worker_unsettled_tasks", "Outcomes that the server has not taken yet.")
	stuck     = workerDesc("worker_stuck_handlers", "Handlers that go on after their timeout and grace.")
	heartbeat = workerDesc("loop_heartbeat_timestamp_seconds", "Unix time at which the loop last moved, waiting for work included.", "loop")
)

// Describe implements prometheus.Collector.
func (w worker) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{slots, busySlots, held, unsettled, stuck, heartbeat} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (w worker) Collect(ch chan<- prometheus.Metric) {
	s := w.status()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(slots, float64(s.Slots))
	gauge(busySlots, float64(s.Busy))
	gauge(held, float64(s.Held))
	gauge(unsettled, float64(s.Unsettled))
	gauge(stuck, float64(s.Stuck))
	for _, l := range s.Loops {
		if !l.Beat.IsZero() {
			gauge(heartbeat, float64(l.Beat.UnixNano())/1e9, l.Name)
		}
	}
}
