package main

import "math"

var inf = math.Inf(1)

// Parts of queries that several panels share.
const (
	waiting  = `max by (queue) (claimq_waiting_entries{` + sel + `})`
	pending  = `max by (queue) (claimq_pending_entries{` + sel + `})`
	active   = `max by (queue) (claimq_consumers{` + sel + `,state="active"})`
	ended    = `max by (queue) (claimq_expired_pending_entries{` + sel + `})`
	finished = `sum by (queue) (rate(claimq_processed_total{` + sel + `,outcome=~"completed|retried|dead"}[$__rate_interval]))`
	failed   = `sum by (queue) (rate(claimq_processed_total{` + sel + `,outcome=~"retried|dead"}[$__rate_interval]))`
	oldest   = `max by (queue) (claimq_oldest_waiting_age_seconds{` + sel + `})`

	// Waiting or overdue, whatever is older.
	lateness = `max(
  label_replace(claimq_oldest_waiting_age_seconds{` + sel + `}, "place", "waiting", "", "")
or
  label_replace(claimq_oldest_overdue_age_seconds{` + sel + `}, "place", "scheduled", "", "")
)`
	failureShare = failed + ` / (` + finished + ` > 0)`
	// Where the state is read, no attempt means that none was made.
	nothingRan = `0 * max(max by (queue) (claimq_collector_success{` + sel + `})) - 1`
	// A frozen worker does not answer the scrape; its last look counts on.
	sweepAge = `time() - max by (queue) (last_over_time(claimq_last_reclaim_sweep_timestamp_seconds{` + sel + `}[1h]))`

	// 4: tasks and nobody who works; 3: tasks wait and none was finished; 2:
	// tasks run and none was finished; 1: tasks are finished; 0: nothing to do.
	workCode = `(0 * (` + waiting + ` + ` + pending + ` > 0) + 4 and ` + active + ` == 0)
or
(0 * (` + waiting + ` > 0) + 3 unless ` + finished + ` > 0)
or
(0 * (` + pending + ` > 0) + 2 unless ` + finished + ` > 0)
or
(0 * (` + finished + ` > 0) + 1)
or
0 * ` + waiting

	// 3: leases that ended stay where they are; 2: some have ended just now;
	// 1: tasks were taken over; 0: nothing to take over.
	recoveryCode = `(0 * (min by (queue) (min_over_time(claimq_expired_pending_entries{` + sel + `}[$__rate_interval])) > 0) + 3)
or
(0 * (` + ended + ` > 0) + 2)
or
(0 * (sum by (queue) (rate(claimq_reclaimed_entries_total{` + sel + `}[$__rate_interval])) > 0) + 1)
or
0 * ` + ended
)

var (
	lateWords = []word{
		{-inf, startWithin, "On time", good},
		{startWithin, lateSeconds, "Slow", wary},
		{lateSeconds, inf, "LATE", bad},
	}
	failWords = []word{
		{-1, -1, "Nothing ran", quiet},
		{0, 0, "None fail", good},
		{0, failureFew, "Few fail", good},
		{failureFew, failureRatio, "Some fail", wary},
		{failureRatio, inf, "FAILING", bad},
	}
	workWords = []word{
		{0, 0, "Idle", good},
		{1, 1, "Working", good},
		{2, 2, "Long tasks run", good},
		{3, 3, "None finished", wary},
		{4, 4, "NOBODY WORKS", bad},
	}
	recoveryWords = []word{
		{0, 0, "Nothing lost", good},
		{1, 1, "Recovered", good},
		{2, 2, "Recovering", wary},
		{3, 3, "NOT RECOVERING", bad},
	}
	alertWords = []word{
		{0, 0, "None", good},
	}
)

func overview() ([]byte, error) {
	return newDashboard(overviewUID, "claimq / Overview",
		"Is work late, is it failing, is anybody working, is recovery working? The first row answers; the rows below say why.",
		[]row{
			{"Right now", answers},
			{"How much", numbers},
			{"Which queue", tables},
			{"Late?", latePanels},
			{"Failing?", failingPanels},
			{"Working?", workingPanels},
			{"Recovering?", recoveryPanels},
		})
}

const unknown = "UNKNOWN"

