package main

var latePanels = []panel{{
	title: "Age of the oldest waiting task", unit: "s", width: 8, limits: upTo(startWithin, lateSeconds), link: "${__field.labels.queue}",
	about:   "A line that climbs at 45 degrees is a queue from which nothing is started.",
	queries: []query{{expr: oldest, legend: "{{queue}}"}},
}, {
	title: "Wait before the first start", unit: "s", width: 8, limits: upTo(startWithin, lateSeconds), exemplars: true,
	about: "From when a task could start to its start. The objective is that 99% start within 30 s.",
	queries: []query{
		{expr: quantile("0.5", "claimq_wait_duration_seconds", sel), legend: "p50"},
		{expr: quantile("0.95", "claimq_wait_duration_seconds", sel), legend: "p95"},
		{expr: quantile("0.99", "claimq_wait_duration_seconds", sel), legend: "p99"},
	},
}, {
	kind: stacked, title: "Unfinished tasks by place", unit: "short", width: 8, colors: colorsOf("waiting", "pending", "scheduled"),
	about: "Pending means delivered to a worker and not settled. Waiting that grows is too little work done; scheduled that grows is retries or future work.",
	queries: []query{
		{expr: "sum(" + waiting + ")", legend: "waiting"},
		{expr: "sum(" + pending + ")", legend: "pending"},
		{expr: "sum(max by (queue) (claimq_scheduled_tasks{" + sel + "}))", legend: "scheduled"},
	},
}, {
	title: "In and out", unit: "cps", width: 12,
	about: "Work is late in the end if less is finished than enters. Entries that enter include retries whose time has come.",
	queries: []query{
		{expr: "sum(max by (queue) (rate(claimq_entries_added_total{" + sel + "}[$__rate_interval])))", legend: "enter the stream"},
		{expr: "sum(rate(claimq_enqueued_total{" + sel + "}[$__rate_interval]))", legend: "accepted from producers that report"},
		{expr: "sum(" + finished + ")", legend: "attempts finished"},
	},
}, {
	title: "Time until the backlog is gone", unit: "s", width: 12, noValue: "Nothing waits",
	about: "Waiting tasks at the speed at which their number falls now. A gap means that nothing waits or that the number does not fall.",
	queries: []query{{
		expr:   "sum(" + waiting + ") / -(sum(max by (queue) (deriv(claimq_waiting_entries{" + sel + "}[$__rate_interval]))) < 0)",
		legend: "time left",
	}},
}}

var failingPanels = []panel{{
	kind: stacked, title: "Tasks that left a worker, by outcome", unit: "cps", width: 8,
	colors:  colorsOf("completed", "retried", "released", "dead", "lost"),
	about:   "Green is done. Orange is tried again later, red is given up, dark red had its lease lost; blue was handed back untouched.",
	queries: []query{{expr: "sum by (outcome) (rate(claimq_processed_total{" + sel + "}[$__rate_interval]))", legend: "{{outcome}}"}},
}, {
	title: "Share of attempts that fail", unit: "percentunit", width: 8, limits: upTo(0, failureRatio), max: 1, link: "${__field.labels.queue}",
	about:   "One queue that fails is its handler or what it calls. All at once is a release, the network, or something that all of them need.",
	queries: []query{{expr: failureShare, legend: "{{queue}}"}},
}, {
	title: "Failed attempts by reason", unit: "cps", width: 8,
	about:   "error: the handler said so. panic: a bug. timeout: it took too long. decode: the payload is not what it expects. no_handler: a worker without this kind. canceled: the worker stopped or lost the lease.",
	queries: []query{{expr: "sum by (reason) (rate(claimq_failures_total{" + sel + "}[$__rate_interval]))", legend: "{{reason}}"}},
}, {
	kind: bars, title: "New dead letters", unit: "short", width: 12,
	about:   "Tasks given up, by reason. Each bar needs a person: mend the cause, then redrive.",
	queries: []query{{expr: "sum by (reason) (increase(claimq_dead_lettered_total{" + sel + "}[$__interval]))", legend: "{{reason}}"}},
}, {
	kind: bars, title: "Tasks lost from outside", unit: "short", width: 12,
	about:   "Entries that something else deleted or trimmed while their task was not done. Anything but nothing here is lost work.",
	queries: []query{{expr: "sum by (queue) (increase(claimq_missing_entries_total{" + sel + "}[$__interval]))", legend: "{{queue}}"}},
	link:    "${__field.labels.queue}",
}}

