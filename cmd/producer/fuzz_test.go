package main

import (
	"strings"
	"testing"
	"time"
)

// FuzzLine: a line is a task or an error, which quotes nothing of the payload;
// and what is taken has a delay that is none or sane.
func FuzzLine(f *testing.F) {
	for _, line := range []string{
		``, `{}`, `null`, `[]`, `"x"`, `7`, `{"id":"a","kind":"k"}`, `{"id":"a","kind":"k","payload":{"x":[1,2]}}`, `{"kind":"k"} {"kind":"k"}`,
		`{"id":7}`, `{"kind":"k","delay":"5s"}`, `{"kind":"k","delay":1e300}`, `{"kind":"k","delay":-1}`, `{"kind":"k","delay":"-5s"}`, `{"kind":"k","delay":"9999999h"}`,
		`{"kind":"k","due":"2030-01-31T09:00:00Z"}`, `{"kind":"k","due":7}`, `{"kind":"k","due":"never"}`, `{"kind":"k","due":"2030-01-31T09:00:00Z","delay":"1s"}`,
		`{"kind":"k","dealy":"1s"}`, `{"kind":"k","payload":`, "\x00\xff", `{"kind":"\ud800","id":"\u0000"}`, `{"kind":"k","delay":{}}`, `{"a":{"a":{"a":[[[[`,
	} {
		f.Add([]byte(line))
	}
	const secret = "hunter2"
	f.Fuzz(func(t *testing.T, line []byte) {
		task, err := parseLine(line)
		if err != nil {
			if len(err.Error()) > 300 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if task.Delay < 0 || task.Delay > 100*365*24*time.Hour || task.Delay > 0 && !task.Due.IsZero() {
			t.Errorf("%q: %+v", line, task)
		}
		broken := `{"kind":"k","payload":"` + secret + `"` + strings.Repeat("x", len(line)%5+1)
		if _, err := parseLine([]byte(broken)); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%v", err)
		}
	})
}
