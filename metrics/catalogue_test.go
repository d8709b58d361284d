package metrics_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/dedupe"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/metrics"
	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/queue"
)

// everything registers all that there is, on a queue of a real server, and has
// something happen to each family.
func everything(t *testing.T, reg prometheus.Registerer) {
	t.Helper()
	rdb := redistest.Shared(t).Client()
	metrics.Client(reg, rdb)
	q, err := queue.New(queue.Config{Name: "a", Client: rdb, Prefix: redistest.Prefix(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	metrics.Build(reg, "v1.2.3", "abc")
	o := metrics.New(reg, q)
	o.Watch(func() consumer.Status {
		return consumer.Status{State: consumer.StateRunning, Loops: []consumer.LoopStatus{{Name: "fetch", Beat: time.Now()}}}
	})
	o.Swept(consumer.Swept{Queue: "a"})
	p, err := producer.New(q, producer.Config{Observer: metrics.NewProducer(reg, q)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Enqueue(t.Context(), queue.Task{ID: "t", Kind: "k"}); err != nil {
		t.Fatal(err)
	}
	o.Ledger(dedupe.NewRedisLedger(q))
}

// TestCatalogue: what is exposed is the catalogue, with its types, labels, help
// and buckets, neither more nor less.
func TestCatalogue(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	everything(t, reg)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	exposed := map[string]int{}
	for i, f := range families {
		exposed[f.GetName()] = i
	}
	for _, f := range metrics.Catalogue() {
		i, ok := exposed[f.FullName()]
		delete(exposed, f.FullName())
		if !ok {
			t.Errorf("%s is in the catalogue and not exposed", f.FullName())
			continue
		}
		got := families[i]
		if kind := strings.ToLower(got.GetType().String()); kind != f.Type {
			t.Errorf("%s is a %s, want %s", f.FullName(), kind, f.Type)
		}
		if got.GetHelp() != f.Help || !strings.HasSuffix(f.Help, ".") {
			t.Errorf("%s: help %q, want %q, a sentence", f.FullName(), got.GetHelp(), f.Help)
		}
		want := labelNames(f)
		for _, m := range got.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName())
			}
			if !slices.Equal(labels, want) {
				t.Errorf("%s has labels %v, want %v", f.FullName(), labels, want)
			}
			var bounds []float64
			for _, b := range m.GetHistogram().GetBucket() {
				bounds = append(bounds, b.GetUpperBound())
			}
			if !slices.Equal(bounds, f.Buckets) {
				t.Errorf("%s: buckets %v, want %v", f.FullName(), bounds, f.Buckets)
			}
			if native := m.GetHistogram().GetZeroThreshold() > 0; native != (f.Type == metrics.Histogram) {
				t.Errorf("%s: native %v", f.FullName(), native)
			}
		}
	}
	for name := range exposed {
		t.Errorf("%s is exposed and not in the catalogue", name)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}

func labelNames(f metrics.Family) []string {
	var names []string
	for _, l := range f.Labels {
		name, _, _ := strings.Cut(l, ":")
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// TestEveryClosedSeriesExistsFromTheStart: each series whose labels are known
// before anything happened is there at 0.
func TestEveryClosedSeriesExistsFromTheStart(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	queues := offline(t, "a", "b")
	metrics.New(reg, queues...)
	metrics.NewProducer(reg, queues...)
	got := values(t, reg)
	for _, f := range metrics.Catalogue() {
		if f.From != metrics.FromWorker && f.From != metrics.FromProducer || f.Type == metrics.Gauge {
			continue
		}
		series := []map[string]string{{}}
		for _, l := range f.Labels {
			name, _, _ := strings.Cut(l, ":")
			values := metrics.LabelValues(l)
			switch name {
			case "queue":
				values = []string{"a", "b"}
			case "kind":
				values = []string{metrics.OtherKind}
			}
			if len(values) == 0 {
				t.Errorf("%s: label %s has no values", f.Name, l)
			}
			var longer []map[string]string
			for _, s := range series {
				for _, v := range values {
					s := maps.Clone(s)
					s[name] = v
					longer = append(longer, s)
				}
			}
			series = longer
		}
		for _, s := range series {
			var labels []string
			for _, name := range slices.Sorted(maps.Keys(s)) {
				labels = append(labels, name+"="+s[name])
			}
			name := fmt.Sprintf("%s{%s}", f.FullName(), strings.Join(labels, ","))
			if v, ok := got[name]; !ok || v != 0 {
				t.Errorf("%s is %v, there %v; want 0", name, v, ok)
			}
		}
	}
}

// TestClosedSets compares the label values with the constants that they name.
func TestClosedSets(t *testing.T) {
	for _, c := range []struct{ set, dir, typ, prefix string }{
		{"source", "../consumer", "Source", ""},
		{"reason", "../consumer", "FailureReason", ""},
		{"how", "../consumer", "LeaseLoss", ""},
		{"state", "../consumer", "State", ""},
		{"outcome", "../queue", "Outcome", ""},
		{"dead", "../queue", "DeadReason", ""},
		{"step", ".", "", "step"},
	} {
		want := constants(t, c.dir, c.typ, c.prefix)
		got := slices.Sorted(slices.Values(metrics.LabelValues(c.set)))
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v; constants of %s: %v", c.set, got, c.dir, want)
		}
	}
}

// constants are the values, but for "", of a package's string constants that
// have a type, or whose names begin with a prefix.
func constants(t *testing.T, dir, typ, prefix string) []string {
	t.Helper()
	pkgs, err := parseDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	for _, f := range pkgs {
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			id, _ := spec.Type.(*ast.Ident)
			lit, isLit := spec.Values[0].(*ast.BasicLit)
			if !isLit || lit.Kind != token.STRING {
				return true
			}
			if typ != "" && (id == nil || id.Name != typ) || typ == "" && !strings.HasPrefix(spec.Names[0].Name, prefix) {
				return true
			}
			if v, err := strconv.Unquote(lit.Value); err == nil && v != "" {
				values = append(values, v)
			}
			return true
		})
	}
	slices.Sort(values)
	return values
}

func parseDir(dir string) ([]*ast.File, error) {
	names, err := fs.Glob(os.DirFS(dir), "*.go")
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), dir+"/"+name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	if len(files) == 0 {
		return nil, errors.New(dir + " holds no Go files")
	}
	return files, nil
}
