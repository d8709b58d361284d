package main

var workersServer = []panel{{
	title: "Round trip by command", unit: "s", width: 8,
	about:   "99th percentile, blocking reads left out. All commands slower: the server or the network. One script slower: its work.",
	queries: []query{{expr: quantileBy("0.99", "command", "claimq_redis_command_duration_seconds", proc), legend: "{{command}}"}},
}, {
	title: "Failed round trips by reason", unit: "cps", width: 8,
	about:   "timeout, network: the way. oom: memory is full. readonly, moved: the wrong server. loading: it has just started. busy: something blocks it.",
	queries: []query{{expr: "sum by (reason) (rate(claimq_redis_command_failures_total{" + proc + "}[$__rate_interval]))", legend: "{{reason}}"}},
}, {
	title: "Passes in search of ended leases", unit: "s", width: 8,
	about:   "99th percentile of one pass over one partition. It grows when many leases end at once.",
	queries: []query{{expr: quantile("0.99", "claimq_reclaim_sweep_duration_seconds", sel), legend: "p99"}},
}, {
	title: "Connections", unit: "short", width: 8,
	about: "Of the pools of all selected processes. used at the bound: callers wait.",
	queries: []query{
		{expr: "sum by (state) (claimq_redis_pool_connections{" + proc + "})", legend: "{{state}}"},
		{expr: "sum(claimq_redis_pool_max_connections{" + proc + "})", legend: "bound"},
	},
}, {
	title: "Waiting for a connection", unit: "s", width: 8, noValue: "Nobody waits",
	about: "Mean time of those who had to wait. Near the lease length it costs leases.",
	queries: []query{{
		expr: "sum by (instance) (rate(claimq_redis_pool_wait_seconds_total{" + proc + "}[$__rate_interval])) / " +
			"(sum by (instance) (rate(claimq_redis_pool_waits_total{" + proc + "}[$__rate_interval])) > 0)",
		legend: "{{instance}}",
	}},
}, {
	title: "Pool events", unit: "cps", width: 8,
	about: "Hits found a free connection, misses made one. Timeouts waited in vain: the pool is too small, or the server too slow. Stale ones were dropped.",
	queries: []query{
		{expr: "sum(rate(claimq_redis_pool_hits_total{" + proc + "}[$__rate_interval]))", legend: "hits"},
		{expr: "sum(rate(claimq_redis_pool_misses_total{" + proc + "}[$__rate_interval]))", legend: "misses"},
		{expr: "sum(rate(claimq_redis_pool_timeouts_total{" + proc + "}[$__rate_interval]))", legend: "timeouts"},
		{expr: "sum(rate(claimq_redis_pool_stale_connections_total{" + proc + "}[$__rate_interval]))", legend: "stale"},
	},
	colors: map[string]string{"timeouts": bad},
}}

var workersProcess = []panel{{
	title: "CPU", unit: "short", width: 6,
	about:   "Cores in use. At the limit of the container renewals come late and leases are lost.",
	queries: []query{{expr: "rate(process_cpu_seconds_total{" + proc + "}[$__rate_interval])", legend: "{{instance}}"}},
}, {
	title: "Memory", unit: "bytes", width: 6,
	about:   "Resident. A saw-tooth that ends in restarts is a worker killed for its memory.",
	queries: []query{{expr: "process_resident_memory_bytes{" + proc + "}", legend: "{{instance}}"}},
}, {
	title: "Goroutines", unit: "short", width: 6,
	about:   "A few for the loops and one for each handler. A line that climbs is handlers that leave some behind.",
	queries: []query{{expr: "go_goroutines{" + proc + "}", legend: "{{instance}}"}},
}, {
	kind: rows, title: "Builds", unit: "short", width: 6, keys: []string{"version", "revision", "goversion"},
	about:   "Which builds run and how many of each. More than one outside of a rollout: somebody forgot one.",
	queries: []query{{"count by (version, revision, goversion) (claimq_build_info{" + proc + "})", "Processes", column{unit: "short"}}},
}}
