package observe

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// rateInterval is what Grafana makes of scrapes each second: four of them.
const rateInterval = "4s"

// board is what the check reads of a dashboard's JSON.
type board struct {
	UID        string
	Templating struct {
		List []struct {
			Name, Type, AllValue, Definition string
		}
	}
	Annotations struct {
		List []struct{ Name, Expr string }
	}
	Panels []struct {
		Type, Title string
		Targets     []struct {
			RefID, Expr string
			Instant     bool
		}
	}
}

// question is one query of a dashboard, with the variables in it.
type question struct {
	name    string // board / panel [/ letter]
	expr    string
	instant bool
}

var labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)

// readBoards reads the dashboards and puts in the variables as Grafana does
// with All chosen: each value that there is, or the value that stands for all.
func readBoards(t *testing.T, p *prom, from time.Time) (panels int, all []question) {
	t.Helper()
	files, err := filepath.Glob("../../dashboards/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no dashboards (%v)", err)
	}
	for _, name := range files {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var b board
		if err := json.Unmarshal(raw, &b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		values := []string{"$__rate_interval", rateInterval, "$__interval", rateInterval}
		for _, v := range b.Templating.List {
			if v.Type == "query" {
				values = append(values, "$"+v.Name, variable(t, p, from, strings.NewReplacer(values...).Replace(v.Definition), v.AllValue))
			}
		}
		fill := strings.NewReplacer(values...)
		short := strings.TrimSuffix(filepath.Base(name), ".json")
		for _, panel := range b.Panels {
			if len(panel.Targets) > 0 {
				panels++
			}
			for _, target := range panel.Targets {
				q := question{short + " / " + panel.Title, fill.Replace(target.Expr), target.Instant}
				if len(panel.Targets) > 1 {
					q.name += " / " + target.RefID
				}
				all = append(all, q)
			}
		}
		for _, a := range b.Annotations.List {
			all = append(all, question{short + " / annotation " + a.Name, fill.Replace(a.Expr), false})
		}
	}
	for _, q := range all {
		if strings.Contains(q.expr, "$") {
			t.Errorf("%s: a variable is left in %s", q.name, q.expr)
		}
	}
	return panels, all
}

// variable asks for the values of a variable; there must be some.
func variable(t *testing.T, p *prom, from time.Time, definition, allValue string) string {
	t.Helper()
	m := labelValues.FindStringSubmatch(definition)
	if m == nil {
		t.Fatalf("not understood: %s", definition)
	}
	found, err := p.labelValues(m[2], m[1], from)
	if err != nil || len(found) == 0 {
		t.Fatalf("%s has no values (%v)", definition, err)
	}
	if allValue != "" {
		return allValue
	}
	var values []string
	for _, v := range found {
		values = append(values, regexp.QuoteMeta(v))
	}
	return "(" + strings.Join(values, "|") + ")"
}
