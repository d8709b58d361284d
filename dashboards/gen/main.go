// Command gen writes the dashboards and the rules of Prometheus. Everything it
// writes is committed; a test writes it again and compares.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

//go:generate go run . -out ..

func main() {
	out := flag.String("out", "..", "directory to write to")
	flag.Parse()
	if err := write(*out); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

// generated lists the files, by their path below the output directory.
func generated() (map[string][]byte, error) {
	files := map[string][]byte{}
	for name, make := range map[string]func() ([]byte, error){
		"overview.json": overview,
		"queue.json":    queueBoard,
		"workers.json":  workersBoard,
		"prometheus/recording.yml": func() ([]byte, error) {
			return ruleFile("What alerts share, worked out once.", recordingRules())
		},
		"prometheus/alerts.yml": func() ([]byte, error) {
			return ruleFile("Alerts; docs/operations.md has a section for each.", alertRules())
		},
	} {
		b, err := make()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		files[name] = b
	}
	return files, nil
}

func write(dir string) error {
	files, err := generated()
	if err != nil {
		return err
	}
	for name, b := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			return err
		}
	}
	return nil
}
