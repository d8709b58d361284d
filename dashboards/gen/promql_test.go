package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	sdkprometheus "github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"github.com/claimq/claimq/metrics"
)

// expression is one query and where it stands.
type expression struct {
	where, expr string
	inDashboard bool
	bars        bool   // for barInterval at least
	record      string // of a recording rule
}

// allExpressions reads every query of the committed files.
func allExpressions(t *testing.T) []expression {
	t.Helper()
	var all []expression
	for _, name := range boards {
		d := decode(t, name)
		for _, p := range d.Panels {
			if p.Panel == nil {
				continue
			}
			for _, target := range p.Panel.Targets {
				q, ok := target.(*sdkprometheus.Dataquery)
				if !ok {
					t.Fatalf("%s: %q asks something other than Prometheus: %T", name, *p.Panel.Title, target)
				}
				all = append(all, expression{where: name + ": " + *p.Panel.Title, expr: q.Expr, inDashboard: true,
					bars: p.Panel.Interval != nil && *p.Panel.Interval == barInterval})
			}
		}
		for _, a := range d.Annotations.List {
			all = append(all, expression{where: name + ": annotation " + a.Name, expr: *a.Expr, inDashboard: true})
		}
		for _, v := range d.Templating.List {
			if m := labelValues.FindStringSubmatch(definition(v.Definition)); m != nil {
				all = append(all, expression{where: name + ": variable " + v.Name, expr: "count by (" + m[2] + ") (" + m[1] + ")", inDashboard: true})
			} else if v.Type == "query" {
				t.Errorf("%s: variable %s is asked for in a way that is not known", name, v.Name)
			}
		}
	}
	for _, name := range []string{"prometheus/recording.yml", "prometheus/alerts.yml"} {
		for _, r := range committedRules(t, name) {
			all = append(all, expression{where: name + ": " + r.Record + r.Alert, expr: r.Expr, record: r.Record})
		}
	}
	if len(all) < 100 {
		t.Fatalf("only %d expressions", len(all))
	}
	return all
}

var labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)

