package observe

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// factor is by how much time is shorter: five minutes become five seconds in
// the small run, ten in the longer one.
func factor() int {
	if *duration == 0 {
		return 60
	}
	return 30
}

// seconds are the thresholds in seconds of alerts that the run provokes.
var seconds = map[string]int{
	"ClaimqOldestWaitingTooOld": 300,
	"ClaimqReclaimLoopStuck":    300,
	"ClaimqWorkerLoopStuck":     60,
}

var (
	// In expressions a duration stands in brackets or after offset.
	ranges   = regexp.MustCompile(`\[\d+[smhd]\]|offset \d+[smhd]|(?m)^ +for: \d+[smhd]$`)
	length   = regexp.MustCompile(`\d+[smhd]`)
	interval = regexp.MustCompile(`(?m)^( +)interval: \S+$`)
)

// shorter divides the durations of a rule file, and the thresholds.
func shorter(text string, factor int) (string, error) {
	text = ranges.ReplaceAllStringFunc(text, func(part string) string {
		return length.ReplaceAllStringFunc(part, func(d string) string {
			return fmt.Sprintf("%ds", int(long(d).Seconds())/factor)
		})
	})
	text = interval.ReplaceAllString(text, "${1}interval: 1s")
	if !strings.Contains(text, "- alert: ") {
		return text, nil
	}
	rules := strings.Split(text, "- alert: ")
	done := 0
	for i, rule := range rules {
		limit, ok := seconds[strings.SplitN(rule, "\n", 2)[0]]
		if !ok {
			continue
		}
		was := "> " + strconv.Itoa(limit) + "\n"
		if strings.Count(rule, was) != 1 {
			return "", fmt.Errorf("there is not one %q in alert %s", was, rule)
		}
		rules[i] = strings.Replace(rule, was, "> "+strconv.Itoa(limit/factor)+"\n", 1)
		done++
	}
	if done != len(seconds) {
		return "", fmt.Errorf("%d of %d alerts with thresholds in seconds were found", done, len(seconds))
	}
	return strings.Join(rules, "- alert: "), nil
}

// long reads a duration as Prometheus writes it.
func long(text string) time.Duration {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, _ := strconv.Atoi(days)
		return time.Duration(n) * 24 * time.Hour
	}
	d, _ := time.ParseDuration(text)
	return d
}

// shorterRules writes the shipped rule files with shorter times into dir.
func shorterRules(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"recording.yml", "alerts.yml"} {
		b, err := os.ReadFile(filepath.Join("../../dashboards/prometheus", name))
		if err != nil {
			t.Fatal(err)
		}
		text, err := shorter(string(b), factor())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestShorter(t *testing.T) {
	for in, want := range map[string]string{
		"    interval: 30s\n":              "    interval: 1s\n",
		"        for: 5m\n":                "        for: 10s\n",
		"rate(a_total[1h]) offset 15m > 1": "rate(a_total[120s]) offset 30s > 1",
		"a:b:rate10m and c[1d]":            "a:b:rate10m and c[2880s]",
		"description: waits 5m of 10m":     "description: waits 5m of 10m",
	} {
		if got, err := shorter(in, 30); err != nil || got != want {
			t.Errorf("%q becomes %q (%v), want %q", in, got, err, want)
		}
	}
	if _, err := shorter("- alert: ClaimqReclaimLoopStuck\n  expr: a > 301\n", 30); err == nil {
		t.Error("a threshold that is not there is no error")
	}
}
