package main

var queueLeases = []panel{{
	title: "Ended leases, not taken over", unit: "short", width: 8, limits: upTo(0, 1),
	about:   "Short spikes are workers that died and were replaced. A plateau is recovery that does not work.",
	queries: []query{{expr: ended, legend: "{{queue}}"}},
}, {
	title: "Share of deliveries that are take-overs", unit: "percentunit", width: 8, limits: upTo(0, reclaimRatio),
	about: "Above the line for long: workers die or freeze again and again, or are killed while they work.",
	queries: []query{{
		expr: `sum by (queue) (rate(claimq_deliveries_total{` + sel + `,source="reclaimed"}[$__rate_interval])) / ` +
			`(sum by (queue) (rate(claimq_deliveries_total{` + sel + `}[$__rate_interval])) > 0)`,
		legend: "{{queue}}",
	}},
}, {
	title: "Delay of taking over", unit: "s", width: 8, noValue: "None was taken over",
	about: "From the end of a lease to the moment another worker has the task. About a second where workers have free slots.",
	queries: []query{
		{expr: quantile("0.5", "claimq_reclaim_delay_seconds", sel), legend: "p50"},
		{expr: quantile("0.99", "claimq_reclaim_delay_seconds", sel), legend: "p99"},
	},
}, {
	title: "Leases lost, outcomes refused", unit: "cps", width: 8,
	about: "expired: not renewed in time. server: somebody else has the task. revoked: the task was deleted. Refused: a handler ended after its task was taken over.",
	queries: []query{
		{expr: "sum by (how) (rate(claimq_leases_lost_total{" + sel + "}[$__rate_interval]))", legend: "lost: {{how}}"},
		{expr: "sum(rate(claimq_refused_settles_total{" + sel + "}[$__rate_interval]))", legend: "outcomes refused"},
	},
}, {
	title: "Renewals", unit: "cps", width: 8,
	about: "Each lease is renewed a third into its length. One that fails is asked again; several in a row lose the lease.",
	queries: []query{
		{expr: "sum(rate(claimq_lease_renewals_total{" + sel + "}[$__rate_interval]))", legend: "asked"},
		{expr: "sum(rate(claimq_lease_renewal_failures_total{" + sel + "}[$__rate_interval]))", legend: "failed"},
	},
	colors: map[string]string{"asked": good, "failed": bad},
}, {
	title: "Passes in search of ended leases", unit: "cps", width: 8,
	about: "By all workers together. None at all: all are frozen, cut off, or busy. Failed ones are the server's doing.",
	queries: []query{
		{expr: "sum(rate(claimq_reclaim_sweeps_total{" + sel + "}[$__rate_interval]))", legend: "passes"},
		{expr: "sum(rate(claimq_reclaim_sweep_failures_total{" + sel + "}[$__rate_interval]))", legend: "failed"},
	},
	colors: map[string]string{"passes": good, "failed": bad},
}, {
	title: "Consumers", unit: "short", width: 8, colors: colorsOf("active", "stale"),
	about:   "Names of workers in the group. Stale ones give no sign of life; they go once nothing is pending under them.",
	queries: []query{{expr: "sum by (state) (max by (queue, state) (claimq_consumers{" + sel + "}))", legend: "{{state}}"}},
}, {
	kind: rows, title: "Length of a lease", unit: "s", width: 8, keys: []string{"queue", "job"},
	about: "As the processes are configured. Shortest and longest differ, or two jobs do: processes that disagree.",
	queries: []query{
		{"min by (queue, job) (claimq_queue_lease_seconds{" + sel + "})", "Shortest", column{unit: "s"}},
		{"max by (queue, job) (claimq_queue_lease_seconds{" + sel + "})", "Longest", column{unit: "s"}},
	},
}, {
	title: "Reading the state", unit: "s", width: 8,
	about:   "What one read of these numbers from the server takes, in the slowest process that can. A gap: nobody can, and the numbers above are unknown, not 0.",
	noValue: "Nobody can",
	queries: []query{{
		expr:   "max by (queue) (claimq_collector_duration_seconds{" + sel + "} and claimq_collector_success{" + sel + "} == 1)",
		legend: "{{queue}}",
	}},
}}

var queueRest = []panel{{
	title: "Scheduled tasks that came due", unit: "cps", width: 8,
	about:   "Retries and tasks for later, moved to the stream when their time had come.",
	queries: []query{{expr: "sum by (queue) (rate(claimq_promoted_tasks_total{" + sel + "}[$__rate_interval]))", legend: "{{queue}}"}},
}, {
	title: "Duplicates", unit: "cps", width: 8,
	about: "Not accepted: a producer sent an ID that was known. Not run: a copy of an entry whose task is live or done. Both are protection at work; a flood is a producer in a loop.",
	queries: []query{
		{expr: "sum(rate(claimq_enqueue_duplicates_total{" + sel + "}[$__rate_interval]))", legend: "not accepted"},
		{expr: "sum(rate(claimq_duplicates_suppressed_total{" + sel + "}[$__rate_interval]))", legend: "not run"},
	},
}, {
	title: "Recorded steps", unit: "cps", width: 8,
	about:   "first: called for the first time. again: called once more, outcome of the first call unknown. replayed: not called, its result was on record. conflict: two results that differ; look at the task.",
	queries: []query{{expr: "sum by (outcome) (rate(claimq_steps_total{" + sel + "}[$__rate_interval]))", legend: "{{outcome}}"}},
	colors:  map[string]string{"first": good, "recorded": "light-blue", "replayed": quiet, "again": "purple", "conflict": bad, "failed": wary},
}}
