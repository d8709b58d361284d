package queue_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/claimq/claimq/queue"
)

// trace on|off: whether events of everything are kept from here on
func (w *traceWorld) trace(plain []string, _ map[string]string) []string {
	cfg := w.q.Config()
	cfg.ReadClient, cfg.Trace = nil, plain[0] == "on"
	w.q = newQueue(w.t, cfg)
	return nil
}

// events: those that were added since they were last shown, without what is empty
func (w *traceWorld) events([]string, map[string]string) []string {
	var out []string
	// The order of names is that of the entry; a map has none.
	reply, err := w.b.Client.Do(bg, "XRANGE", w.key("events"), "-", "+").Result()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range reply.([]any) {
		entry := e.([]any)
		if id := entry[0].(string); w.told != "" && slices.Compare(position(id), position(w.told)) <= 0 {
			continue
		} else {
			w.told = id
		}
		line := ""
		for fields := entry[1].([]any); len(fields) >= 2; fields = fields[2:] {
			if fields[1] != "" {
				line += fmt.Sprintf(" %v=%v", fields[0], fields[1])
			}
		}
		out = append(out, strings.TrimSpace(line))
	}
	if len(out) == 0 {
		return []string{"no events"}
	}
	return out
}

func position(entry string) []int {
	ms, seq, _ := strings.Cut(entry, "-")
	return []int{atoi(ms), atoi(seq)}
}

// timeline id
func (w *traceWorld) timeline(plain []string, _ map[string]string) []string {
	t, err := w.q.Timeline(bg, queue.TaskID(plain[0]))
	if err != nil {
		return []string{short(err)}
	}
	out := []string{fmt.Sprintf("now %q cut=%v", t.Info.Place, t.Cut)}
	for _, e := range t.Events {
		out = append(out, eventLine(e))
	}
	return out
}

func eventLine(e queue.Event) string {
	line := fmt.Sprint(e.Kind)
	add := func(name string, value any) {
		if s := fmt.Sprint(value); s != "" && s != "0" {
			line += " " + name + "=" + s
		}
	}
	holder := func(h queue.Holder) {
		add("consumer", h.Consumer)
		add("owner", h.Owner)
		add("fence", h.Fence)
		add("stage", h.Stage)
		if !h.LeaseEnds.IsZero() {
			add("ends", "yes")
		}
	}
	holder(e.Holder)
	if e.Previous != (queue.Holder{}) {
		line += " from"
		holder(e.Previous)
	}
	add("attempt", e.Attempt)
	add("failures", e.Failures)
	add("interruptions", e.Interruptions)
	if !e.Due.IsZero() {
		line += " due"
	}
	if e.Detail != "" {
		line += fmt.Sprintf(" (%s)", e.Detail)
	}
	if e.Error != "" {
		line += fmt.Sprintf(" %q", e.Error)
	}
	return line
}