func definition(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func committedRules(t *testing.T, name string) []rule {
	t.Helper()
	var file struct {
		Groups []ruleGroup `yaml:"groups"`
	}
	dec := yaml.NewDecoder(strings.NewReader(string(committed(t, name))))
	dec.KnownFields(true)
	if err := dec.Decode(&file); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// plain is the expression with Grafana's variables replaced.
func plain(expr string) string {
	return variable.ReplaceAllString(strings.NewReplacer("$__rate_interval", "5m", "$__interval", barInterval).Replace(expr), ".+")
}

func parse(t *testing.T, e expression) parser.Expr {
	t.Helper()
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(plain(e.expr))
	if err != nil {
		t.Fatalf("%s: %v\n%s", e.where, err, e.expr)
	}
	return parsed
}

// metric is what an expression may use: of the catalogue, or from elsewhere.
type metric struct {
	family string
	kind   string // counter, gauge, or bucket
	state  bool   // the same from every process
	labels []string
	values map[string][]string // of labels with a closed set
}

// Labels that Prometheus gives to every series that it scrapes. namespace is
// there where the scrape configuration sets it.
var targetLabels = []string{"job", "instance", "namespace"}

// elsewhere are names that other programs export.
var elsewhere = map[string]metric{
	"up":                            {kind: metrics.Gauge},
	"ALERTS":                        {kind: metrics.Gauge, labels: []string{"alertname", "alertstate", "severity", "queue", "kind", "loop", "reason"}},
	"process_start_time_seconds":    {kind: metrics.Gauge},
	"process_cpu_seconds_total":     {kind: metrics.Counter},
	"process_resident_memory_bytes": {kind: metrics.Gauge},
	"go_goroutines":                 {kind: metrics.Gauge},
}

// known lists what may be used, by the name of the series.
func known(t *testing.T) map[string]metric {
	t.Helper()
	all := map[string]metric{}
	for name, m := range elsewhere {
		m.labels = slices.Concat(m.labels, targetLabels)
		all[name] = m
	}
	for _, f := range metrics.Catalogue() {
		m := metric{family: f.FullName(), kind: f.Type, state: f.From == metrics.FromState, labels: slices.Clone(targetLabels), values: map[string][]string{}}
		for _, l := range f.Labels {
			name, _, _ := strings.Cut(l, ":")
			m.labels = append(m.labels, name)
			m.values[name] = metrics.LabelValues(l)
		}
		if f.Type != metrics.Histogram {
			all[f.FullName()] = m
			continue
		}
		m.kind = metrics.Counter
		all[f.FullName()+"_count"], all[f.FullName()+"_sum"] = m, m
		m.kind, m.labels = "bucket", append(slices.Clone(m.labels), "le")
		all[f.FullName()+"_bucket"] = m
	}
	for _, r := range committedRules(t, "prometheus/recording.yml") {
		e := parse(t, expression{where: r.Record, expr: r.Expr})
		all[r.Record] = metric{kind: metrics.Gauge, labels: resultLabels(t, e)}
	}
	return all
}

// resultLabels are the labels of what an expression returns: those that every
// aggregation in it keeps.
func resultLabels(t *testing.T, e parser.Expr) []string {
	t.Helper()
	var found []string
	parser.Inspect(e, func(n parser.Node, path []parser.Node) error {
		if a, ok := n.(*parser.AggregateExpr); ok && !a.Without {
			found = slices.Concat(found, a.Grouping)
		}
		if v, ok := n.(*parser.VectorSelector); ok && strings.Contains(v.Name, ":") {
			found = append(found, "namespace", "queue")
		}
		return nil
	})
	slices.Sort(found)
	return slices.DeleteFunc(slices.Compact(found), func(l string) bool { return l == "le" })
}

// TestExpressions: every query parses, and uses names and labels that exist, as
// they may be used.
func TestExpressions(t *testing.T) {
	all := known(t)
	for _, e := range allExpressions(t) {
		parsed := parse(t, e)
		for _, what := range objections(e, parsed, all) {
			t.Errorf("%s: %s\n%s", e.where, what, e.expr)
		}
	}
}

// objections finds what is wrong with an expression.
func objections(e expression, parsed parser.Expr, all map[string]metric) []string {
	var found []string
	object := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	have := map[string]bool{"place": true} // made by label_replace
	parser.Inspect(parsed, func(n parser.Node, path []parser.Node) error {
		v, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		m, ok := all[v.Name]
		if !ok {
			object("there is no %s", v.Name)
			return nil
		}
		for _, l := range m.labels {
			have[l] = true
		}
		checkSelector(e, v, m, path, object)
		return nil
	})
	parser.Inspect(parsed, func(n parser.Node, path []parser.Node) error {
		var names []string
		switch n := n.(type) {
		case *parser.AggregateExpr:
			names = n.Grouping
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				names = slices.Concat(n.VectorMatching.MatchingLabels, n.VectorMatching.Include)
			}
		}
		for _, l := range names {
			if !have[l] {
				object("nothing in it has a label %s", l)
			}
		}
		return nil
	})
	return found
}

// checkSelector looks at one selector: its labels, and what is done with it.
func checkSelector(e expression, v *parser.VectorSelector, m metric, path []parser.Node, object func(string, ...any)) {
	has := map[string]string{}
	for _, l := range v.LabelMatchers {
		if l.Name == "__name__" {
			continue
		}
		has[l.Name] = l.Value
		if !slices.Contains(m.labels, l.Name) {
			object("%s has no label %s", v.Name, l.Name)
		}
		for _, value := range strings.Split(l.Value, "|") {
			if closed := m.values[l.Name]; closed != nil && !slices.Contains(closed, value) {
				object("%s of %s is never %q", l.Name, v.Name, value)
			}
		}
	}
	functions, aggregations := callers(path)
	ranged := slices.ContainsFunc(functions, func(f string) bool { return slices.Contains([]string{"rate", "increase"}, f) })
	counts := m.kind == metrics.Counter || m.kind == "bucket"
	if !e.inDashboard && newly(path) {
		ranged = counts
	}
	switch {
	case counts && !ranged:
		object("%s counts, and is used without rate or increase", v.Name)
	case !counts && ranged:
		object("%s does not count, and has no rate", v.Name)
	}
	if m.kind == "bucket" && !slices.ContainsFunc(aggregations, func(a *parser.AggregateExpr) bool { return slices.Contains(a.Grouping, "le") }) && has["le"] == "" {
		object("%s is summed over le", v.Name)
	}
	if m.state && !strings.Contains(strings.Join(functions, " "), "absent") {
		// count by is how a variable lists its values.
		inner := aggregations[max(0, len(aggregations)-1):]
		if len(inner) == 0 || !slices.Contains([]parser.ItemType{parser.MAX, parser.MIN, parser.GROUP, parser.COUNT}, inner[0].Op) {
			object("%s is the same from every process: take max by (queue) first", v.Name)
		}
	}
	if e.inDashboard && v.Name != "ALERTS" && !strings.Contains(e.where, "variable") {
		if has["job"] == "" || has["instance"] == "" {
			object("%s does not heed $job and $instance", v.Name)
		}
		if slices.Contains(m.labels, "queue") && has["queue"] == "" {
			object("%s does not heed $queue", v.Name)
		}
	}
}

// newly reports whether a node is in "x unless x offset", which asks what a
// counter has that was not there before.
func newly(path []parser.Node) bool {
	for _, n := range path {
		if b, ok := n.(*parser.BinaryExpr); ok && b.Op == parser.LUNLESS {
			then, ok := b.RHS.(*parser.VectorSelector)
			return ok && then.OriginalOffset > 0 && strings.HasPrefix(then.String(), b.LHS.String())
		}
	}
	return false
}

// callers are the functions and aggregations around a node, from the outside.
func callers(path []parser.Node) (functions []string, aggregations []*parser.AggregateExpr) {
	for _, n := range path {
		switch n := n.(type) {
		case *parser.Call:
			functions = append(functions, n.Func.Name)
		case *parser.AggregateExpr:
			aggregations = append(aggregations, n)
		}
	}
	return functions, aggregations
}

// TestRangesAreThePanels: a fixed range is too short for one scrape interval
// and too long for another.
func TestRangesAreThePanels(t *testing.T) {
	ranges := regexp.MustCompile(`\[([^\]]+)\]`)
	for _, e := range allExpressions(t) {
		for _, m := range ranges.FindAllStringSubmatch(e.expr, -1) {
			whole := m[1] == "$__interval" && e.bars // each bar for itself
			memory := strings.Contains(e.expr, "last_over_time(") && m[1] == "1h"
			if e.inDashboard && m[1] != "$__rate_interval" && !whole && !memory {
				t.Errorf("%s: range %s", e.where, m[1])
			}
		}
	}
}

// unused are families that no panel and no rule needs, with the reason.
var unused = map[string]string{}

// TestEveryFamilyIsUsed: what is exported and never looked at costs for nothing.
func TestEveryFamilyIsUsed(t *testing.T) {
	all, used := known(t), map[string]bool{}
	for _, e := range allExpressions(t) {
		parser.Inspect(parse(t, e), func(n parser.Node, _ []parser.Node) error {
			if v, ok := n.(*parser.VectorSelector); ok {
				used[all[v.Name].family] = true
				used[v.Name] = true
			}
			return nil
		})
	}
	for _, f := range metrics.Catalogue() {
		switch name := f.FullName(); {
		case !used[name] && unused[name] == "":
			t.Errorf("%s is in no panel and no rule", name)
		case used[name] && unused[name] != "":
			t.Errorf("%s is used: take it off the list", name)
		}
	}
	for name := range unused {
		if _, ok := all[name]; !ok {
			t.Errorf("%s is not in the catalogue: take it off the list", name)
		}
	}
	for _, r := range committedRules(t, "prometheus/recording.yml") {
		if !used[r.Record] {
			t.Errorf("%s is recorded and not used", r.Record)
		}
	}
}

// TestObjections: each check is seen to fail.
func TestObjections(t *testing.T) {
	all := known(t)
	for expr, want := range map[string]string{
		`sum(rate(claimq_procesed_total[5m]))`:                                                        "there is no",
		`sum by (kind) (rate(claimq_deliveries_total[5m]))`:                                           "nothing in it has a label kind",
		`sum(rate(claimq_deliveries_total{kind="a"}[5m]))`:                                            "has no label kind",
		`sum(claimq_deliveries_total)`:                                                                "without rate",
		`sum(rate(claimq_worker_slots[5m]))`:                                                          "does not count",
		`histogram_quantile(0.9, sum by (queue) (rate(claimq_wait_duration_seconds_bucket[5m])))`:     "summed over le",
		`sum(rate(claimq_processed_total{outcome=~"completed|failed"}[5m]))`:                          `is never "failed"`,
		`max(claimq_consumers{state="used"})`:                                                         `is never "used"`,
		`sum(claimq_waiting_entries)`:                                                                 "take max by (queue) first",
		`claimq_waiting_entries`:                                                                      "take max by (queue) first",
		`queue:claimq_waiting_entries:max and on (kind) up`:                                           "nothing in it has a label kind",
		`sum by (group) (queue:claimq_waiting_entries:max)`:                                           "nothing in it has a label group",
		`max by (queue) (claimq_waiting_entries{group="a"})`:                                          "has no label group",
		`sum by (namespace, queue, kind) (rate(claimq_processed_total{outcome="completed"}[5m]))`:     "",
		`sum(max by (queue) (claimq_waiting_entries))`:                                                "",
		`histogram_quantile(0.9, sum by (queue, le) (rate(claimq_wait_duration_seconds_bucket[5m])))`: "",
	} {
		e := expression{where: "test", expr: expr}
		got := strings.Join(objections(e, parse(t, e), all), "; ")
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", expr, got, want)
		}
	}
	e := expression{where: "test", expr: `max by (queue) (claimq_waiting_entries{job=~"$job",instance=~"$instance"})`, inDashboard: true}
	if got := objections(e, parse(t, e), all); len(got) != 1 || !strings.Contains(got[0], "$queue") {
		t.Errorf("%s: %q", e.expr, got)
	}
}