var workingPanels = []panel{{
	title: "Busy share of slots", unit: "percentunit", width: 8, max: 1, limits: upTo(0, saturatedRatio),
	about:   "At 100% more workers, more slots or faster handlers are needed, and nothing is left to take over what others lost.",
	queries: []query{{expr: "sum by (job) (claimq_worker_busy_slots{" + proc + "}) / (sum by (job) (claimq_worker_slots{" + proc + "}) > 0)", legend: "{{job}}"}},
}, {
	title: "Live workers by queue", unit: "short", width: 8, link: "${__field.labels.queue}",
	about:   "Workers that give a sign of life, as the server knows them. A queue at 0 has nobody.",
	queries: []query{{expr: active, legend: "{{queue}}"}},
}, {
	kind: stacked, title: "Workers by state", unit: "short", width: 8,
	about: "Running and ready is what they should be. Running and not ready takes no tasks: it is frozen or does not reach the server.",
	queries: []query{
		{expr: "count(claimq_worker_ready{" + proc + "} == 1)", legend: "ready"},
		{expr: `count((claimq_worker_state{` + proc + `,state="running"} == 1) and on (job, instance) claimq_worker_ready{` + proc + `} == 0)`, legend: "running, not ready"},
		{expr: `sum(claimq_worker_state{` + proc + `,state="starting"})`, legend: "starting"},
		{expr: `sum(claimq_worker_state{` + proc + `,state="draining"})`, legend: "draining"},
	},
	colors: map[string]string{"ready": good, "running, not ready": bad, "starting": quiet, "draining": wary},
}}

var recoveryPanels = []panel{{
	title: "Ended leases, not taken over", unit: "short", width: 8, limits: upTo(0, 1), link: "${__field.labels.queue}",
	about:   "Short spikes are workers that died and were replaced. A plateau is recovery that does not work.",
	queries: []query{{expr: ended, legend: "{{queue}}"}},
}, {
	title: "Tasks taken over", unit: "cps", width: 8, link: "${__field.labels.queue}",
	about:   "A burst is a worker that died. A steady line is workers that die again and again.",
	queries: []query{{expr: "sum by (queue) (rate(claimq_reclaimed_entries_total{" + sel + "}[$__rate_interval]))", legend: "{{queue}}"}},
}, {
	title: "Delay of taking over", unit: "s", width: 8, noValue: "None was taken over",
	about: "From the end of a lease to the moment another worker has the task. About a second where workers have free slots.",
	queries: []query{
		{expr: quantile("0.5", "claimq_reclaim_delay_seconds", sel), legend: "p50"},
		{expr: quantile("0.99", "claimq_reclaim_delay_seconds", sel), legend: "p99"},
	},
}, {
	title: "Leases lost and outcomes refused", unit: "cps", width: 12,
	about: "expired: not renewed in time. server: somebody else has the task. revoked: the task was deleted. A refused outcome means that a task ran twice or will.",
	queries: []query{
		{expr: "sum by (how) (rate(claimq_leases_lost_total{" + sel + "}[$__rate_interval]))", legend: "lost: {{how}}"},
		{expr: "sum(rate(claimq_refused_settles_total{" + sel + "}[$__rate_interval]))", legend: "outcomes refused"},
	},
}, {
	title: "Since a worker last looked for ended leases", unit: "s", width: 12, limits: upTo(0, sweepSilent), link: "${__field.labels.queue}",
	about:   "Seconds while any worker has a free slot. A line that climbs: all are frozen, cut off, busy, or gone.",
	queries: []query{{expr: sweepAge, legend: "{{queue}}"}},
}}

// quantile of a histogram over all selected series.
func quantile(q, name, selector string) string {
	return "histogram_quantile(" + q + ", sum by (le) (rate(" + name + "_bucket{" + selector + "}[$__rate_interval])))"
}

// quantileBy keeps a label.
func quantileBy(q, label, name, selector string) string {
	return "histogram_quantile(" + q + ", sum by (" + label + ", le) (rate(" + name + "_bucket{" + selector + "}[$__rate_interval])))"
}
