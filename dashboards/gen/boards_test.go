package main

//lint:file-ignore SA1019 classic JSON is what all supported versions of Grafana read from files

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
)

// boards are the committed dashboards by their uid.
var boards = map[string]string{
	overviewUID: "overview.json",
	queueUID:    "queue.json",
	workersUID:  "workers.json",
}

func committed(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestCommittedFilesAreGenerated: whoever changes the generator, or a file that
// it writes, runs make dashboards.
func TestCommittedFilesAreGenerated(t *testing.T) {
	files, err := generated()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := write(dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if !bytes.Equal(committed(t, name), want) {
			t.Errorf("%s is not what the generator writes: run make dashboards", name)
		}
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s was written otherwise: %v", name, err)
		}
		if !bytes.HasSuffix(want, []byte("\n")) || bytes.HasSuffix(want, []byte("\n\n")) {
			t.Errorf("%s does not end in one newline", name)
		}
	}
	for uid, name := range boards {
		if files[name] == nil {
			t.Errorf("%s: %s is not generated", uid, name)
		}
	}
}

// decodeStrict reads a dashboard: a field that the format does not have, or of
// another type, is an error.
func decodeStrict(raw []byte) (dashboard.Dashboard, error) {
	plugins.RegisterDefaultPlugins()
	// The strict decoder returns its list of errors even when it is empty, and
	// then leaves out what it has read, so the values are read once more. What
	// it does not look at strictly does not come out again.
	var strict, d dashboard.Dashboard
	if err := strict.UnmarshalJSONStrict(raw); err != nil && err.Error() != "" {
		return d, err
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		return d, err
	}
	if again, err := sorted(d); err != nil || !bytes.Equal(again, raw) {
		return d, fmt.Errorf("a field is not of the format, or nothing (%v)", err)
	}
	return d, d.Validate()
}

func decode(t *testing.T, name string) dashboard.Dashboard {
	t.Helper()
	raw := committed(t, name)
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if id, ok := fields["id"]; !ok || string(id) != "null" {
		t.Errorf("%s: id is %s, not null", name, id)
	}
	d, err := decodeStrict(raw)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return d
}

func TestDashboardsDecode(t *testing.T) {
	for uid, name := range boards {
		d := decode(t, name)
		if *d.Uid != uid || *d.Editable || d.SchemaVersion != 42 || !slices.Equal(d.Tags, []string{tag}) || *d.Description == "" {
			t.Errorf("%s: uid %s, editable %v, schema %d, tags %v", name, *d.Uid, *d.Editable, d.SchemaVersion, d.Tags)
		}
		links := 0
		for _, l := range d.Links {
			if l.Type == dashboard.DashboardLinkTypeDashboards && l.KeepTime && l.IncludeVars && slices.Equal(l.Tags, []string{tag}) {
				links++
			}
		}
		if links != 1 {
			t.Errorf("%s: no link to the other dashboards that keeps time and variables", name)
		}
		if len(d.Annotations.List) != 3 {
			t.Errorf("%s: %d annotations", name, len(d.Annotations.List))
		}
	}
}

// TestDecodingIsStrict: wherever a field is misspelt, it is seen.
func TestDecodingIsStrict(t *testing.T) {
	for old, broken := range map[string]string{
		`"editable": false`:    `"editible": false`,
		`"gridPos": {`:         `"gridpositn": {`,
		`"mode": "thresholds"`: `"mood": "thresholds"`,
		`"editorMode": "code"`: `"editor": "code"`,
		`"titleFormat": "`:     `"title": "`,
		`"colorMode": "value"`: `"colour": "value"`,
		`"fillOpacity": 10`:    `"fillOpaque": 10`,
		`"showHeader": true`:   `"showHead": true`,
		`"schemaVersion": 42`:  `"schemaVersion": "42"`,
		`"includeAll": true`:   `"includeEverything": true`,
		`"keepTime": true`:     `"keepsTime": true`,
		`"matcher": {`:         `"match": {`,
		`"type": "range"`:      `"typo": "range"`,
	} {
		whole := committed(t, "overview.json")
		raw := bytes.Replace(whole, []byte(old), []byte(broken), 1)
		if bytes.Equal(raw, whole) {
			t.Errorf("there is no %s", old)
		}
		if _, err := decodeStrict(raw); err == nil {
			t.Errorf("%s is taken for %s", broken, old)
		}
	}
}

// TestLayout: rows span the grid, panels stand in lines that fill it, nothing
// overlaps, and each number is given once.
func TestLayout(t *testing.T) {
	for _, name := range boards {
		ids := map[uint32]string{}
		cells := map[[2]uint32]string{}
		var bottom uint32
		place := func(title string, id uint32, g *dashboard.GridPos) {
			if ids[id] != "" || id == 0 {
				t.Errorf("%s: %q and %q have id %d", name, title, ids[id], id)
			}
			ids[id] = title
			if g.X+g.W > 24 || g.W == 0 || g.H == 0 {
				t.Errorf("%s: %q is outside of the grid: %+v", name, title, *g)
			}
			for x := g.X; x < g.X+g.W; x++ {
				for y := g.Y; y < g.Y+g.H; y++ {
					if other := cells[[2]uint32{x, y}]; other != "" {
						t.Fatalf("%s: %q overlaps %q", name, title, other)
					}
					cells[[2]uint32{x, y}] = title
				}
			}
			bottom = max(bottom, g.Y+g.H)
		}
		for _, p := range decode(t, name).Panels {
			if r := p.RowPanel; r != nil {
				if r.GridPos.W != 24 || r.GridPos.H != 1 || r.GridPos.X != 0 || r.Collapsed || len(r.Panels) > 0 {
					t.Errorf("%s: row %q is %+v", name, *r.Title, *r.GridPos)
				}
				place("row "+*r.Title, r.Id, r.GridPos)
				continue
			}
			place(*p.Panel.Title, *p.Panel.Id, p.Panel.GridPos)
		}
		for x := range uint32(24) {
			for y := range bottom {
				if cells[[2]uint32{x, y}] == "" {
					t.Fatalf("%s: nothing at column %d, line %d", name, x, y)
				}
			}
		}
	}
}

