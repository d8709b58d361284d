package metrics_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/claimq/claimq/metrics"
)

var update = flag.Bool("update", false, "rewrite docs/metrics.md")

const docsPath = "../docs/metrics.md"

// sections are the parts of the page, by where their families come from.
var sections = []struct{ from, title, text string }{
	{metrics.FromState, "State of the queues", `Read from the server at scrape, at constant cost, and used again for 5 seconds.
Exported by ` + "`worker run` and `worker exporter`" + `, and every one of them reports the
same: take ` + "`max by (queue)`" + ` before any sum. What the server cannot tell is absent,
never 0: compare with ` + "`claimq_collector_success`" + `.`},
	{metrics.FromProducer, "Producers", `Counted by a process that gives ` + "`metrics.NewProducer`" + ` to its producers.`},
	{metrics.FromWorker, "Workers", "Counted by each worker, and reported by `worker run`."},
	{metrics.FromClient, "Redis client", `Of the client that makes all calls but blocking reads, which have connections of
their own. A command is the name of one of the queue's scripts (` + "`enqueue`, `begin`,\n`complete` …), `info`, `xrange`, `pipeline`" + ` of different ones, or ` + "`other`" + `.`},
	{metrics.FromProcess, "Every process", "Besides, `worker` reports Go's own `go_*` and `process_*`."},
}

// render writes the page.
func render(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	b.WriteString(`# Metrics

Every family that claimq reports to Prometheus. Generated from the catalogue in
package ` + "`metrics`: `go generate ./metrics`" + `.

No label holds a task ID, a consumer name or an error text. ` + "`queue`" + ` has the names in
the configuration. ` + "`kind`" + ` has at most ` + fmt.Sprint(metrics.MaxKinds) + ` values, those named in the settings and then
those seen first; any further one is ` + "`" + metrics.OtherKind + "`" + `. All other labels have closed sets of
values, given below. Counters and histograms of values that are known exist from
the start at 0. *Maybe absent* says that a family may have no sample although all
is well.

Histograms are classic and native in one; to store the native form Prometheus
needs ` + "`scrape_native_histograms: true`" + ` (3.9 and later), and beside it
` + "`always_scrape_classic_histograms: true`" + ` for queries of ` + "`_bucket`" + `. Waiting, running and
end-to-end times carry a ` + "`trace_id`" + ` as exemplar where a task came with a sampled
` + "`traceparent`" + ` header, in the OpenMetrics form.
`)
	left := map[string]bool{}
	for _, f := range metrics.Catalogue() {
		left[f.Name] = true
	}
	for _, s := range sections {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| metric | type | labels | |\n|---|---|---|---|\n", s.title, s.text)
		for _, f := range metrics.Catalogue() {
			if f.From != s.from {
				continue
			}
			delete(left, f.Name)
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.FullName(), f.Type, labelText(f), helpText(f))
		}
	}
	for name := range left {
		t.Errorf("%s is in no section", name)
	}
	return b.Bytes()
}

func labelText(f metrics.Family) string {
	var labels []string
	for _, l := range f.Labels {
		name, _, _ := strings.Cut(l, ":")
		text := "`" + name + "`"
		if values := metrics.LabelValues(l); values != nil {
			text += ": " + strings.Join(values, ", ")
		}
		labels = append(labels, text)
	}
	return strings.Join(labels, "; ")
}

func helpText(f metrics.Family) string {
	text := f.Help
	if f.Buckets != nil {
		var bounds []string
		for _, b := range f.Buckets {
			bounds = append(bounds, strconv.FormatFloat(b, 'f', -1, 64))
		}
		text += " Buckets: " + strings.Join(bounds, ", ") + "."
	}
	if f.Absent {
		text += " *Maybe absent.*"
	}
	return text
}

// TestDocs keeps docs/metrics.md and the catalogue the same.
func TestDocs(t *testing.T) {
	want := render(t)
	if *update {
		if err := os.WriteFile(docsPath, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(docsPath)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("docs/metrics.md differs from the catalogue (-catalogue +page); run go generate ./metrics\n%s", diff)
	}
}
