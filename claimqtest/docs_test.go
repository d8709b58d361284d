package claimqtest_test

import (
	"os"
	"strings"
	"testing"
)

// TestPageShowsTheExample: the Go code and the report of the page are those of
// the example, which is run.
func TestPageShowsTheExample(t *testing.T) {
	page, err := os.ReadFile("../docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	src, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	example := string(src)
	output := strings.ReplaceAll(strings.ReplaceAll(example, "\t// ", ""), "\t//\n", "\n")
	blocks := strings.Split(string(page), "```")
	code, reports := 0, 0
	for i := 1; i < len(blocks); i += 2 {
		text, isGo := strings.CutPrefix(blocks[i], "go\n")
		switch {
		case isGo:
			code++
			if !strings.Contains(example, text) {
				t.Errorf("not in the example:\n%s", text)
			}
		case strings.HasPrefix(text, "\ntask "):
			reports++
			if !strings.Contains(output, strings.TrimSpace(text)) {
				t.Errorf("not the output of the example:\n%s", text)
			}
		}
	}
	if code == 0 || reports == 0 {
		t.Errorf("%d blocks of code, %d reports", code, reports)
	}
}