var answers = []panel{{
	kind: words, title: "Late?", unit: "s", width: 5, height: 5, noValue: unknown, limits: upTo(startWithin, lateSeconds), words: lateWords,
	about:   "How long the task that has waited longest has waited, in the worst queue: on time below 30 s, LATE from 5 minutes. UNKNOWN: nothing reports the state of the queues.",
	queries: []query{{expr: lateness}},
}, {
	kind: words, title: "Failing?", unit: "percentunit", width: 5, height: 5, noValue: unknown, limits: upTo(failureFew, failureRatio), words: failWords,
	about:   "The share of attempts that fail now, in the worst queue: few below 1 in 100, FAILING from 1 in 10. Look at the row Failing? for the reason.",
	queries: []query{{expr: "max(" + failureShare + ") or " + nothingRan}},
}, {
	kind: words, title: "Working?", unit: "none", width: 5, height: 5, noValue: unknown, limits: upTo(3, 4), words: workWords,
	about:   "The worst queue. NOBODY WORKS: tasks are there and no live worker. None finished: workers live, tasks wait and none comes to an end.",
	queries: []query{{expr: "max(\n" + workCode + "\n)"}},
}, {
	kind: words, title: "Recovering?", unit: "none", width: 5, height: 5, noValue: unknown, limits: upTo(2, 3), words: recoveryWords,
	about:   "Whether tasks of workers that died are taken over, in the worst queue. NOT RECOVERING: their leases have ended and they stay where they are.",
	queries: []query{{expr: "max(\n" + recoveryCode + "\n)"}},
}, {
	kind: words, title: "Alerts", unit: "none", width: 4, height: 5, limits: upTo(0, 1), words: alertWords,
	about:   "Alerts of claimq that are firing, whatever is selected above. The table below names them.",
	queries: []query{{expr: "count(" + alertsExpr + ") or vector(0)"}},
}}

var numbers = []panel{{
	kind: number, title: "Oldest waiting", unit: "s", width: 4, height: 4, noValue: unknown, limits: upTo(startWithin, lateSeconds),
	about:   "Age of the task that has waited longest. If it grows steadily, nothing of that queue is started.",
	queries: []query{{expr: "max(" + oldest + ")"}},
}, {
	kind: number, title: "Waiting", unit: "short", width: 4, height: 4, noValue: unknown, limits: upTo(0, backlogLarge),
	about:   "Tasks that no worker has yet. A large number alone is not bad; one that grows and does not fall is.",
	queries: []query{{expr: "sum(" + waiting + ")"}},
}, {
	kind: number, title: "Attempts that fail", unit: "percentunit", width: 4, height: 4, noValue: "Nothing ran", limits: upTo(0, failureRatio),
	about:   "Share of all attempts that ended in a retry or a dead letter, over all selected queues.",
	queries: []query{{expr: "sum(" + failed + ") / (sum(" + finished + ") > 0)"}},
}, {
	kind: number, title: "Dead letters", unit: "short", width: 4, height: 4, noValue: unknown, limits: []limit{{0, good}, {1, wary}},
	about:   "Tasks that were given up. They stay until a person redrives or deletes them.",
	queries: []query{{expr: "sum(max by (queue) (claimq_dead_entries{" + sel + "}))"}},
}, {
	kind: number, title: "Workers that take tasks", unit: "short", width: 4, height: 4, limits: []limit{{0, bad}, {1, good}},
	about:   "Workers that are ready, as their /readyz says. 0 is right only for a fleet that scales to zero.",
	queries: []query{{expr: "count(claimq_worker_ready{" + proc + "} == 1) or vector(0)"}},
}, {
	kind: number, title: "Ended leases, not taken over", unit: "short", width: 4, height: 4, noValue: unknown, limits: []limit{{0, good}, {1, wary}},
	about:   "Tasks whose worker died or was cut off and that nobody has taken over. It should be 0 again within a second or two.",
	queries: []query{{expr: "sum(" + ended + ")"}},
}}

var tables = []panel{{
	kind: rows, title: "Queues", unit: "short", width: 15, height: 9, keys: []string{"queue"}, link: "${__data.fields.queue}",
	about: "One line for each queue. Colour marks what is wrong; follow a name to see why.",
	queries: []query{
		{oldest, "Oldest waiting", column{unit: "s", limits: upTo(startWithin, lateSeconds)}},
		{waiting, "Waiting", column{unit: "short"}},
		{pending, "Pending", column{unit: "short"}},
		{failureShare, "Failing", column{unit: "percentunit", limits: upTo(0, failureRatio)}},
		{workCode, "Working?", column{unit: "none", limits: upTo(3, 4), words: workWords}},
		{recoveryCode, "Recovering?", column{unit: "none", limits: upTo(2, 3), words: recoveryWords}},
		{`max by (queue) (claimq_dead_entries{` + sel + `})`, "Dead letters", column{unit: "short", limits: []limit{{0, good}, {1, wary}}}},
	},
}, {
	kind: rows, title: "Alerts that fire", unit: "short", width: 9, height: 9, keys: []string{"severity", "alertname"}, sortBy: headings["severity"],
	about:   "What Prometheus says is wrong now, critical first, and for how many queues or processes. Each name is a section of the page behind What to do, above.",
	noValue: "None",
	queries: []query{{"count by (severity, alertname) (" + alertsExpr + ")", "Firing", column{unit: "none"}}},
}}
