package main

import "fmt"

// Where an alert sends the reader first.
const (
	toQueue    = "/d/" + queueUID + "?var-queue={{ $labels.queue }}"
	toInstance = "/d/" + workersUID + "?var-instance={{ $labels.instance }}"
	toJob      = "/d/" + workersUID + "?var-job={{ $labels.job }}"
	toOverview = "/d/" + overviewUID
)

// lateAlerts: tasks wait that should not.
var lateAlerts = []alert{{
	name: "ClaimqQueueStalled", severity: critical, wait: "5m",
	expr: `queue:claimq_waiting_entries:max > 0
unless
  queue:claimq_processed:rate10m > 0`,
	summary:     "Queue {{ $labels.queue }} has tasks waiting and has finished none in 10 minutes.",
	description: "Tasks waiting: {{ printf \"%.0f\" $value }}. The workers are gone, frozen, cut off from the server, or all busy with tasks that take longer than this.",
	dashboard:   toQueue,
}, {
	name: "ClaimqOldestWaitingTooOld", severity: critical, wait: "5m",
	expr:        fmt.Sprintf("max by (namespace, queue) (claimq_oldest_waiting_age_seconds) > %d", lateSeconds),
	summary:     "A task of queue {{ $labels.queue }} has waited for {{ $value | humanizeDuration }}.",
	description: "More comes in than the workers get done, or they get nothing done.",
	dashboard:   toQueue,
}, {
	name: "ClaimqWaitSLOBurn", severity: critical, wait: "2m",
	expr: fmt.Sprintf(`queue:claimq_wait_slow:ratio_rate1h > %[1]v * %[2]v
and
queue:claimq_wait_slow:ratio_rate5m > %[1]v * %[2]v`, burnRate, 1-startShare),
	summary: "{{ $value | humanizePercentage }} of the tasks of queue {{ $labels.queue }} started late in the last hour.",
	description: fmt.Sprintf("Late is more than %d s after the task could start; the objective is that %v%% are not. It is still going on.",
		startWithin, 100*startShare),
	dashboard: toQueue,
}, {
	name: "ClaimqBacklogGrowing", severity: warning, wait: "15m",
	expr: fmt.Sprintf(`queue:claimq_waiting_entries:max > %d
and
deriv(queue:claimq_waiting_entries:max[15m]) > 0`, backlogLarge),
	summary:     "The backlog of queue {{ $labels.queue }} has been growing for 15 minutes; waiting: {{ printf \"%.0f\" $value }}.",
	description: "More comes in than gets done. Not an outage yet; it becomes one when tasks wait for longer than they may, or the server runs out of memory.",
	dashboard:   toQueue,
}, {
	name: "ClaimqPromotionLate", severity: warning, wait: "5m",
	expr:        fmt.Sprintf("max by (namespace, queue) (claimq_oldest_overdue_age_seconds) > %d", overdueSeconds),
	summary:     "A scheduled task of queue {{ $labels.queue }} is {{ $value | humanizeDuration }} past its due time.",
	description: "Retries and scheduled tasks do not come back. Workers move them while they run and reach the server.",
	dashboard:   toQueue,
}, {
	name: "ClaimqPendingTooOld", severity: warning, wait: "15m",
	expr: fmt.Sprintf(`max by (namespace, queue) (claimq_oldest_pending_age_seconds)
  -
max by (namespace, queue) (claimq_oldest_waiting_age_seconds)
  > %d`, pendingSeconds),
	summary:     "A task of queue {{ $labels.queue }} was delivered about {{ $value | humanizeDuration }} ago and is not settled.",
	description: "Its handler takes very long or never returns, or it is started again and again without coming to an end.",
	dashboard:   toQueue,
}, {
	name: "ClaimqEnqueueFailing", severity: critical, wait: "5m",
	expr: fmt.Sprintf(`sum by (namespace, queue, reason) (rate(claimq_enqueue_failures_total{reason!="canceled"}[5m]))
  / on (namespace, queue) group_left ()
(queue:claimq_enqueue_asked:rate5m > 0)
  > %v`, enqueueRatio),
	summary:     "{{ $value | humanizePercentage }} of the tasks for queue {{ $labels.queue }} are not accepted: {{ $labels.reason }}.",
	description: "Producers are refused or get no answer. What they do not send again is lost before it was ever in the queue.",
	dashboard:   toQueue,
}}