// units that panels use; a unit that Grafana does not know is shown as text.
var units = []string{"none", "short", "s", "percentunit", "cps", "bytes"}

// TestPanelsSayWhatTheyShow: a title, one to five plain sentences, a unit, and
// the data source that the reader has chosen.
func TestPanelsSayWhatTheyShow(t *testing.T) {
	for _, name := range boards {
		titles := map[string]bool{}
		row := ""
		for _, p := range decode(t, name).Panels {
			if p.RowPanel != nil {
				row = *p.RowPanel.Title
				continue
			}
			panel := p.Panel
			title := row + " / " + *panel.Title
			if *panel.Title == "" || titles[title] {
				t.Errorf("%s: title %q is empty or used twice", name, title)
			}
			titles[title] = true
			if about := *panel.Description; len(about) < 15 || len(about) > 260 || !strings.HasSuffix(about, ".") {
				t.Errorf("%s: %q is described as %q", name, title, about)
			}
			if unit := panel.FieldConfig.Defaults.Unit; unit == nil || !slices.Contains(units, *unit) {
				t.Errorf("%s: %q has no unit that is known", name, title)
			}
			if ds := panel.Datasource; ds == nil || *ds.Uid != "${datasource}" {
				t.Errorf("%s: %q has a data source of its own", name, title)
			}
			if len(panel.Targets) == 0 {
				t.Errorf("%s: %q asks nothing", name, title)
			}
		}
	}
}

// TestFirstRowAnswers: who has never seen the product reads four questions and,
// in words, their answers.
func TestFirstRowAnswers(t *testing.T) {
	d := decode(t, "overview.json")
	var questions []string
	for _, p := range d.Panels[1:6] {
		questions = append(questions, *p.Panel.Title)
		if q := p.Panel.Targets[0].(*prometheus.Dataquery); q.Instant == nil || !*q.Instant {
			t.Errorf("%q shows an old answer when there is no new one", *p.Panel.Title)
		}
		bad := false
		for _, m := range p.Panel.FieldConfig.Defaults.Mappings {
			bad = bad || m.RangeMap != nil && *m.RangeMap.Options.Result.Color == "red" && *m.RangeMap.Options.Result.Text != ""
		}
		if *p.Panel.Title != "Alerts" && (!bad || *p.Panel.FieldConfig.Defaults.NoValue != unknown) {
			t.Errorf("%q has no word for the worst, or none for not known", *p.Panel.Title)
		}
	}
	if want := []string{"Late?", "Failing?", "Working?", "Recovering?", "Alerts"}; !slices.Equal(questions, want) {
		t.Errorf("the first row asks %q, not %q", questions, want)
	}
}

var variable = regexp.MustCompile(`\$(?:\{([a-zA-Z]\w*)[^}]*\}|([a-zA-Z]\w*))`)

// TestVariables: what is used is defined, and what is defined is used.
func TestVariables(t *testing.T) {
	for _, name := range boards {
		d := decode(t, name)
		defined := map[string]bool{}
		for _, v := range d.Templating.List {
			if v.Description == nil || *v.Description == "" {
				t.Errorf("%s: variable %s is not described", name, v.Name)
			}
			defined[v.Name] = true
		}
		for _, want := range []string{"datasource", "job", "instance", "queue"} {
			if !defined[want] {
				t.Errorf("%s: no variable %s", name, want)
			}
		}
		used := map[string]bool{}
		for _, m := range variable.FindAllStringSubmatch(string(committed(t, name)), -1) {
			v := m[1] + m[2]
			used[v] = true
			if !defined[v] {
				t.Errorf("%s: uses $%s, which is not defined", name, v)
			}
		}
		for v := range defined {
			if !used[v] {
				t.Errorf("%s: $%s is not used", name, v)
			}
		}
	}
}

// TestLinksLeadToDashboards: what panels and alerts link to exists.
func TestLinksLeadToDashboards(t *testing.T) {
	link := regexp.MustCompile(`/d/([\w-]+)`)
	found := 0
	for _, name := range append(sortedKeys(map[string]bool{"overview.json": true, "queue.json": true, "workers.json": true}), "prometheus/alerts.yml") {
		for _, m := range link.FindAllStringSubmatch(string(committed(t, name)), -1) {
			found++
			if boards[m[1]] == "" {
				t.Errorf("%s: there is no dashboard %s", name, m[1])
			}
		}
	}
	if found == 0 {
		t.Error("nothing links to a dashboard")
	}
}
