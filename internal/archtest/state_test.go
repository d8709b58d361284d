package archtest

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"
	"testing"
)

var stateRules = []rule{{
	name: "no package-level state",
	reason: "two queues in one process must not know of each other, and a test must not inherit what another left; " +
		"a package-level variable is an error, an embedded file, or a table that nobody writes",
	check: func(tr *tree) []string {
		var found []string
		for _, f := range tr.files {
			if f.test || !f.build || !f.in(libraries...) {
				continue
			}
			for _, d := range f.ast.Decls {
				if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR {
					for _, s := range g.Specs {
						found = append(found, tr.variables(f, g, s.(*ast.ValueSpec))...)
					}
				}
			}
		}
		return append(found, tr.writes()...)
	},
}, {
	name:   "no init functions in libraries",
	reason: "importing a package must have no effect; what has to be prepared is prepared by New, which can report an error",
	check: func(tr *tree) []string {
		var found []string
		for _, f := range tr.files {
			if f.test || !f.in(libraries...) {
				continue
			}
			for _, d := range f.ast.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
					found = append(found, violation(f.at(fn), "func init"))
				}
			}
		}
		return found
	},
}}

// variables judges the declaration of package-level variables by what they are.
func (tr *tree) variables(f *file, g *ast.GenDecl, spec *ast.ValueSpec) []string {
	if embeds(g.Doc) || embeds(spec.Doc) {
		return nil
	}
	var found []string
	for _, name := range spec.Names {
		if name.Name == "_" {
			continue // an interface assertion
		}
		var typ types.Type
		if info := tr.resolved.info[f.dir]; info != nil && info.Defs[name] != nil {
			typ = info.Defs[name].Type()
		}
		switch {
		case isError(typ) || typ == nil && strings.HasPrefix(name.Name, "Err"):
		case len(spec.Values) == 0:
			found = append(found, violation(f.at(name), "%s has no value, so it exists to be written", name.Name))
		case isState(typ):
			found = append(found, violation(f.at(name), "%s is state: %s", name.Name, typ))
		case name.IsExported():
			found = append(found, violation(f.at(name), "%s is exported, so anybody can write it; make it a function or a constant", name.Name))
		}
	}
	return found
}

func embeds(doc *ast.CommentGroup) bool {
	if doc == nil {
		return false
	}
	for _, c := range doc.List {
		if strings.HasPrefix(c.Text, "//go:embed ") {
			return true
		}
	}
	return false
}

func isError(t types.Type) bool {
	if t == nil {
		return false
	}
	iface := types.Universe.Lookup("error").Type().Underlying().(*types.Interface)
	return types.Implements(t, iface)
}

// isState reports whether values of t exist to be changed: locks, atomics,
// pools, channels.
func isState(t types.Type) bool {
	switch t := t.(type) {
	case nil:
		return false
	case *types.Pointer:
		return isState(t.Elem())
	case *types.Chan:
		return true
	case *types.Named:
		pkg := t.Obj().Pkg()
		if pkg != nil && (pkg.Path() == "sync" || pkg.Path() == "sync/atomic") {
			return true
		}
	}
	if s, ok := t.Underlying().(*types.Struct); ok {
		for i := range s.NumFields() {
			if isState(s.Field(i).Type()) {
				return true
			}
		}
	}
	return false
}

// writes finds what changes a package-level variable of a library: an
// assignment to it or to a part of it, its address, delete, clear and copy.
func (tr *tree) writes() []string {
	var found []string
	for _, f := range tr.files {
		info := tr.resolved.info[f.dir]
		if f.test || info == nil || !f.in(libraries...) {
			continue
		}
		report := func(e ast.Expr) {
			if id := root(e, info); id != nil && isPackageVar(info.Uses[id]) {
				found = append(found, violation(f.at(e), "writes package-level %s", id.Name))
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for _, e := range n.Lhs {
					report(e)
				}
			case *ast.RangeStmt:
				if n.Tok == token.ASSIGN {
					report(n.Key)
					report(n.Value)
				}
			case *ast.IncDecStmt:
				report(n.X)
			case *ast.UnaryExpr:
				if n.Op == token.AND {
					report(n.X)
				}
			case *ast.CallExpr:
				if fn, ok := n.Fun.(*ast.Ident); ok && len(n.Args) > 0 &&
					(fn.Name == "delete" || fn.Name == "clear" || fn.Name == "copy") {
					report(n.Args[0])
				}
			}
			return true
		})
	}
	return found
}

// root returns the variable of which e is a part.
func root(e ast.Expr, info *types.Info) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x
		case *ast.SelectorExpr:
			if id, ok := x.X.(*ast.Ident); ok {
				if _, isPackage := info.Uses[id].(*types.PkgName); isPackage {
					return x.Sel
				}
			}
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.SliceExpr:
			e = x.X
		default:
			return nil
		}
	}
}

func isPackageVar(obj types.Object) bool {
	v, ok := obj.(*types.Var)
	return ok && v.Pkg() != nil && v.Parent() == v.Pkg().Scope()
}

func TestStateRulesCanFail(t *testing.T) {
	for _, c := range []trial{{
		rule: "no package-level state",
		bad: map[string]string{
			"queue/a.go":    "package x\nvar n int",
			"queue/b.go":    "package x\nvar n = 1\nfunc f() { n++ }",
			"queue/c.go":    "package x\nvar m = map[string]int{}\nfunc f() { m[\"a\"] = 1 }",
			"queue/d.go":    "package x\nvar m = map[string]int{}\nfunc f() { delete(m, \"a\") }",
			"consumer/a.go": "package x\nimport \"sync\"\nvar p = sync.Pool{New: nil}",
			"consumer/b.go": "package x\nimport \"sync/atomic\"\nvar p = new(atomic.Int64)",
			"producer/a.go": "package x\nvar Default = 5",
			"producer/b.go": "package x\nvar c = make(chan int)",
			"dedupe/a.go":   "package x\ntype s struct{ n int }\nvar d = &s{}\nfunc f() { d.n = 1 }",
			"dedupe/b.go":   "package x\nvar d = []int{1}\nfunc f() { p := &d; _ = p }",
			"dedupe/c.go":   "package x\nimport \"os\"\nfunc f() { os.Args = nil }",
			"dedupe/d.go":   "package x\nvar d int\nfunc f() { for d = range 3 {} }",
			"metrics/a.go":  "package x\nimport \"sync\"\nvar c = struct{ sync.Mutex }{}",
		},
		good: map[string]string{
			"queue/a.go": `package x
import ("embed"; "errors"; "fmt"; "regexp")
var ErrX = errors.New("x")
var (
	errY = fmt.Errorf("y: %w", ErrX)
	line = regexp.MustCompile("x")
	_ fmt.Stringer = (*T)(nil)
	table = map[string]int{"a": 1}
)
type T struct{ n int }
func (t *T) String() string { table := map[string]int{}; table["a"] = t.n; t.n++; return "" }
//go:embed *.lua
var files embed.FS
`,
			"internal/ops/a.go": "package x\nvar n int",
			"queue/a_test.go":   "package x\nvar n int",
		},
	}, {
		rule: "no init functions in libraries",
		bad:  map[string]string{"queue/a.go": "package x\nfunc init() {}"},
		good: map[string]string{"queue/a.go": "package x\ntype t int\nfunc (t) init() {}"},
	}} {
		c.run(t, true)
	}
}
