package main

import "fmt"

// ending is a worker that has stopped some of its loops on purpose.
const ending = `max by (namespace, job, instance) (claimq_worker_state{state=~"draining|stopped"}) == 1`

// workerAlerts: processes that do not do their part.
var workerAlerts = []alert{{
	name: "ClaimqNoActiveConsumers", severity: critical, wait: "2m",
	expr: `queue:claimq_backlog_entries:sum > 0
and on (namespace, queue)
  max by (namespace, queue) (claimq_consumers{state="active"}) == 0`,
	summary:     "Nobody works on queue {{ $labels.queue }}; tasks not done: {{ printf \"%.0f\" $value }}.",
	description: "No worker gives a sign of life.",
	dashboard:   toQueue,
}, {
	name: "ClaimqWorkersSaturated", severity: warning, wait: "15m",
	expr:        fmt.Sprintf("job:claimq_busy_slots_per_slots:ratio > %v", saturatedRatio),
	summary:     "Workers of {{ $labels.job }} have used {{ $value | humanizePercentage }} of their slots for 15 minutes.",
	description: "More work needs more slots, more workers or faster handlers. Workers without a free slot take over nothing.",
	dashboard:   toJob,
}, {
	name: "ClaimqWorkerLoopStuck", severity: critical, wait: "1m",
	expr: fmt.Sprintf(`time() - max by (namespace, job, instance, loop) (claimq_loop_heartbeat_timestamp_seconds) > %d
unless on (namespace, job, instance)
  %s`, loopSilent, ending),
	summary:     "Loop {{ $labels.loop }} of {{ $labels.instance }} has not moved for {{ $value | humanizeDuration }}.",
	description: "The process lives and does not do its work. It stops renewing by itself, so that others get its tasks; it has to be restarted.",
	dashboard:   toInstance,
}, {
	name: "ClaimqStuckHandlers", severity: warning, wait: "5m",
	expr:        "max by (namespace, job, instance) (claimq_worker_stuck_handlers) > 0",
	summary:     "Handlers of {{ $labels.instance }} go on after their timeout: {{ printf \"%.0f\" $value }}.",
	description: "They ignore the end of their context. Their tasks run again elsewhere, and what they do now they do without a lease.",
	dashboard:   toInstance,
}, {
	name: "ClaimqWorkerNotReady", severity: warning, wait: "5m",
	expr: fmt.Sprintf(`max by (namespace, job, instance) (claimq_worker_ready) == 0
unless on (namespace, job, instance)
  %s`, ending),
	summary:     "Worker {{ $labels.instance }} has taken no tasks for 5 minutes.",
	description: "It does not reach the server, is refused by it, cannot hand in its outcomes, or is not healthy. Its /readyz says which.",
	dashboard:   toInstance,
}, {
	name: "ClaimqProcessUnreachable", severity: warning, wait: "5m",
	expr: `up == 0
and on (namespace, job, instance)
  last_over_time(claimq_build_info[1d])`,
	summary:     "{{ $labels.instance }} of {{ $labels.job }} does not answer the scrape.",
	description: "It answered within the last day. It is down, suspended or cut off; what it had in hand is taken over when the leases end.",
	dashboard:   toInstance,
}}

// serverAlerts: the server, the way to it, and what is seen of it.
var serverAlerts = []alert{{
	name: "ClaimqStateCollectorFailing", severity: critical, wait: "5m",
	expr:        "max by (namespace, queue) (claimq_collector_success) == 0",
	summary:     "No process can read the state of queue {{ $labels.queue }} from the server.",
	description: "The server is away or refuses. Until it answers, alerts about waiting, pending and ended leases of this queue are blind.",
	dashboard:   toQueue,
}, {
	name: "ClaimqStateMetricsAbsent", severity: critical, wait: "10m",
	expr: `(
    group by (namespace, queue) (last_over_time(claimq_collector_success[1h]))
  unless
    group by (namespace, queue) (claimq_collector_success)
)
or
absent(claimq_collector_success)`,
	summary:     "Nothing reports the state of {{ if $labels.queue }}queue {{ $labels.queue }}{{ else }}any queue{{ end }}.",
	description: "No worker and no exporter is scraped, so tasks that wait or are stuck are not seen. Run a standing exporter where workers may be absent.",
	dashboard:   toOverview,
}, {
	name: "ClaimqRedisErrors", severity: warning, wait: "5m",
	expr:        fmt.Sprintf("job:claimq_redis_failures_per_commands:ratio_rate5m > %v", redisErrorRatio),
	summary:     "{{ $value | humanizePercentage }} of the round trips of {{ $labels.job }} to the server fail.",
	description: "Calls are repeated, and outcomes kept until the server takes them. If it lasts, leases end and tasks run again.",
	dashboard:   toJob,
}, {
	name: "ClaimqRedisPoolExhausted", severity: warning, wait: "5m",
	expr:        "sum by (namespace, job, instance) (rate(claimq_redis_pool_timeouts_total[5m])) > 0",
	summary:     "{{ $labels.instance }} does not get connections to the server in time.",
	description: "All connections of its pool are in use for longer than a caller waits. Renewals that come too late for this lose leases.",
	dashboard:   toInstance,
}}
