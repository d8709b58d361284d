package main

func queueBoard() ([]byte, error) {
	return newDashboard(queueUID, "claimq / Queue",
		"One queue from its entrance to its end: what comes in, how long it waits, how it ends, and what had to be done twice. Choose a queue above.",
		[]row{
			{"Now", queueNow},
			{"In and out", queueFlow},
			{"How long it takes", queueTimes},
			{"How it ends", queueEnds},
			{"Leases and recovery", queueLeases},
			{"Retries, schedule and duplicates", queueRest},
		})
}

var queueNow = []panel{{
	kind: number, title: "Oldest waiting", unit: "s", width: 4, height: 4, noValue: unknown, limits: upTo(startWithin, lateSeconds),
	about:   "Age of the task that has waited longest.",
	queries: []query{{expr: "max(" + oldest + ")"}},
}, {
	kind: number, title: "Waiting", unit: "short", width: 4, height: 4, noValue: unknown, limits: upTo(0, backlogLarge),
	about:   "Tasks that no worker has yet.",
	queries: []query{{expr: "sum(" + waiting + ")"}},
}, {
	kind: number, title: "Pending", unit: "short", width: 4, height: 4, noValue: unknown,
	about:   "Tasks that a worker has and has not settled. It cannot be more than all workers can hold, unless workers died.",
	queries: []query{{expr: "sum(" + pending + ")"}},
	limits:  []limit{{0, quiet}},
}, {
	kind: number, title: "Oldest pending", unit: "s", width: 4, height: 4, noValue: unknown, limits: upTo(0, pendingSeconds),
	about:   "How long ago the oldest task in a worker's hands entered the stream, its wait included. Far above the time of a handler: one that never returns.",
	queries: []query{{expr: "max(max by (queue) (claimq_oldest_pending_age_seconds{" + sel + "}))"}},
}, {
	kind: number, title: "Overdue", unit: "s", width: 4, height: 4, noValue: unknown, limits: upTo(0, overdueSeconds),
	about:   "How far past its time the earliest scheduled task is. Above a few seconds nobody moves what is due.",
	queries: []query{{expr: "max(max by (queue) (claimq_oldest_overdue_age_seconds{" + sel + "}))"}},
}, {
	kind: number, title: "Dead letters", unit: "short", width: 4, height: 4, noValue: unknown, limits: []limit{{0, good}, {1, wary}},
	about:   "Tasks that were given up and wait for a person.",
	queries: []query{{expr: "sum(max by (queue) (claimq_dead_entries{" + sel + "}))"}},
}}

var queueFlow = []panel{{
	title: "Accepted, by kind", unit: "cps", width: 8,
	about:   "New tasks from producers that report metrics. A kind that stops is a producer that stopped.",
	queries: []query{{expr: "sum by (kind) (rate(claimq_enqueued_total{" + sel + "}[$__rate_interval]))", legend: "{{kind}}"}},
}, {
	title: "Not accepted, by reason", unit: "cps", width: 8,
	about:   "full: the bound of the backlog. unavailable, indefinite: the server. invalid: the producer's own mistake. What producers do not send again is lost.",
	queries: []query{{expr: "sum by (reason) (rate(claimq_enqueue_failures_total{" + sel + "}[$__rate_interval]))", legend: "{{reason}}"}},
}, {
	title: "Time to enqueue", unit: "s", width: 8,
	about: "One call of a producer, repeats included. It grows with the size of batches and the distance to the server.",
	queries: []query{
		{expr: quantile("0.5", "claimq_enqueue_duration_seconds", sel), legend: "p50"},
		{expr: quantile("0.99", "claimq_enqueue_duration_seconds", sel), legend: "p99"},
	},
}, {
	kind: stacked, title: "Unfinished tasks by place", unit: "short", width: 8, colors: colorsOf("waiting", "pending", "scheduled"),
	about: "Where the unfinished tasks are. What is done has left.",
	queries: []query{
		{expr: "sum(" + waiting + ")", legend: "waiting"},
		{expr: "sum(" + pending + ")", legend: "pending"},
		{expr: "sum(max by (queue) (claimq_scheduled_tasks{" + sel + "}))", legend: "scheduled"},
	},
}, {
	title: "Delivered to workers", unit: "cps", width: 8, colors: colorsOf("new", "reclaimed"),
	about:   "Green is new work; orange is work of a worker that died or was cut off.",
	queries: []query{{expr: "sum by (source) (rate(claimq_deliveries_total{" + sel + "}[$__rate_interval]))", legend: "{{source}}"}},
}, {
	title: "Payload size", unit: "bytes", width: 8,
	about: "Of accepted tasks. The backlog takes about this much memory of the server for each task, and some more.",
	queries: []query{
		{expr: quantile("0.5", "claimq_enqueue_payload_bytes", sel), legend: "p50"},
		{expr: quantile("0.99", "claimq_enqueue_payload_bytes", sel), legend: "p99"},
	},
}}

