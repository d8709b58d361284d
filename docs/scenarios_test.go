package docs_test

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var scenarioRow = regexp.MustCompile(`(?m)^\| ([A-Z]\d) \| ([^|]+) \| ([^|]+) \|$`)

// ruledOut is a cell of a scenario that cannot happen, by a decision; later one of
// a scenario that has no test yet, for a reason.
var (
	ruledOut = regexp.MustCompile(`^by design: \[\d{4}\]\((decisions/[\w-]+\.md)\)$`)
	later    = regexp.MustCompile(`^later: \w.{20,}$`)
)

// TestScenarios: every scenario has a row, and every row a test that exists, a
// decision or a reason; and nothing is ruled out that has a test.
func TestScenarios(t *testing.T) {
	page := read(t, "scenarios.md")
	rows := map[string]string{}
	for _, m := range scenarioRow.FindAllStringSubmatch(page, -1) {
		if rows[m[1]] != "" {
			t.Errorf("%s has two rows", m[1])
		}
		rows[m[1]] = m[3]
	}
	for letter, last := range map[byte]int{'A': 9, 'B': 5, 'C': 5, 'D': 8, 'E': 4, 'F': 4, 'G': 7, 'I': 5, 'J': 2, 'L': 3, 'M': 2} {
		for n := 1; n <= last; n++ {
			if id := fmt.Sprintf("%c%d", letter, n); rows[id] == "" {
				t.Errorf("%s has no row", id)
			}
		}
	}
	tests := testsByScenario(t)
	for id, cell := range rows {
		found := named.FindAllStringSubmatch(cell, -1)
		switch {
		case later.MatchString(cell):
			// An invariant may have the same name, so tests may seem to exist.
		case ruledOut.MatchString(cell):
			if len(tests[id]) > 0 {
				t.Errorf("%s has tests: %v", id, tests[id])
			}
		case len(found) != strings.Count(cell, ", ")+1:
			t.Errorf("%s: %q is neither a decision, nor put off, nor a list of `file_test.go:TestName`", id, cell)
		}
		for _, m := range found {
			checkTest(t, "scenarios.md", m[1], m[2], m[3])
		}
	}
}

// testsByScenario finds tests that are named for a scenario (TestA1…), by its ID.
func testsByScenario(t *testing.T) map[string][]string {
	t.Helper()
	function := regexp.MustCompile(`(?m)^func (Test([A-Z]\d)[A-Z_]\w*)\(`)
	out := map[string][]string{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains([]string{".git", "node_modules", "bin"}, d.Name()) {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		for _, m := range function.FindAllStringSubmatch(read(t, path), -1) {
			out[m[2]] = append(out[m[2]], strings.TrimPrefix(filepath.ToSlash(path), "../")+":"+m[1])
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
