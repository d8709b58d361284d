package metrics_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/metrics"
	"github.com/claimq/claimq/queue"
)

// TestWorkerStatusIsReported: the gauges are what Status says.
func TestWorkerStatusIsReported(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	o := metrics.New(reg, offline(t, "a")...)
	status := consumer.Status{
		State: consumer.StateDraining, Slots: 8, Busy: 3, Held: 2, Unsettled: 4, Stuck: 1, Ready: true,
		Loops: []consumer.LoopStatus{{Name: "fetch", Beat: time.Unix(1700000000, 0)}, {Name: "renew"}},
	}
	o.Watch(func() consumer.Status { return status })
	want(t, reg, map[string]float64{
		"claimq_worker_slots{}":                               8,
		"claimq_worker_busy_slots{}":                          3,
		"claimq_worker_held_tasks{}":                          2,
		"claimq_worker_unsettled_tasks{}":                     4,
		"claimq_worker_stuck_handlers{}":                      1,
		"claimq_worker_state{state=draining}":                 1,
		"claimq_worker_state{state=running}":                  0,
		"claimq_worker_state{state=starting}":                 0,
		"claimq_worker_state{state=stopped}":                  0,
		"claimq_worker_ready{}":                               1,
		"claimq_oldest_lease_age_seconds{}":                   0,
		"claimq_loop_heartbeat_timestamp_seconds{loop=fetch}": 1700000000,
	})
	if _, ok := values(t, reg)["claimq_loop_heartbeat_timestamp_seconds{loop=renew}"]; ok {
		t.Error("a loop that never moved has a heartbeat")
	}
	status.Ready, status.OldestLease = false, time.Now().Add(-time.Minute)
	got := values(t, reg)
	if age := got["claimq_oldest_lease_age_seconds{}"]; age < 60 || age > 120 || got["claimq_worker_ready{}"] != 0 {
		t.Errorf("oldest lease %v, ready %v", age, got["claimq_worker_ready{}"])
	}
}

// TestWorkerOnAQueue runs a worker and compares what is reported with what it
// did.
func TestWorkerOnAQueue(t *testing.T) {
	q, err := queue.New(queue.Config{
		Name: "a", Client: redistest.Shared(t).Client(), Prefix: redistest.Prefix(t), Lease: time.Second, MaxFailures: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	enqueue := func(tasks ...queue.Task) {
		for _, r := range q.Enqueue(ctx, q.NewToken(), tasks) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}
	// One task was leased to a worker that is gone.
	enqueue(queue.Task{ID: "0", Kind: "ok"})
	entries, err := queue.Read(ctx, queue.ReadRequest{Queues: []*queue.Queue{q}, Consumer: "gone", Max: 1})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := q.Begin(ctx, queue.BeginRequest{Token: q.NewToken(), Entries: entries}); err != nil || len(b.Deliveries) != 1 {
		t.Fatal(b, err)
	}
	tasks := []queue.Task{{ID: "1", Kind: "ok"}, {ID: "2", Kind: "ok"}, {ID: "3", Kind: "ok", Delay: 300 * time.Millisecond}, {ID: "4", Kind: "fails"}, {ID: "5", Kind: "bad"}}
	enqueue(tasks...)
	reg := prometheus.NewPedanticRegistry()
	o := metrics.New(reg, q)
	var mux consumer.Mux
	consumer.HandleTask(&mux, "ok", func(context.Context, consumer.Delivery) ([]byte, error) { return nil, nil })
	consumer.HandleTask(&mux, "fails", func(context.Context, consumer.Delivery) ([]byte, error) {
		return nil, consumer.RetryAfter(0, errors.New("no"))
	})
	consumer.HandleTask(&mux, "bad", func(context.Context, consumer.Delivery) ([]byte, error) {
		return nil, consumer.DeadLetter(errors.New("never"))
	})
	w, err := consumer.New(q, consumer.Config{Handler: &mux, Observer: o, Block: 50 * time.Millisecond, HousekeepingEvery: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	o.Watch(w.Status)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(20 * time.Second)
	for s, err := q.Stats(ctx); err != nil || s.Unfinished() > 0; s, err = q.Stats(ctx) {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not done: %+v, %v", s, err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	want(t, reg, map[string]float64{
		"claimq_deliveries_total{queue=a,source=new}":                6,
		"claimq_deliveries_total{queue=a,source=reclaimed}":          1,
		"claimq_reclaimed_entries_total{queue=a}":                    1,
		"claimq_reclaim_sweep_failures_total{queue=a}":               0,
		"claimq_expired_pending_entries{queue=a}":                    0,
		"claimq_processed_total{kind=ok,outcome=completed,queue=a}":  4,
		"claimq_processed_total{kind=fails,outcome=retried,queue=a}": 1,
		"claimq_processed_total{kind=fails,outcome=dead,queue=a}":    1,
		"claimq_processed_total{kind=bad,outcome=dead,queue=a}":      1,
		"claimq_failures_total{queue=a,reason=error}":                3,
		"claimq_dead_lettered_total{queue=a,reason=failures}":        1,
		"claimq_dead_lettered_total{queue=a,reason=rejected}":        1,
		"claimq_dead_lettered_total{queue=a,reason=no_handler}":      0,
		"claimq_promoted_tasks_total{queue=a}":                       2,
		"claimq_dead_entries{queue=a}":                               2,
		"claimq_collector_success{queue=a}":                          1,
		"claimq_worker_state{state=stopped}":                         1,
		"claimq_oldest_lease_age_seconds{}":                          0,
	})
	got := values(t, reg)
	if got["claimq_reclaim_sweeps_total{queue=a}"] == 0 || got["claimq_last_reclaim_sweep_timestamp_seconds{queue=a}"] < float64(time.Now().Unix()-60) {
		t.Error("no sweep is reported")
	}
	for name, n := range map[string]uint64{
		"claimq_wait_duration_seconds":       6, // first attempts
		"claimq_process_duration_seconds":    7,
		"claimq_process_lease_ratio":         7,
		"claimq_end_to_end_duration_seconds": 4,
		"claimq_delivery_attempts":           6,
		"claimq_reclaim_delay_seconds":       1,
	} {
		if got := observations(t, reg, name); got != n {
			t.Errorf("%s was told %d values, want %d", name, got, n)
		}
	}
}
