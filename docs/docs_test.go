// Package docs_test holds the documentation to the code: its programs run, its
// links lead somewhere, and what it names exists.
package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/dedupe"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/queue"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// pages returns the texts of all pages, by their path from this directory.
func pages(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, pattern := range []string{"../*.md", "*.md", "decisions/*.md"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			out[filepath.ToSlash(name)] = read(t, name)
		}
	}
	for _, name := range []string{"../README.md", "protocol.md", "guarantees.md", "wire-format.md", "scenarios.md"} {
		if out[name] == "" {
			t.Errorf("%s is missing", name)
		}
	}
	return out
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var (
	fence = regexp.MustCompile("(?ms)^```.*?^```$")
	code  = regexp.MustCompile("`[^`\n]+`")
	link  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
)

// prose is a page without its blocks of code.
func prose(page string) string { return fence.ReplaceAllString(page, "") }

func TestLinksResolve(t *testing.T) {
	for name, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(prose(page), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			path := name
			if target != "" {
				path = filepath.Join(filepath.Dir(name), filepath.FromSlash(target))
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: link to %s: %v", name, m[1], err)
				continue
			}
			if anchor != "" && !slices.Contains(headings(read(t, path)), anchor) {
				t.Errorf("%s: link to %s: there is no such heading", name, m[1])
			}
		}
	}
}

// headings lists the anchors of a page.
func headings(page string) []string {
	var out []string
	for line := range strings.Lines(prose(page)) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && line[0] == '#' {
			out = append(out, strings.Map(func(r rune) rune {
				switch {
				case r == ' ':
					return '-'
				case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
					return unicode.ToLower(r)
				}
				return -1
			}, strings.TrimSpace(title)))
		}
	}
	return out
}

// packages are those whose identifiers the pages may name, and where they are.
var packages = map[string]string{
	"queue": "queue", "consumer": "consumer", "producer": "producer", "outbox": "producer/outbox",
	"dedupe": "dedupe", "postgres": "dedupe/postgres", "lease": "lease", "redislease": "lease/redislease",
	"quorum": "lease/quorum", "pglock": "lease/pglock", "metrics": "metrics", "tracing": "tracing", "claimqtest": "claimqtest",
}

var identifier = regexp.MustCompile(`\b([a-z]+)\.([A-Z]\w*)(?:\.([A-Z]\w*))?`)

func TestIdentifiersExist(t *testing.T) {
	exported := map[string]map[string]bool{}
	for pkg, dir := range packages {
		exported[pkg] = exports(t, filepath.Join("..", filepath.FromSlash(dir)))
	}
	for name, page := range pages(t) {
		for _, span := range code.FindAllString(page, -1) {
			for _, m := range identifier.FindAllStringSubmatch(span, -1) {
				want := m[2]
				if m[3] != "" {
					want += "." + m[3]
				}
				if exported[m[1]] != nil && !exported[m[1]][want] {
					t.Errorf("%s: %s: package %s has no %s", name, span, m[1], want)
				}
			}
		}
	}
}

// exports lists what a package exports: Name, and Type.Name for the fields and
// methods of its types.
func exports(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no Go file in %s: %v", dir, err)
	}
	out := map[string]bool{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				out[receiver(d)+d.Name.Name] = true
			case *ast.GenDecl:
				for _, s := range d.Specs {
					addSpec(out, s)
				}
			}
		}
	}
	return out
}

func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	e := d.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.Ident:
			return x.Name + "."
		default:
			return ""
		}
	}
}

func addSpec(out map[string]bool, s ast.Spec) {
	switch s := s.(type) {
	case *ast.ValueSpec:
		for _, n := range s.Names {
			out[n.Name] = true
		}
	case *ast.TypeSpec:
		out[s.Name.Name] = true
		var list *ast.FieldList
		switch x := s.Type.(type) {
		case *ast.StructType:
			list = x.Fields
		case *ast.InterfaceType:
			list = x.Methods
		}
		if list == nil {
			return
		}
		for _, f := range list.List {
			for _, n := range f.Names {
				out[s.Name.Name+"."+n.Name] = true
			}
		}
	}
}

// variable is a name with an underscore, which no command of the server has.
var variable = regexp.MustCompile(`\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b`)

// testVariables are read by the tests alone, so the example file has them not.
var testVariables = []string{"CLAIMQ_REDIS_SERVER"}

func TestVariablesExist(t *testing.T) {
	example := read(t, "../config.example.env")
	for name, page := range pages(t) {
		for _, span := range code.FindAllString(prose(page), -1) {
			for _, v := range variable.FindAllString(span, -1) {
				if !strings.Contains(example, "\n#"+v+"=") && !slices.Contains(testVariables, v) {
					t.Errorf("%s: %s: config.example.env has no %s", name, span, v)
				}
			}
		}
	}
}

