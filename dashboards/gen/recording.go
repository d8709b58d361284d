package main

import "fmt"

// Recorded names are level:metric:operation. All keep the target label
// namespace, so that two installations under one Prometheus stay apart.
//
// State is the same from every process that exports it, so it is max by queue
// before anything else.
func recordingRules() ruleGroup {
	return ruleGroup{Name: "claimq-recording", Interval: "30s", Rules: []rule{{
		Record: "queue:claimq_waiting_entries:max",
		Expr:   "max by (namespace, queue) (claimq_waiting_entries)",
	}, {
		Record: "queue:claimq_pending_entries:max",
		Expr:   "max by (namespace, queue) (claimq_pending_entries)",
	}, {
		Record: "queue:claimq_backlog_entries:sum",
		Expr:   "queue:claimq_waiting_entries:max + queue:claimq_pending_entries:max",
	}, {
		// Attempts that ended with a verdict; handed back or lost is none.
		Record: "queue:claimq_processed:rate10m",
		Expr:   `sum by (namespace, queue) (rate(claimq_processed_total{outcome=~"completed|retried|dead"}[10m]))`,
	}, {
		Record: "queue:claimq_failures_per_processed:ratio_rate10m",
		Expr: `sum by (namespace, queue) (rate(claimq_processed_total{outcome=~"retried|dead"}[10m]))
  /
(queue:claimq_processed:rate10m > 0)`,
	}, {
		Record: "queue:claimq_reclaimed_per_deliveries:ratio_rate10m",
		Expr: `sum by (namespace, queue) (rate(claimq_reclaimed_entries_total[10m]))
  /
(sum by (namespace, queue) (rate(claimq_deliveries_total[10m])) > 0)`,
	}, {
		Record: "queue:claimq_wait_slow:ratio_rate5m",
		Expr:   slowShare("5m"),
	}, {
		Record: "queue:claimq_wait_slow:ratio_rate1h",
		Expr:   slowShare("1h"),
	}, {
		Record: "queue_kind:claimq_process_lease_ratio:p99_rate30m",
		Expr:   "histogram_quantile(0.99, sum by (namespace, queue, kind, le) (rate(claimq_process_lease_ratio_bucket[30m])))",
	}, {
		Record: "queue:claimq_enqueue_asked:rate5m",
		Expr: `sum by (namespace, queue) (rate(claimq_enqueued_total[5m]))
  +
sum by (namespace, queue) (rate(claimq_enqueue_duplicates_total[5m]))
  +
sum by (namespace, queue) (rate(claimq_enqueue_failures_total{reason!="canceled"}[5m]))`,
	}, {
		Record: "job:claimq_busy_slots_per_slots:ratio",
		Expr: `sum by (namespace, job) (claimq_worker_busy_slots)
  /
(sum by (namespace, job) (claimq_worker_slots) > 0)`,
	}, {
		// A server that is away answers nothing, so failures are in both parts.
		// One that does not know a script yet is sent it whole: no failure.
		Record: "job:claimq_redis_failures_per_commands:ratio_rate5m",
		Expr: `sum by (namespace, job) (rate(claimq_redis_command_failures_total{reason!="noscript"}[5m]))
  /
(
    sum by (namespace, job) (rate(claimq_redis_command_failures_total{reason!="noscript"}[5m]))
  +
    (
        sum by (namespace, job) (rate(claimq_redis_command_duration_seconds_count[5m]))
      or
        0 * sum by (namespace, job) (rate(claimq_redis_command_failures_total{reason!="noscript"}[5m]))
    )
  > 0
)`,
	}}}
}

// slowShare is the share of first attempts that started later than they should.
// Prometheus 3 writes bucket bounds as floats, earlier ones as they came.
func slowShare(window string) string {
	return fmt.Sprintf(`1
  -
sum by (namespace, queue) (rate(claimq_wait_duration_seconds_bucket{le=~"%[1]d|%[1]d.0"}[%[2]s]))
  /
(sum by (namespace, queue) (rate(claimq_wait_duration_seconds_count[%[2]s])) > 0)`, startWithin, window)
}
