package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

// promtool runs promtool among the files of Prometheus. It is never skipped:
// make deps installs it.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command("promtool", args...)
	cmd.Dir = filepath.Join("..", "prometheus")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestPromtool(t *testing.T) {
	promtool(t, "check", "config", "prometheus.yml")
	promtool(t, "check", "rules", "--lint=all", "--lint-fatal", "recording.yml", "alerts.yml")
	for _, f := range ruleTests(t) {
		promtool(t, "test", "rules", filepath.Join("tests", filepath.Base(f)))
	}
}

func ruleTests(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../prometheus/tests/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no rule tests: %v", err)
	}
	return files
}

// TestEveryAlertFiresAndIsQuiet: for each alert there is a case in which it
// fires, and one with the same series in which it does not.
func TestEveryAlertFiresAndIsQuiet(t *testing.T) {
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, name := range ruleTests(t) {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var file struct {
			Tests []struct {
				Name  string `yaml:"name"`
				Cases []struct {
					Alert string `yaml:"alertname"`
					Want  []any  `yaml:"exp_alerts"`
				} `yaml:"alert_rule_test"`
			} `yaml:"tests"`
		}
		if err := yaml.Unmarshal(b, &file); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, test := range file.Tests {
			in := map[string]int{} // 1: fires, 2: quiet
			for _, c := range test.Cases {
				if len(c.Want) > 0 {
					in[c.Alert] |= 1
				} else {
					in[c.Alert] |= 2
				}
			}
			for alert, both := range in {
				fires[alert] = fires[alert] || both == 3
				quiet[alert] = quiet[alert] || both == 3
				if both != 3 {
					t.Errorf("%s: %s: %s is not seen both firing and quiet", name, test.Name, alert)
				}
			}
		}
	}
	for _, r := range committedRules(t, "prometheus/alerts.yml") {
		if !fires[r.Alert] || !quiet[r.Alert] {
			t.Errorf("%s has no test", r.Alert)
		}
		delete(fires, r.Alert)
	}
	for alert := range fires {
		t.Errorf("tests name %s, which is no alert", alert)
	}
}

var (
	alertName  = regexp.MustCompile(`^Claimq[A-Z][A-Za-z]+$`)
	recordName = regexp.MustCompile(`^(queue|queue_kind|job):claimq_[a-z_]+:[a-z0-9_]+$`)
	labelUse   = regexp.MustCompile(`\$labels\.(\w+)`)
)

// TestAlertsAreComplete: how bad, what, why, what to do and where to look; and
// every label that its words use is one that it has.
func TestAlertsAreComplete(t *testing.T) {
	all := known(t)
	for _, r := range committedRules(t, "prometheus/alerts.yml") {
		if !alertName.MatchString(r.Alert) {
			t.Errorf("name %q", r.Alert)
		}
		if s := r.Labels["severity"]; (s != critical && s != warning) || len(r.Labels) != 1 {
			t.Errorf("%s: labels %v", r.Alert, r.Labels)
		}
		a := r.Annotations
		if len(a) != 4 || len(a["summary"]) > 140 || !strings.HasSuffix(a["summary"], ".") || len(a["description"]) < 30 || !strings.HasSuffix(a["description"], ".") {
			t.Errorf("%s: annotations %v", r.Alert, a)
		}
		if a["runbook_url"] != runbook+"#"+strings.ToLower(r.Alert) {
			t.Errorf("%s: runbook_url %s", r.Alert, a["runbook_url"])
		}
		have := resultLabels(t, parse(t, expression{where: r.Alert, expr: r.Expr}))
		parser.Inspect(parse(t, expression{where: r.Alert, expr: r.Expr}), func(n parser.Node, _ []parser.Node) error {
			if v, ok := n.(*parser.VectorSelector); ok && (strings.Contains(v.Name, ":") || v.Name == "up") {
				have = append(have, all[v.Name].labels...)
			}
			return nil
		})
		for _, text := range a {
			for _, m := range labelUse.FindAllStringSubmatch(text, -1) {
				if !slices.Contains(have, m[1]) {
					t.Errorf("%s: has no label %s for %q", r.Alert, m[1], text)
				}
			}
		}
		if !slices.Contains(have, "namespace") {
			t.Errorf("%s: does not keep the label namespace", r.Alert)
		}
	}
	for _, r := range committedRules(t, "prometheus/recording.yml") {
		if !recordName.MatchString(r.Record) {
			t.Errorf("recorded name %q", r.Record)
		}
	}
}

// parts of a section of the runbook, in this order.
var parts = []string{"\n**Means.** ", "\n**Harm.** ", "\n**Look.** ", "\n**Stop it.** ", "\n**It worked when** "}

// TestRunbook: each alert has a section with all its parts, and commands with
// what they print; and each section is that of an alert.
func TestRunbook(t *testing.T) {
	page := string(committed(t, "../docs/operations.md"))
	sections := map[string]string{}
	for _, s := range strings.Split(page, "\n### ")[1:] {
		name, text, _ := strings.Cut(s, "\n")
		if strings.HasPrefix(name, "Claimq") {
			text, _, _ = strings.Cut(text, "\n## ")
			sections[name] = "\n" + text
		}
	}
	for _, r := range committedRules(t, "prometheus/alerts.yml") {
		text, ok := sections[r.Alert]
		delete(sections, r.Alert)
		if !ok {
			t.Errorf("docs/operations.md has no section %s", r.Alert)
			continue
		}
		at := 0
		for _, part := range parts {
			i := strings.Index(text[at:], part)
			if i < 0 {
				t.Errorf("docs/operations.md: %s has no %q where it should be", r.Alert, strings.TrimSpace(part))
				continue
			}
			at += i
		}
		_, look, _ := strings.Cut(text, parts[2])
		look, _, _ = strings.Cut(look, parts[3])
		if !strings.Contains(look, "\n    $ ") {
			t.Errorf("docs/operations.md: %s names no command to look with", r.Alert)
		}
	}
	for name := range sections {
		t.Errorf("docs/operations.md: there is no alert %s", name)
	}
}
