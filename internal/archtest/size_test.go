package archtest

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"
)

const (
	maxFileLines   = 500
	maxMedianLines = 200
	maxFuncLines   = 70
)

var sizeRules = []rule{{
	name:   "files are short",
	reason: "a file that is read in one sitting is one that is reviewed",
	check: func(tr *tree) []string {
		var found []string
		var all []int
		for _, f := range tr.files {
			if f.test {
				continue
			}
			all = append(all, f.lines)
			if f.lines > maxFileLines {
				found = append(found, violation(f.path, "%d lines, more than %d", f.lines, maxFileLines))
			}
		}
		if len(all) == 0 {
			return found
		}
		slices.Sort(all)
		if median := all[len(all)/2]; median >= maxMedianLines {
			found = append(found, violation("all files", "the median is %d lines, not below %d", median, maxMedianLines))
		}
		return found
	},
}, {
	name:   "functions are short",
	reason: "what does not fit on a page hides the order in which things happen, and in a queue the order is everything",
	check: func(tr *tree) []string {
		var found []string
		for _, f := range tr.files {
			if f.test {
				continue
			}
			for _, d := range f.ast.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok {
					continue
				}
				if n := f.span(fn); n > maxFuncLines {
					found = append(found, violation(f.at(fn), "func %s has %d lines, more than %d", fn.Name.Name, n, maxFuncLines))
				}
			}
		}
		return found
	},
	// "path:line: func name" is matched by "func name ", with its reason.
	exceptions: map[string]string{},
}}

func (f *file) span(n ast.Node) int {
	line := func(p token.Pos) int { return f.fset.Position(p).Line }
	return line(n.End()) - line(n.Pos()) + 1
}

func TestSizeRulesCanFail(t *testing.T) {
	lines := func(n int) string { return strings.Repeat("//\n", n) }
	for _, c := range []trial{{
		rule: "files are short",
		bad: map[string]string{
			"queue/a.go": "package x\n" + lines(500),
			"queue/b.go": "package x\n" + lines(199), // the median of one
		},
		good: map[string]string{"queue/a.go": "package x\n" + lines(198), "queue/a_test.go": "package x\n" + lines(900)},
	}, {
		rule: "functions are short",
		bad:  map[string]string{"queue/a.go": "package x\nfunc f() {\n" + lines(69) + "}\n"},
		good: map[string]string{
			"queue/a.go":      "package x\nfunc f() {\n" + lines(68) + "}\n",
			"queue/a_test.go": "package x\nfunc f() {\n" + lines(200) + "}\n",
		},
	}} {
		c.run(t, false)
	}
}