var queueTimes = []panel{{
	title: "Wait before the first start", unit: "s", width: 8, limits: upTo(startWithin, lateSeconds), exemplars: true,
	about: "From when a task could start to its start. Points are single tasks with a trace.",
	queries: []query{
		{expr: quantile("0.5", "claimq_wait_duration_seconds", sel), legend: "p50"},
		{expr: quantile("0.99", "claimq_wait_duration_seconds", sel), legend: "p99"},
	},
}, {
	title: "Time of a handler, slowest kinds", unit: "s", width: 8, exemplars: true,
	about:   "95th percentile of one attempt, the five slowest kinds. One that climbs alone has a slow dependency.",
	queries: []query{{expr: "topk(5, " + quantileBy("0.95", "kind", "claimq_process_duration_seconds", sel) + ")", legend: "{{kind}}"}},
}, {
	title: "From accepted to done", unit: "s", width: 8, exemplars: true,
	about: "Over all attempts, waits and retries: what whoever enqueued the task sees.",
	queries: []query{
		{expr: quantile("0.5", "claimq_end_to_end_duration_seconds", sel), legend: "p50"},
		{expr: quantile("0.99", "claimq_end_to_end_duration_seconds", sel), legend: "p99"},
	},
}, {
	kind: heat, title: "Time of a handler", unit: "s", width: 12, exemplars: true,
	about:   "How many attempts took how long. Two bands are two kinds of work, or a dependency that sometimes times out.",
	queries: []query{{expr: "sum by (le) (increase(claimq_process_duration_seconds_bucket{" + sel + "}[$__rate_interval]))"}},
}, {
	title: "Time of a handler in leases", unit: "percentunit", width: 12, limits: upTo(0, leaseShare),
	about:   "99th percentile by kind. Above the line tasks depend on renewals: fine while those get through, and a reason for a longer lease where they do not.",
	queries: []query{{expr: quantileBy("0.99", "kind", "claimq_process_lease_ratio", sel), legend: "{{kind}}"}},
}}

var queueEnds = []panel{{
	kind: stacked, title: "Tasks that left a worker, by outcome", unit: "cps", width: 8,
	colors:  colorsOf("completed", "retried", "released", "dead", "lost"),
	about:   "Green is done. Orange is tried again later, red is given up, dark red had its lease lost; blue was handed back untouched.",
	queries: []query{{expr: "sum by (outcome) (rate(claimq_processed_total{" + sel + "}[$__rate_interval]))", legend: "{{outcome}}"}},
}, {
	title: "Failed attempts by reason", unit: "cps", width: 8,
	about:   "error and timeout are mostly what the handler calls, panic and decode the handler itself, no_handler a worker of another release.",
	queries: []query{{expr: "sum by (reason) (rate(claimq_failures_total{" + sel + "}[$__rate_interval]))", legend: "{{reason}}"}},
}, {
	title: "Share of attempts that fail, worst kinds", unit: "percentunit", width: 8, max: 1, limits: upTo(0, failureRatio),
	about: "The five worst. One kind is its handler; all kinds are something that they share.",
	queries: []query{{
		expr: `topk(5, sum by (kind) (rate(claimq_processed_total{` + sel + `,outcome=~"retried|dead"}[$__rate_interval])) / ` +
			`(sum by (kind) (rate(claimq_processed_total{` + sel + `,outcome=~"completed|retried|dead"}[$__rate_interval])) > 0))`,
		legend: "{{kind}}",
	}},
}, {
	kind: bars, title: "New dead letters", unit: "short", width: 8,
	about:   "failures: tried as often as is allowed. interruptions: it killed or outlived its workers. rejected: the handler said never. Each needs a person.",
	queries: []query{{expr: "sum by (reason) (increase(claimq_dead_lettered_total{" + sel + "}[$__interval]))", legend: "{{reason}}"}},
}, {
	title: "Attempts that a task needed", unit: "short", width: 8,
	about: "Of tasks that were completed or given up. 1 is the normal case; 99 of 100 needed no more than p99.",
	queries: []query{
		{expr: "sum(rate(claimq_delivery_attempts_sum{" + sel + "}[$__rate_interval])) / (sum(rate(claimq_delivery_attempts_count{" + sel + "}[$__rate_interval])) > 0)", legend: "mean"},
		{expr: "ceil(" + quantile("0.99", "claimq_delivery_attempts", sel) + ")", legend: "p99"},
	},
}, {
	kind: bars, title: "Tasks lost from outside", unit: "short", width: 8,
	about:   "Entries that something else deleted or trimmed while their task was not done. Anything but nothing here is lost work.",
	queries: []query{{expr: "sum by (queue) (increase(claimq_missing_entries_total{" + sel + "}[$__interval]))", legend: "{{queue}}"}},
}}
