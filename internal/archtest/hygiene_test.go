package archtest

import (
	"bufio"
	"bytes"
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// ackingScripts may take an entry out of the pending entries list. XACK asks
// nobody who holds the entry, so each names what the script made sure of first.
var ackingScripts = map[string]string{
	"queue/lua/begin.lua":          "copies: the record says the ID is done, or is another entry that was seen to exist or is leased",
	"queue/lua/complete.lua":       "held_by: the record ends with the caller's fence and token; the done mark is written before",
	"queue/lua/dead.lua":           "held_by, and the dead letter was added before",
	"queue/lua/retry.lua":          "held_by, and the scheduled entry or the dead letter was added before",
	"queue/lua/release.lua":        "held_by, and the new entry was added before",
	"queue/lua/include/settle.lua": "drop_gone is called for held tasks only, whose entry was seen to be gone",
	"queue/lua/quarantine.lua":     "the entry is no task, so nobody can hold it; it is pending and its dead letter was added before",
	"queue/lua/delete.lua":         "on purpose from any holder: the record goes in the same step and the grant is told",
	"queue/lua/reclaim.lua":        "the entry is gone from the stream, as the claim showed",
	"queue/lua/tidy.lua":           "the entry is gone from the stream and no live lease covers it",
	"queue/lua/probe.lua":          "an entry of its own on a scratch key",
}

// unwanted are texts that no file may contain. They are put together here so
// that this file does not contain them.
var unwanted = map[*regexp.Regexp]string{
	regexp.MustCompile(`(^|[^\w.])/` + `(work|root)/`): "a path of the machine that it was written on",
	regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME)\b`):   "a note to self: do it, or open an issue",
}

var hygieneRules = []rule{{
	name:   "only known scripts ack",
	reason: "XACK names no consumer and succeeds for anybody; a script that acks before it checked the holder, or before the copy exists, loses the task",
	check: func(tr *tree) []string {
		var found []string
		acks := map[string]bool{}
		for _, name := range sorted(tr.texts) {
			if path.Ext(name) != ".lua" || !within(path.Dir(name), "queue/lua") {
				continue
			}
			for n, line := range eachLine(tr.texts[name]) {
				code, _, _ := strings.Cut(line, "--")
				if strings.Contains(strings.ToUpper(code), "XACK") {
					acks[name] = true
					if ackingScripts[name] == "" {
						found = append(found, violation(fmt.Sprintf("%s:%d", name, n+1), "acks, and is not among the scripts known to"))
					}
				}
			}
		}
		if tr.root != "" { // a whole repository
			for _, name := range sorted(ackingScripts) {
				if !acks[name] {
					found = append(found, violation(name, "does not ack any more: take it off the list"))
				}
			}
		}
		return found
	},
}, {
	name:   "no leftovers",
	reason: "a reader can do nothing with a path of somebody else's machine or with a note to self",
	check: func(tr *tree) []string {
		var found []string
		for _, name := range sorted(tr.texts) {
			for n, line := range eachLine(tr.texts[name]) {
				for re, what := range unwanted {
					if re.MatchString(line) {
						found = append(found, violation(fmt.Sprintf("%s:%d", name, n+1), "%s: %q", what, re.FindString(line)))
					}
				}
			}
		}
		return found
	},
}, {
	name:   "tests do not sleep",
	reason: "a sleep is too short on a busy machine and too long on every other; wait for the thing itself, or use testing/synctest",
	check: func(tr *tree) []string {
		return tr.eachTestSelector(func(f *file, sel *ast.SelectorExpr, _ *ast.FuncDecl) string {
			// In a synctest bubble sleeping takes no time and waits for nothing real.
			if selects(sel, "time", "Sleep") && !f.imported("testing/synctest") {
				return "sleeps"
			}
			return ""
		})
	},
}, {
	name:   "tests are not skipped in CI",
	reason: "a suite that passes because it ran nothing proves nothing: what a test needs is installed, or its absence is a failure",
	check: func(tr *tree) []string {
		return tr.eachTestSelector(func(f *file, sel *ast.SelectorExpr, fn *ast.FuncDecl) string {
			x, ok := sel.X.(*ast.Ident)
			if !ok || !slices.Contains([]string{"t", "b", "tb", "f"}, x.Name) ||
				!slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) || asksForCI(fn) {
				return ""
			}
			return "skips without asking whether CI is set"
		})
	},
}, {
	name:   "nobody flushes",
	reason: "on a server that tests share, a flush deletes the neighbour's keys",
	check: func(tr *tree) []string {
		return tr.eachTestSelector(func(_ *file, sel *ast.SelectorExpr, _ *ast.FuncDecl) string {
			if strings.HasPrefix(sel.Sel.Name, "FlushDB") || strings.HasPrefix(sel.Sel.Name, "FlushAll") {
				return "flushes; use redistest.Prefix, or redistest.Start for a server of the test's own"
			}
			return ""
		})
	},
}}

func eachLine(text []byte) func(yield func(int, string) bool) {
	return func(yield func(int, string) bool) {
		lines := bufio.NewScanner(bytes.NewReader(text))
		lines.Buffer(nil, len(text)+1)
		for n := 0; lines.Scan(); n++ {
			if !yield(n, lines.Text()) {
				return
			}
		}
	}
}

// eachTestSelector asks about every x.Name in test files.
func (tr *tree) eachTestSelector(ask func(*file, *ast.SelectorExpr, *ast.FuncDecl) string) []string {
	var found []string
	for _, f := range tr.files {
		if !f.test {
			continue
		}
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				if sel, ok := n.(*ast.SelectorExpr); ok {
					if what := ask(f, sel, fn); what != "" {
						found = append(found, violation(f.at(sel), "%s", what))
					}
				}
				return true
			})
		}
	}
	return found
}

func (f *file) imported(pkg string) (yes bool) {
	f.imports(func(p, _ string) { yes = yes || p == pkg })
	return yes
}

// asksForCI reports whether a function mentions the variable CI.
func asksForCI(fn *ast.FuncDecl) (yes bool) {
	ast.Inspect(fn, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Value == `"CI"` {
			yes = true
		}
		return true
	})
	return yes
}

func TestHygieneRulesCanFail(t *testing.T) {
	for _, c := range []trial{{
		rule: "only known scripts ack",
		bad: map[string]string{
			"queue/lua/new.lua":         "local n = redis.call('xack', KEYS[1], 'g', ARGV[1])\n",
			"queue/lua/include/new.lua": "redis.call(\"XACK\", KEYS[1])",
		},
		good: map[string]string{"queue/lua/new.lua": "-- XACK comes later\nreturn 1"},
	}, {
		rule: "no leftovers",
		bad: map[string]string{
			"README.md":        "see /" + "work/main",
			"docs/a.md":        "in (/" + "root/x)",
			"queue/a.go":       "package x // TO" + "DO: later",
			"bench/Makefile":   "# FIX" + "ME",
			"dashboards/a.yml": "path: /" + "work/x",
		},
		good: map[string]string{"README.md": "https://example.com/network/ and a/" + "work/tree and TODOS and mastodon"},
	}, {
		rule: "tests do not sleep",
		bad:  map[string]string{"queue/a_test.go": "package x\nimport \"time\"\nfunc TestX() { time.Sleep(1) }"},
		good: map[string]string{
			"queue/a.go":      "package x\nimport \"time\"\nfunc f() { time.Sleep(1) }",
			"queue/b_test.go": "package x\nimport (\"time\"; _ \"testing/synctest\")\nfunc TestX() { time.Sleep(1) }",
		},
	}, {
		rule: "tests are not skipped in CI",
		bad:  map[string]string{"queue/a_test.go": "package x\nimport \"testing\"\nfunc TestX(t *testing.T) { t.Skip() }"},
		good: map[string]string{"queue/a_test.go": "package x\nimport (\"os\"; \"testing\")\n" +
			"func TestX(t *testing.T) { if os.Getenv(\"CI\") != \"\" { t.Fatal() }; t.Skip() }"},
	}, {
		rule: "nobody flushes",
		bad:  map[string]string{"queue/a_test.go": "package x\nfunc TestX() { c.FlushDB(ctx) }"},
		good: map[string]string{"queue/a_test.go": "package x\nfunc TestX() { w.Flush() }"},
	}} {
		c.run(t, false)
	}
}
