// Package observe looks at dashboards and alerts as an operator does: a real
// Prometheus scrapes real workers every second while tasks run, fail, die and
// are taken over, a worker is killed, one is cut off from the server and all
// are frozen. Then every query of every panel and rule is asked of it, and what
// it says of the queues is compared with what the server holds.
//
// Time is shorter here. The check loads a copy of the rule files in which every
// duration (for, ranges, offsets) and the thresholds in seconds of the alerts
// that it provokes are divided by 60 (small run) or 30; dashboards keep theirs,
// but for the interval of rates, which is that of a scrape each second. The rules as they
// are shipped are tested with promtool beside their source.
//
// `make observe` runs it for as long as asked, and a small run is among the
// tests.
package observe
