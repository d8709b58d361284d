package main

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"go.yaml.in/yaml/v3"
)

// situation is what a fleet reports for ten minutes, and what the first row of
// Overview says then.
type situation struct {
	name   string
	series map[string]string // values in the notation of promtool
	want   map[string]string // word by question
}

// healthy is a queue on which nothing is wrong and nothing is to do.
func healthy(changes map[string]string) map[string]string {
	all := map[string]string{
		`claimq_collector_success{job="w",instance="a",queue="q"}`:                                    "1x40",
		`claimq_waiting_entries{job="w",instance="a",queue="q"}`:                                      "0x40",
		`claimq_pending_entries{job="w",instance="a",queue="q"}`:                                      "0x40",
		`claimq_expired_pending_entries{job="w",instance="a",queue="q"}`:                              "0x40",
		`claimq_oldest_waiting_age_seconds{job="w",instance="a",queue="q"}`:                           "0x40",
		`claimq_oldest_overdue_age_seconds{job="w",instance="a",queue="q"}`:                           "0x40",
		`claimq_consumers{job="w",instance="a",queue="q",state="active"}`:                             "2x40",
		`claimq_processed_total{job="w",instance="a",queue="q",kind="k",outcome="completed"}`:         "7x40",
		`claimq_processed_total{job="w",instance="a",queue="q",kind="k",outcome="retried"}`:           "0x40",
		`claimq_reclaimed_entries_total{job="w",instance="a",queue="q"}`:                              "0x40",
		`claimq_last_reclaim_sweep_timestamp_seconds{job="w",instance="a",queue="q"}`:                 "0+15x40",
		`claimq_processed_total{job="w",instance="a",queue="neighbour",kind="k",outcome="completed"}`: "0+30x40",
		`claimq_consumers{job="w",instance="a",queue="neighbour",state="active"}`:                     "2x40",
		`claimq_waiting_entries{job="w",instance="a",queue="neighbour"}`:                              "3x40",
		`claimq_pending_entries{job="w",instance="a",queue="neighbour"}`:                              "1x40",
		`claimq_processed_total{job="w",instance="a",queue="neighbour",kind="k",outcome="retried"}`:   "0x40",
		`claimq_expired_pending_entries{job="w",instance="a",queue="neighbour"}`:                      "0x40",
		`claimq_oldest_waiting_age_seconds{job="w",instance="a",queue="neighbour"}`:                   "2x40",
	}
	for name, values := range changes {
		for series := range all {
			if strings.HasPrefix(series, name+"{") && strings.Contains(series, `queue="q"`) && !strings.Contains(series, "completed") {
				delete(all, series)
			}
		}
		if values != "" {
			label := ""
			switch name {
			case "claimq_consumers":
				label = `,state="active"`
			case "claimq_processed_total":
				label = `,kind="k",outcome="retried"`
			}
			all[name+`{job="w",instance="a",queue="q"`+label+`}`] = values
		}
	}
	return all
}

