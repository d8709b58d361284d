package main

func workersBoard() ([]byte, error) {
	return newDashboard(workersUID, "claimq / Workers",
		"The processes: are they alive, do their loops move, are their slots enough, and does the server answer them?",
		[]row{
			{"Now", workersNow},
			{"Slots and tasks in hand", workersSlots},
			{"Alive and moving", workersLoops},
			{"Part in the work", workersShare},
			{"The way to the server", workersServer},
			{"Processes", workersProcess},
		})
}

var workersNow = []panel{{
	kind: number, title: "Take tasks", unit: "short", width: 4, height: 4, limits: []limit{{0, bad}, {1, good}},
	about:   "Workers that are ready.",
	queries: []query{{expr: "count(claimq_worker_ready{" + proc + "} == 1) or vector(0)"}},
}, {
	kind: number, title: "Take none", unit: "short", width: 4, height: 4, limits: []limit{{0, good}, {1, wary}},
	about:   "Workers that are not ready: starting, draining, frozen, or without a server. Their /readyz says which.",
	queries: []query{{expr: "count(claimq_worker_ready{" + proc + "} == 0) or vector(0)"}},
}, {
	kind: number, title: "Do not answer", unit: "short", width: 4, height: 4, limits: []limit{{0, good}, {1, wary}},
	about:   "Processes that Prometheus knows and cannot scrape.",
	queries: []query{{expr: "count(up{" + proc + "} == 0) or vector(0)"}},
}, {
	kind: number, title: "Busy", unit: "percentunit", width: 4, height: 4, noValue: unknown, limits: upTo(0, saturatedRatio), max: 1,
	about:   "Share of all slots in use.",
	queries: []query{{expr: "sum(claimq_worker_busy_slots{" + proc + "}) / (sum(claimq_worker_slots{" + proc + "}) > 0)"}},
}, {
	kind: number, title: "Stuck handlers", unit: "short", width: 4, height: 4, noValue: unknown, limits: []limit{{0, good}, {1, bad}},
	about:   "Handlers that go on after their timeout and grace. Only a restart ends them.",
	queries: []query{{expr: "sum(claimq_worker_stuck_handlers{" + proc + "})"}},
}, {
	kind: number, title: "Round trips that fail", unit: "percentunit", width: 4, height: 4, noValue: "None made", limits: upTo(0, redisErrorRatio),
	about: "Share of commands to the server that fail or get no answer.",
	queries: []query{{expr: "sum(rate(claimq_redis_command_failures_total{" + proc + "}[$__rate_interval])) / " +
		"(sum(rate(claimq_redis_command_failures_total{" + proc + "}[$__rate_interval])) + " +
		"(sum(rate(claimq_redis_command_duration_seconds_count{" + proc + "}[$__rate_interval])) or vector(0)) > 0)"}},
}}

var workersSlots = []panel{{
	title: "Busy share of slots", unit: "percentunit", width: 8, max: 1, limits: upTo(0, saturatedRatio),
	about:   "At 100% this worker takes nothing more, and takes over nothing.",
	queries: []query{{expr: "max by (instance) (claimq_worker_busy_slots{" + proc + "} / (claimq_worker_slots{" + proc + "} > 0))", legend: "{{instance}}"}},
}, {
	title: "In hand and not running", unit: "short", width: 8,
	about: "Held: leased, and its handler has not begun. Unsettled: done, and the server has not taken the outcome; a number that grows is a server that does not answer.",
	queries: []query{
		{expr: "sum by (instance) (claimq_worker_held_tasks{" + proc + "})", legend: "held, {{instance}}"},
		{expr: "sum by (instance) (claimq_worker_unsettled_tasks{" + proc + "})", legend: "unsettled, {{instance}}"},
	},
}, {
	title: "Oldest lease held", unit: "s", width: 8,
	about:   "How long a worker has had the task that it has longest. A line that climbs alone is a handler that does not return.",
	queries: []query{{expr: "max by (instance) (claimq_oldest_lease_age_seconds{" + proc + "})", legend: "{{instance}}"}},
}}

var stateWords = []word{
	{1, 1, "starting", quiet}, {2, 2, "running", good}, {3, 3, "draining", wary}, {4, 4, "stopped", bad},
}

var workersLoops = []panel{{
	kind: timeline, title: "State", unit: "none", width: 12, words: stateWords,
	about: "What each worker is doing with its life. Many short lives are crashes or a process manager that kills.",
	queries: []query{{
		expr: `max by (instance) (
  1 * (claimq_worker_state{` + proc + `,state="starting"} == 1)
or
  2 * (claimq_worker_state{` + proc + `,state="running"} == 1)
or
  3 * (claimq_worker_state{` + proc + `,state="draining"} == 1)
or
  4 * (claimq_worker_state{` + proc + `,state="stopped"} == 1)
)`,
		legend: "{{instance}}",
	}},
}, {
	title: "Since each loop last moved", unit: "s", width: 12, limits: upTo(0, loopSilent),
	about:   "Seconds, also when there is nothing to do. A line that climbs is a loop that hangs: restart the worker.",
	queries: []query{{expr: "time() - max by (instance, loop) (claimq_loop_heartbeat_timestamp_seconds{" + proc + "})", legend: "{{loop}}, {{instance}}"}},
}, {
	title: "Stuck handlers", unit: "short", width: 12,
	about:   "Handlers that ignore the end of their context. Their tasks run again elsewhere.",
	queries: []query{{expr: "max by (instance) (claimq_worker_stuck_handlers{" + proc + "})", legend: "{{instance}}"}},
}, {
	kind: bars, title: "Names removed from the group", unit: "short", width: 12,
	about:   "Workers clear away the names of workers that are gone. Bars without end are processes that start and die all the time.",
	queries: []query{{expr: "sum by (queue) (increase(claimq_consumers_removed_total{" + sel + "}[$__interval]))", legend: "{{queue}}"}},
}}

var workersShare = []panel{{
	title: "Tasks that left each worker", unit: "cps", width: 8,
	about:   "Workers of one deployment should be near each other. One at 0 among others is stuck, cut off, or stopped.",
	queries: []query{{expr: "sum by (instance) (rate(claimq_processed_total{" + sel + "}[$__rate_interval]))", legend: "{{instance}}"}},
}, {
	title: "Failed attempts by worker", unit: "cps", width: 8,
	about:   "One worker alone: its machine, network or release. All of them: what the handlers depend on.",
	queries: []query{{expr: "sum by (instance) (rate(claimq_failures_total{" + sel + "}[$__rate_interval]))", legend: "{{instance}}"}},
}, {
	title: "Leases lost by worker", unit: "cps", width: 8,
	about:   "One worker alone is short of CPU or cut off from the server.",
	queries: []query{{expr: "sum by (instance) (rate(claimq_leases_lost_total{" + sel + "}[$__rate_interval]))", legend: "{{instance}}"}},
}}
