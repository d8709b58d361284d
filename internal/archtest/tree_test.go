package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/claimq/claimq"

// file is a Go source file of the main module.
type file struct {
	path  string // from the root, with slashes
	dir   string // of path; "." at the root
	test  bool
	build bool // part of a build on this platform
	lines int
	fset  *token.FileSet
	ast   *ast.File
}

func (f *file) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", f.path, f.fset.Position(n.Pos()).Line)
}

// in reports whether the file is in one of the directories or below.
func (f *file) in(dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return within(f.dir, d) })
}

func within(dir, parent string) bool { return dir == parent || strings.HasPrefix(dir, parent+"/") }

// imports returns the import paths of the file by the line they are on.
func (f *file) imports(visit func(path, at string)) {
	for _, spec := range f.ast.Imports {
		visit(strings.Trim(spec.Path.Value, `"`), f.at(spec))
	}
}

// tree is the repository.
type tree struct {
	root  string
	files []*file           // of the main module
	texts map[string][]byte // every text file, those of other modules too

	resolved resolved // empty before resolve
}

// parsed makes a tree from source texts; for the tests of the rules.
func parsed(t *testing.T, sources map[string]string) *tree {
	t.Helper()
	tr := &tree{texts: map[string][]byte{}}
	for _, name := range sorted(sources) {
		tr.texts[name] = []byte(sources[name])
		if strings.HasSuffix(name, ".go") {
			tr.add(t, token.NewFileSet(), name, []byte(sources[name]), true)
		}
	}
	return tr
}

func sorted[V any](m map[string]V) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (tr *tree) add(t *testing.T, fset *token.FileSet, name string, src []byte, inBuild bool) {
	t.Helper()
	parsedFile, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Errorf("%s does not parse: %v", name, err)
		return
	}
	tr.files = append(tr.files, &file{
		path:  name,
		dir:   path.Dir(name),
		test:  strings.HasSuffix(name, "_test.go"),
		build: inBuild,
		lines: bytes.Count(src, []byte("\n")),
		fset:  fset,
		ast:   parsedFile,
	})
}

// skipped are directories that hold what tools wrote.
var skipped = []string{".git", ".cache", "bin", "node_modules"}

// load reads the repository that contains the working directory.
func load(t *testing.T) *tree {
	t.Helper()
	tr := &tree{root: findRoot(t), texts: map[string][]byte{}}
	fset := token.NewFileSet()
	others := map[string]bool{} // directories of other modules
	err := filepath.WalkDir(tr.root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(tr.root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if slices.Contains(skipped, d.Name()) {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(p, "go.mod")); err == nil && rel != "." {
				others[rel] = true
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		src, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		if bytes.IndexByte(src, 0) < 0 {
			tr.texts[rel] = src
		}
		foreign := slices.ContainsFunc(sorted(others), func(m string) bool { return within(path.Dir(rel), m) })
		if strings.HasSuffix(rel, ".go") && !foreign && !strings.Contains("/"+rel, "/testdata/") {
			match, err := build.Default.MatchFile(filepath.Dir(p), d.Name())
			if err != nil {
				return err
			}
			tr.add(t, fset, rel, src, match)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func findRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if src, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil &&
			strings.HasPrefix(string(src), "module "+module+"\n") {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod of " + module + " above the working directory")
		}
		dir = parent
	}
}