// failureAlerts: tasks run and do not succeed.
var failureAlerts = []alert{{
	name: "ClaimqFailureRatioHigh", severity: warning, wait: "10m",
	expr: fmt.Sprintf(`queue:claimq_failures_per_processed:ratio_rate10m > %v
and
queue:claimq_processed:rate10m > 1 / 60`, failureRatio),
	summary:     "{{ $value | humanizePercentage }} of the attempts on queue {{ $labels.queue }} fail.",
	description: "A release or something that the handlers depend on. The tasks are tried again with growing waits, and become dead letters in the end.",
	dashboard:   toQueue,
}, {
	name: "ClaimqDeadLettersArriving", severity: warning,
	expr:        arrived("claimq_dead_lettered_total"),
	summary:     "Queue {{ $labels.queue }} has given up on tasks: about {{ printf \"%.0f\" $value }} in 15 minutes.",
	description: "They stay in the dead letters until a person decides. Nothing is lost, and nothing is done.",
	dashboard:   toQueue,
}, {
	name: "ClaimqKindWithoutHandler", severity: warning, wait: "5m",
	expr:        `sum by (namespace, queue) (increase(claimq_failures_total{reason="no_handler"}[10m])) > 0`,
	summary:     "Tasks of queue {{ $labels.queue }} are of a kind that some workers have no handler for.",
	description: "They are handed back and wait for a worker that has one; after an hour, by default, they become dead letters.",
	dashboard:   toQueue,
}, {
	name: "ClaimqEntriesMissing", severity: critical,
	expr:        arrived("claimq_missing_entries_total"),
	summary:     "Tasks of queue {{ $labels.queue }} were deleted or trimmed from outside: about {{ printf \"%.0f\" $value }} are lost.",
	description: "Something other than this product removed entries from the stream. The workers' logs name every task.",
	dashboard:   toQueue,
}}

// recoveryAlerts: work of workers that died does not come back, or too much
// of it has to.
var recoveryAlerts = []alert{{
	name: "ClaimqExpiredLeasesNotReclaimed", severity: critical, wait: "2m",
	expr:        "max by (namespace, queue) (claimq_expired_pending_entries) > 0",
	summary:     "The leases of {{ printf \"%.0f\" $value }} tasks of queue {{ $labels.queue }} have ended and nobody takes them over.",
	description: "Recovery is broken: tasks of workers that died stay where they are. Live workers do this within a second if they have a free slot.",
	dashboard:   toQueue,
}, {
	name: "ClaimqReclaimLoopStuck", severity: warning, wait: "1m",
	// Frozen workers are not scraped, so their last look is remembered for as
	// long as there is something to do.
	expr: fmt.Sprintf(`time() - max by (namespace, queue) (last_over_time(claimq_last_reclaim_sweep_timestamp_seconds[1h])) > %d
and on (namespace, queue)
  (
      max by (namespace, queue) (claimq_last_reclaim_sweep_timestamp_seconds)
    or
      queue:claimq_backlog_entries:sum > 0
  )`, sweepSilent),
	summary:     "No worker has looked for ended leases of queue {{ $labels.queue }} for {{ $value | humanizeDuration }}.",
	description: "The workers are frozen, cut off or gone, or all their slots have been busy for as long. If a worker dies now, its tasks wait.",
	dashboard:   toQueue,
}, {
	name: "ClaimqReclaimRatioHigh", severity: warning, wait: "15m",
	expr:        fmt.Sprintf("queue:claimq_reclaimed_per_deliveries:ratio_rate10m > %v", reclaimRatio),
	summary:     "{{ $value | humanizePercentage }} of the deliveries of queue {{ $labels.queue }} are take-overs.",
	description: "Workers die or freeze again and again: out of memory, a crash, a process manager that does not wait, or too little CPU to renew.",
	dashboard:   toQueue,
}, {
	name: "ClaimqLeasesLost", severity: warning,
	expr:        `sum by (namespace, queue) (increase(claimq_leases_lost_total{how!="revoked"}[10m])) > 0`,
	summary:     "Workers of queue {{ $labels.queue }} lost leases on tasks in hand: about {{ printf \"%.0f\" $value }} in 10 minutes.",
	description: "A second worker may have run the same task. Effects are single only where the handler uses fence, steps or idempotency key.",
	dashboard:   toQueue,
}, {
	name: "ClaimqLeaseTooShort", severity: warning, wait: "30m",
	expr: fmt.Sprintf(`queue_kind:claimq_process_lease_ratio:p99_rate30m > %v
and on (namespace, queue)
  (
      sum by (namespace, queue) (increase(claimq_leases_lost_total{how!="revoked"}[1h]))
    +
      sum by (namespace, queue) (increase(claimq_lease_renewal_failures_total[1h]))
    > 0
  )`, leaseShare),
	summary:     "Handlers of {{ $labels.kind }} in queue {{ $labels.queue }} take {{ $value | humanizePercentage }} of a lease, and renewals fail.",
	description: "Tasks that outlast their lease depend on renewals, and some did not get through. A longer lease survives a longer pause.",
	dashboard:   toQueue,
}}

// arrived holds when a counter has grown within 15 minutes, or has appeared
// with something in it: what a process finds in its first moments was counted
// before it was first scraped, and increase does not see it.
func arrived(counter string) string {
	return fmt.Sprintf(`sum by (namespace, queue) (increase(%[1]s[15m])) > 0
or
sum by (namespace, queue) (%[1]s unless %[1]s offset 15m) > 0`, counter)
}
