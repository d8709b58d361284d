package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"sync"
	"testing"
)

// wanted are packages that the rules' own tests use, beside those that the
// repository imports anyway.
var wanted = []string{
	"context", "fmt", "log", "os", "regexp", "sync", "sync/atomic", "time", "errors", "embed",
	"golang.org/x/sync/errgroup",
	"github.com/redis/go-redis/v9",
}

// exports maps import paths to files with the compiler's export data. Asking
// the compiler what a name means, in place of guessing from its spelling, is
// what tells redis.Client.Get from http.Header.Get.
var exports = sync.OnceValues(func() (map[string]string, error) {
	args := append([]string{"list", "-e", "-export", "-deps", "-json=ImportPath,Export", module + "/..."}, wanted...)
	cmd := exec.Command("go", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, stderr.Bytes())
	}
	files := map[string]string{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var pkg struct{ ImportPath, Export string }
		if err := dec.Decode(&pkg); errors.Is(err, io.EOF) {
			return files, nil
		} else if err != nil {
			return nil, err
		}
		files[pkg.ImportPath] = pkg.Export
	}
})

// use is a place where the code of a file names something.
type use struct {
	file *file
	id   *ast.Ident
	obj  types.Object
}

// resolved is what the compiler knows of the files that are not tests.
type resolved struct {
	uses []use
	info map[string]*types.Info // by directory
}

// resolve type-checks the files that are not tests. A package that does not
// compile is checked as far as it goes: telling of that is the compiler's part.
func (tr *tree) resolve(t *testing.T) {
	t.Helper()
	files, err := exports()
	if err != nil {
		t.Fatal(err)
	}
	out := resolved{info: map[string]*types.Info{}}
	packages := map[string][]*file{}
	for _, f := range tr.files {
		if !f.test && f.build {
			packages[f.dir] = append(packages[f.dir], f)
		}
	}
	for _, dir := range sorted(packages) {
		fset := packages[dir][0].fset
		info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
		out.info[dir] = info
		conf := types.Config{
			Importer: importer.ForCompiler(fset, "gc", lookup(files)),
			Error:    func(error) {},
		}
		var asts []*ast.File
		for _, f := range packages[dir] {
			asts = append(asts, f.ast)
		}
		_, _ = conf.Check(path.Join(module, dir), fset, asts, info)
		for _, f := range packages[dir] {
			ast.Inspect(f.ast, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && info.Uses[id] != nil {
					out.uses = append(out.uses, use{f, id, info.Uses[id]})
				}
				return true
			})
		}
	}
	tr.resolved = out
}

func lookup(files map[string]string) importer.Lookup {
	return func(path string) (io.ReadCloser, error) {
		name := files[path]
		if name == "" {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(name)
	}
}

// TestEverythingResolves guards the rules above: what the type checker could
// not read, they cannot judge.
func TestEverythingResolves(t *testing.T) {
	tr := load(t)
	files, err := exports()
	if err != nil {
		t.Fatal(err)
	}
	dirs := map[string]bool{}
	for _, f := range tr.files {
		if !f.test && f.build {
			dirs[f.dir] = true
		}
	}
	for _, dir := range sorted(dirs) {
		if files[path.Join(module, dir)] == "" {
			t.Errorf("%s does not compile, so the rules cannot judge it", dir)
		}
	}
}