var situations = []situation{{
	name: "one queue idle, one at work", series: healthy(nil),
	want: map[string]string{"Late?": "On time", "Failing?": "None fail", "Working?": "Working", "Recovering?": "Nothing lost", "Alerts": "None"},
}, {
	name: "all workers of one queue are gone",
	series: healthy(map[string]string{
		"claimq_waiting_entries": "5x40", "claimq_pending_entries": "2x40", "claimq_consumers": "0x40",
		"claimq_oldest_waiting_age_seconds": "0+15x40", "claimq_expired_pending_entries": "2x40",
	}),
	want: map[string]string{"Late?": "LATE", "Failing?": "None fail", "Working?": "NOBODY WORKS", "Recovering?": "NOT RECOVERING", "Alerts": "None"},
}, {
	name: "a worker died, and another has taken its tasks over",
	series: healthy(map[string]string{
		"claimq_pending_entries": "2x40", "claimq_expired_pending_entries": "0x36 2 0x3", "claimq_reclaimed_entries_total": "0x37 2x3",
	}),
	want: map[string]string{"Late?": "On time", "Failing?": "None fail", "Working?": "Long tasks run", "Recovering?": "Recovered", "Alerts": "None"},
}, {
	name: "a worker died just now",
	series: healthy(map[string]string{
		"claimq_pending_entries": "2x40", "claimq_expired_pending_entries": "0x39 2",
	}),
	want: map[string]string{"Late?": "On time", "Failing?": "None fail", "Working?": "Long tasks run", "Recovering?": "Recovering", "Alerts": "None"},
}, {
	name: "every attempt of one queue fails",
	series: healthy(map[string]string{
		"claimq_processed_total": "0+15x40", "claimq_waiting_entries": "1x40", "claimq_oldest_waiting_age_seconds": "45x40",
	}),
	want: map[string]string{"Late?": "Slow", "Failing?": "FAILING", "Working?": "Working", "Recovering?": "Nothing lost", "Alerts": "None"},
}, {
	name: "tasks wait, workers live, and none is finished; what is scheduled is overdue",
	series: healthy(map[string]string{
		"claimq_waiting_entries": "9x40", "claimq_pending_entries": "2x40", "claimq_oldest_overdue_age_seconds": "400x40",
	}),
	want: map[string]string{"Late?": "LATE", "Failing?": "None fail", "Working?": "None finished", "Recovering?": "Nothing lost", "Alerts": "None"},
}, {
	name: "an alert fires",
	series: map[string]string{
		`ALERTS{alertname="ClaimqStateMetricsAbsent",alertstate="firing",severity="critical"}`: "1x40",
		`ALERTS{alertname="ClaimqRedisErrors",alertstate="pending",severity="warning"}`:        "1x40",
		`ALERTS{alertname="NotOurs",alertstate="firing",severity="warning"}`:                   "1x40",
	},
	want: map[string]string{"Late?": unknown, "Failing?": unknown, "Working?": unknown, "Recovering?": unknown, "Alerts": "1"},
}, {
	name: "everything was well until two minutes ago, and now nothing is known",
	series: map[string]string{
		`claimq_collector_success{job="w",instance="a",queue="q"}`:                            "1x32 0x8",
		`claimq_waiting_entries{job="w",instance="a",queue="q"}`:                              "0x32 stale",
		`claimq_pending_entries{job="w",instance="a",queue="q"}`:                              "0x32 stale",
		`claimq_oldest_waiting_age_seconds{job="w",instance="a",queue="q"}`:                   "0x32 stale",
		`claimq_oldest_overdue_age_seconds{job="w",instance="a",queue="q"}`:                   "0x32 stale",
		`claimq_expired_pending_entries{job="w",instance="a",queue="q"}`:                      "0x32 stale",
		`claimq_processed_total{job="w",instance="a",queue="q",kind="k",outcome="completed"}`: "0+15x32 480x8",
	},
	want: map[string]string{"Late?": unknown, "Failing?": "Nothing ran", "Working?": unknown, "Recovering?": unknown, "Alerts": "None"},
}}

// TestAnswers asks Prometheus what the first row asks, in situations of which
// the answers are known.
func TestAnswers(t *testing.T) {
	type sample struct {
		Labels string  `yaml:"labels"`
		Value  float64 `yaml:"value"`
	}
	type question struct {
		Expr string   `yaml:"expr"`
		At   string   `yaml:"eval_time"`
		Want []sample `yaml:"exp_samples"`
	}
	type series struct {
		Series string `yaml:"series"`
		Values string `yaml:"values"`
	}
	type test struct {
		Name      string     `yaml:"name"`
		Interval  string     `yaml:"interval"`
		Series    []series   `yaml:"input_series"`
		Questions []question `yaml:"promql_expr_test"`
	}
	var file struct {
		Tests []test `yaml:"tests"`
	}
	panels := decode(t, "overview.json").Panels[1:6]
	for _, s := range situations {
		one := test{Name: s.name, Interval: "15s"}
		for _, name := range sortedKeys(s.series) {
			one.Series = append(one.Series, series{name, s.series[name]})
		}
		for _, p := range panels {
			expr := p.Panel.Targets[0].(*prometheus.Dataquery).Expr
			// What the word stands for is looked up by asking for its range.
			word := s.want[*p.Panel.Title]
			q := question{Expr: "(" + strings.ReplaceAll(plain(expr), "[5m]", "[1m]") + ")", At: "10m", Want: []sample{}}
			if word != unknown {
				from, to := wordRange(t, *p.Panel.Title, word)
				q.Expr = "(" + q.Expr + " >= bool " + from + ") * (" + q.Expr + " <= bool " + to + ")"
				q.Want = append(q.Want, sample{"{}", 1})
			}
			one.Questions = append(one.Questions, q)
		}
		file.Tests = append(file.Tests, one)
	}
	b, err := yaml.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "answers.yml")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "test", "rules", name)
}

// wordRange is the range of values that a panel shows as a word.
func wordRange(t *testing.T, title, text string) (from, to string) {
	t.Helper()
	if text == "1" {
		return "1", "1"
	}
	for _, p := range answers {
		for i, w := range p.words {
			if p.title != title || w.text != text {
				continue
			}
			low := number64(w.from)
			// The first range that a value is in gives the word.
			if i > 0 && p.words[i-1].to == w.from && p.words[i-1].from < w.from {
				low = number64(math.Nextafter(w.from, math.Inf(1)))
			}
			return low, number64(w.to)
		}
	}
	t.Fatalf("%s has no word %q", title, text)
	return "", ""
}

func number64(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "+Inf"
	case math.IsInf(f, -1):
		return "-Inf"
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}
