package config

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite config.example.env")

const examplePath = "../../config.example.env"

const exampleHead = `# Settings of claimq's programs, with their defaults.
#
# Plain KEY=value lines: no quotes, no export, nothing is expanded, so that the
# file means the same to systemd (EnvironmentFile), Docker (--env-file) and
# Compose (env_file). Remove the # in front of what you change. An empty value
# means the default. Durations need a unit: ms, s, m or h.
#
# A variable with a _FILE form may be given in a file instead: the _FILE form
# names it, and one newline at its end is dropped. Set one of the two.
#
# This file is generated from the doc comments in internal/config.
`

// TestExampleFile keeps config.example.env and the structs the same, in both
// directions: names, meanings, ranges and defaults.
func TestExampleFile(t *testing.T) {
	want := render(t)
	if *update {
		if err := os.WriteFile(examplePath, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(examplePath)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("config.example.env differs from the structs (-structs +file); run go generate ./internal/config\n%s", diff)
	}
}

// TestExampleFileIsTheDefaults uncomments every default of the file as it
// stands and loads it: it must be understood, and change nothing.
func TestExampleFileIsTheDefaults(t *testing.T) {
	text, err := os.ReadFile(examplePath)
	if err != nil {
		t.Fatal(err)
	}
	defaults := map[string]string{}
	for _, g := range allGroups() {
		for _, v := range variablesOf(g) {
			defaults[v.Name] = v.Default
		}
	}
	var environ []string
	seen := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		kv, ok := strings.CutPrefix(strings.TrimSpace(line), "#")
		name, value, assigns := strings.Cut(kv, "=")
		if !ok || !assigns || strings.HasPrefix(kv, " ") {
			continue
		}
		seen[name] = true
		if value != "" && value != defaults[name] {
			t.Errorf("%s: the file says %q, the default is %q", name, value, defaults[name])
		}
		environ = append(environ, name+"="+value)
	}
	for _, name := range Names() {
		if !seen[name] {
			t.Errorf("%s is not in the file", name)
		}
	}
	if len(seen) != len(Names()) {
		t.Errorf("the file has %d variables, the structs have %d", len(seen), len(Names()))
	}
	got, err := LoadWorker(environ)
	if err != nil {
		t.Fatal(err)
	}
	want, err := LoadWorker([]string{})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("loaded from the file: %+v\nloaded from nothing: %+v", got, want)
	}
}

// render writes the file from the structs.
func render(t *testing.T) []byte {
	t.Helper()
	docs := docComments(t)
	var b bytes.Buffer
	b.WriteString(exampleHead)
	for _, g := range allGroups() {
		group := reflect.TypeOf(g).Elem().Name()
		title, rest := heading(group, docs[group])
		fmt.Fprintf(&b, "\n\n# == %s ==\n%s", title, comment(rest))
		for _, v := range variablesOf(g) {
			doc := docs[group+"."+v.Field]
			if doc == "" {
				t.Errorf("%s.%s has no doc comment", group, v.Field)
			}
			b.WriteString("\n" + comment(doc))
			if v.Range != "" {
				fmt.Fprintf(&b, "# Range: %s.\n", rangeText(v.Range))
			}
			if v.Example != "" {
				fmt.Fprintf(&b, "# Example: %s\n", v.Example)
			}
			fmt.Fprintf(&b, "#%s=%s\n", v.Name, v.Default)
			if v.Secret {
				fmt.Fprintf(&b, "#%s_FILE=\n", v.Name)
			}
		}
	}
	return b.Bytes()
}

// heading turns "Run is how the worker runs tasks. More." into "How the worker
// runs tasks" and "More."
func heading(group, doc string) (title, rest string) {
	doc = strings.ReplaceAll(strings.TrimPrefix(doc, group+" is "), "\n", " ")
	title, rest, _ = strings.Cut(doc, ". ")
	return strings.ToUpper(title[:1]) + strings.TrimRight(title[1:], ". "), strings.TrimSpace(rest)
}

func comment(doc string) string {
	var b strings.Builder
	for line := range strings.Lines(doc) {
		b.WriteString("# " + strings.TrimSuffix(line, "\n") + "\n")
	}
	return b.String()
}

// docComments returns the comment of each struct and of each of its fields.
func docComments(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "groups.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	docs := map[string]string{}
	for _, d := range file.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok || decl.Tok != token.TYPE {
			continue
		}
		for _, s := range decl.Specs {
			spec := s.(*ast.TypeSpec)
			st, ok := spec.Type.(*ast.StructType)
			if !ok {
				continue
			}
			docs[spec.Name.Name] = decl.Doc.Text()
			for _, f := range st.Fields.List {
				for _, n := range f.Names {
					docs[spec.Name.Name+"."+n.Name] = f.Doc.Text()
				}
			}
		}
	}
	return docs
}
