package observe

import (
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"
)

// quiet are the queries that have nothing but zeros, or no data, in a run in
// which nothing of their kind happens; the others must show something.
var quiet = map[string]string{
	"overview / Tasks lost from outside":           "nobody deletes entries",
	"queue / Tasks lost from outside":              "nobody deletes entries",
	"overview / Workers by state / C":              "a start takes less time than a scrape",
	"overview / Workers by state / D":              "no worker drains",
	"queue / Passes in search of ended leases / B": "a worker without a server makes none",
	"workers / Stuck handlers":                     "deliveries end with their context",
	"overview / Time until the backlog is gone":    "it may be gone between two readings of the state",
	"workers / In hand and not running / B":        "the server takes outcomes between two scrapes",
	"workers / Waiting for a connection":           "the pool is large enough",
	"workers / Pool events / C":                    "the pool is large enough",
}

// askPanels evaluates every query of the dashboards over the whole run, and
// what is asked for one moment at this one too.
func (r *run) askPanels() int {
	r.t.Helper()
	panels, all := readBoards(r.t, r.prom, r.began)
	unused := map[string]bool{}
	for name := range quiet {
		unused[name] = true
	}
	for _, q := range all {
		if q.instant {
			if _, err := r.prom.now(q.expr); err != nil {
				r.t.Errorf("%s: %v", q.name, err)
			}
		}
		found, err := r.prom.over(q.expr, r.began)
		if err != nil {
			r.t.Errorf("%s: %v", q.name, err)
			continue
		}
		shows := slices.ContainsFunc(found, func(s series) bool {
			return slices.ContainsFunc(s.values, func(v float64) bool { return v != 0 })
		})
		delete(unused, q.name)
		if _, ok := quiet[q.name]; !shows && !ok {
			r.t.Errorf("%s shows nothing: %d series\n%s", q.name, len(found), q.expr)
		}
	}
	for name := range unused {
		r.t.Errorf("there is no %s", name)
	}
	r.exemplars()
	return panels
}

// exemplars: tasks with a trace are found from the times of handlers.
func (r *run) exemplars() {
	r.t.Helper()
	var data []struct {
		Exemplars []struct{ Labels map[string]string }
	}
	err := r.prom.get("/api/v1/query_exemplars", url.Values{
		"query": {"claimq_process_duration_seconds_bucket"},
		"start": {strconv.FormatInt(r.began.Unix(), 10)}, "end": {strconv.FormatInt(time.Now().Unix(), 10)},
	}, &data)
	if err != nil || len(data) == 0 || data[0].Exemplars[0].Labels["trace_id"] == "" {
		r.t.Errorf("no exemplar with a trace ID (%v)", err)
	}
}

// draw has a dashboard drawn from this Prometheus, where pictures are wanted.
func (r *run) draw(board string, args ...string) {
	r.t.Helper()
	if *pictures == "" {
		return
	}
	from := max(r.began.Unix(), time.Now().Unix()-600)
	cmd := exec.Command("node", append([]string{"../../dashboards/render/render.js", "--prometheus", r.prom.base,
		"--out", *pictures, "--from", strconv.FormatInt(from, 10), "--board", board}, args...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		r.t.Errorf("drawing %s: %v", board, err)
	}
}
