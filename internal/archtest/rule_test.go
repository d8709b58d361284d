package archtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// rule is one thing that the repository holds itself to.
type rule struct {
	name   string
	reason string
	check  func(*tree) []string // one line for each violation, "path:line: what"
	// exceptions are reasons by a part of the violation's text that names the
	// place and the thing.
	exceptions map[string]string
}

// rules returns all rules. Those of the packages' types need what the compiler
// knows, which is looked up once.
func rules() []rule {
	return slices.Concat(importRules, callRules, stateRules, sizeRules, hygieneRules)
}

func TestRules(t *testing.T) {
	tr := load(t)
	if len(tr.files) == 0 {
		t.Fatal("no Go file was found")
	}
	tr.resolve(t)
	for _, r := range rules() {
		t.Run(r.name, func(t *testing.T) {
			found := r.check(tr)
			left, stale := r.except(found)
			for _, v := range left {
				t.Errorf("%s\n\trule: %s\n\twhy: %s", v, r.name, r.reason)
			}
			for _, e := range stale {
				t.Errorf("the exception %q is not needed any more: take it out", e)
			}
		})
	}
}

// except takes the excepted violations out and returns the exceptions that
// matched none.
func (r rule) except(found []string) (left, stale []string) {
	used := map[string]bool{}
	for _, v := range found {
		excepted := false
		for _, e := range sorted(r.exceptions) {
			if strings.Contains(v, e) {
				used[e], excepted = true, true
			}
		}
		if !excepted {
			left = append(left, v)
		}
	}
	for _, e := range sorted(r.exceptions) {
		if !used[e] {
			stale = append(stale, e)
		}
	}
	return left, stale
}

func violation(at, format string, args ...any) string {
	return at + ": " + fmt.Sprintf(format, args...)
}

func TestRulesHaveReasons(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range rules() {
		if r.name == "" || r.reason == "" || seen[r.name] {
			t.Errorf("rule %q: name missing or used twice, or no reason", r.name)
		}
		seen[r.name] = true
		for e, reason := range r.exceptions {
			if len(strings.Fields(reason)) < 4 {
				t.Errorf("rule %q: exception %q needs a reason", r.name, e)
			}
		}
	}
}

func TestExceptions(t *testing.T) {
	r := rule{exceptions: map[string]string{"a.go": "…", "b.go": "…"}}
	left, stale := r.except([]string{"a.go:1: x", "c.go:1: x"})
	if len(left) != 1 || left[0] != "c.go:1: x" || len(stale) != 1 || stale[0] != "b.go" {
		t.Errorf("left %q, stale %q", left, stale)
	}
}

// byName finds a rule for the tests of the rules.
func byName(t *testing.T, name string) rule {
	t.Helper()
	i := slices.IndexFunc(rules(), func(r rule) bool { return r.name == name })
	if i < 0 {
		t.Fatalf("no rule %q", name)
	}
	return rules()[i]
}

// bad is a source that a rule must refuse, and good one that it must accept.
type trial struct {
	rule      string
	bad, good map[string]string
}

func (c trial) run(t *testing.T, resolve bool) {
	t.Helper()
	r := byName(t, c.rule)
	for name, src := range c.bad {
		tr := parsed(t, map[string]string{name: src})
		if resolve {
			tr.resolve(t)
		}
		if len(r.check(tr)) == 0 {
			t.Errorf("rule %q accepts in %s:\n%s", c.rule, name, src)
		}
	}
	for name, src := range c.good {
		tr := parsed(t, map[string]string{name: src})
		if resolve {
			tr.resolve(t)
		}
		if found := r.check(tr); len(found) > 0 {
			t.Errorf("rule %q refuses in %s:\n%s\n%s", c.rule, name, src, strings.Join(found, "\n"))
		}
	}
}