// TestLimitsAreTheConstants holds the table of limits to the code, row by row.
func TestLimitsAreTheConstants(t *testing.T) {
	want := map[string]any{
		"queue.MaxIDBytes":         queue.MaxIDBytes,
		"queue.MaxKindBytes":       queue.MaxKindBytes,
		"queue.MaxHeaders":         queue.MaxHeaders,
		"queue.MaxHeaderBytes":     queue.MaxHeaderBytes,
		"queue.MaxPayloadBytes":    queue.MaxPayloadBytes,
		"queue.MaxResultBytes":     queue.MaxResultBytes,
		"queue.MaxErrorBytes":      queue.MaxErrorBytes,
		"queue.MaxBatch":           queue.MaxBatch,
		"queue.MaxSteps":           queue.MaxSteps,
		"queue.MaxStepBytes":       queue.MaxStepBytes,
		"queue.MaxPartitions":      queue.MaxPartitions,
		"queue.MaxEventErrorBytes": queue.MaxEventErrorBytes,
		"queue.EventsKept":         queue.EventsKept,
		"queue.MinLease":           queue.MinLease,
		"queue.MaxLease":           queue.MaxLease,
		"queue.MaxBlock":           queue.MaxBlock,

		"queue.DefaultLease":            queue.DefaultLease,
		"queue.DefaultRetention":        queue.DefaultRetention,
		"queue.DefaultMaxPayload":       queue.DefaultMaxPayload,
		"queue.DefaultMaxFailures":      queue.DefaultMaxFailures,
		"queue.DefaultMaxInterruptions": queue.DefaultMaxInterruptions,
		"queue.DefaultNoHandlerAfter":   queue.DefaultNoHandlerAfter,

		"consumer.DefaultHousekeepingEvery": consumer.DefaultHousekeepingEvery,
		"consumer.DefaultTimeout":           consumer.DefaultTimeout,
		"consumer.DefaultGrace":             consumer.DefaultGrace,
		"consumer.DefaultMaxUnsettled":      consumer.DefaultMaxUnsettled,
		"consumer.DefaultRetryBase":         consumer.DefaultRetryBase,
		"consumer.DefaultRetryMax":          consumer.DefaultRetryMax,
		"consumer.MaxConcurrency":           consumer.MaxConcurrency,
		"consumer.MaxQueues":                consumer.MaxQueues,
	}
	row := regexp.MustCompile("(?m)^\\| `([a-z]+\\.[A-Z]\\w*)` \\| ([^|]+) \\|")
	_, section, _ := strings.Cut(read(t, "protocol.md"), "\n## Limits\n")
	seen := map[string]bool{}
	for _, m := range row.FindAllStringSubmatch(section, -1) {
		seen[m[1]] = true
		if w, ok := want[m[1]]; !ok {
			t.Errorf("protocol.md: %s is not known to this test", m[1])
		} else if got := strings.ReplaceAll(m[2], ",", ""); got != fmt.Sprint(w) {
			t.Errorf("protocol.md: %s is %v, not %s", m[1], w, m[2])
		}
	}
	for name := range want {
		if !seen[name] {
			t.Errorf("protocol.md: the table of limits lacks %s", name)
		}
	}
}

// TestEveryScriptAndKeyIsDescribed: a transition or a key that is added is
// added to the reference too.
func TestEveryScriptAndKeyIsDescribed(t *testing.T) {
	page := read(t, "protocol.md")
	scripts, err := filepath.Glob("../queue/lua/*.lua")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	key := regexp.MustCompile(`KEYS\[\d+\] (\w+) (stream|hash|zset|string|any)\b`)
	for _, file := range scripts {
		if name := filepath.Base(file); !strings.Contains(page, "`"+name+"`") {
			t.Errorf("protocol.md does not describe %s", name)
		}
		for _, m := range key.FindAllStringSubmatch(read(t, file), -1) {
			what := strings.TrimRight(m[1], "123") // done1, done2, done3
			if what != m[1] {
				what += "1"
			}
			if !strings.Contains(page, "| `"+what+"`") {
				t.Errorf("protocol.md has no row for the key %s of %s", m[1], file)
			}
		}
	}
}

// TestKeyVector holds the idempotency key that the guarantees show.
func TestKeyVector(t *testing.T) {
	key := dedupe.KeyFor("invoices", "invoice-4821-send", "charge")
	if !strings.Contains(read(t, "guarantees.md"), "`"+key.String()+"`") {
		t.Errorf("guarantees.md does not show the key %s of its example", key)
	}
}

var traced = regexp.MustCompile(`\btestdata/protocol/([\w-]+\.txt)`)

// TestNamedTestsExist: a page that says what holds it must be right.
func TestNamedTestsExist(t *testing.T) {
	for name, page := range pages(t) {
		for _, m := range named.FindAllStringSubmatch(page, -1) {
			checkTest(t, name, m[1], m[2], m[3])
		}
		for _, m := range traced.FindAllStringSubmatch(page, -1) {
			if _, err := os.Stat("../queue/testdata/protocol/" + m[1]); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// named is a test as pages name it: its file from the root, its function, and
// after a slash the name of a subtest.
var named = regexp.MustCompile("`([\\w/]+_test\\.go):(Test\\w+)(?:/([\\w.-]+))?`")

func checkTest(t *testing.T, page, file, function, subtest string) {
	t.Helper()
	src, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(file)))
	if err != nil {
		t.Errorf("%s: %v", page, err)
		return
	}
	if !strings.Contains(string(src), "\nfunc "+function+"(") {
		t.Errorf("%s: %s has no %s", page, file, function)
	}
	if function == "TestProtocol" && subtest != "" {
		if _, err := os.Stat("../queue/testdata/protocol/" + subtest + ".txt"); err != nil {
			t.Errorf("%s: %v", page, err)
		}
	}
}
