package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/claimq/claimq/queue"
)

const (
	momentFormat = "2006-01-02 15:04:05.000"
	clockFormat  = "15:04:05.000"
	shownName    = 20 // characters of a consumer name in the table
)

// print shows the task as a person reads it. All times are the server's, UTC.
func (f foundTask) print(w io.Writer) {
	fmt.Fprintf(w, "task %s\n", f.ID)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(tw, "  %s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	line("queue", "%s, partition %d", f.queue, f.Partition)
	f.printState(line)
	tw.Flush()
	switch {
	case len(f.Events) == 0 && !f.Cut:
		fmt.Fprintln(w, "\nno events: nothing rare has happened to it; every step is kept where QUEUE_TRACE is set")
		return
	case f.Cut:
		fmt.Fprintf(w, "\nolder events may be gone: the oldest that its partition keeps is of %s\n", f.Since.UTC().Format(momentFormat))
	}
	if len(f.Events) > 0 {
		fmt.Fprintln(w)
		f.printEvents(w)
	}
}

func (f foundTask) printState(line func(name, format string, args ...any)) {
	i := f.Info
	place := string(i.Place)
	switch {
	case i.Place == queue.Unknown:
		place = "unknown: deleted, or done and forgotten"
	case i.Place == queue.Pending && i.Token == "":
		place = "pending"
	case i.Place == queue.Pending && i.Started:
		place = "pending, its handler was started"
	case i.Place == queue.Pending:
		place = "pending, held: its handler was not started"
	case i.Place == queue.Scheduled:
		place = "scheduled, due " + f.relative(i.Due)
	case i.Place == queue.Dead:
		place = "dead letter, reason " + string(i.Reason)
	}
	line("place", "%s", place)
	if i.Task != nil {
		line("kind", "%s", i.Task.Kind)
		line("accepted", "%s", f.relative(i.Task.EnqueuedAt))
	}
	if i.Token != "" {
		h := f.holder()
		line("holder", "%s", orDash(h.Consumer))
		line("owner", "%s, fence %d", h.Owner, h.Fence)
		line("lease ends", "%s", f.relative(h.LeaseEnds))
	}
	if i.Failures+i.Interruptions > 0 {
		line("failures", "%d, interruptions %d", i.Failures, i.Interruptions)
	}
	if i.LastError != "" {
		line("last error", "%s", oneLine(i.LastError))
	}
	for _, s := range i.Steps {
		line("step", "%s %s, called %d times, last %s", s.Name, s.State, s.Calls, f.relative(s.At))
	}
}

// holder is who has the task now, with the name that its events know.
func (f foundTask) holder() queue.Holder {
	h := queue.Holder{Owner: f.Info.Token.Short(), Fence: f.Info.Fence, LeaseEnds: f.Info.LeaseEnds, Stage: queue.StageHeld}
	if f.Info.Started {
		h.Stage = queue.StageStarted
	}
	for _, e := range f.Events {
		if e.Owner == h.Owner && e.Consumer != "" {
			h.Consumer = e.Consumer
		}
	}
	return h
}

func (f foundTask) printEvents(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	renewals := 1 // of one lease, in a row: one line
	fmt.Fprintln(tw, "time (server, UTC)\tevent\tattempt\tconsumer\towner\tfence\tlease end\tstage\tdetail")
	for i, e := range f.Events {
		if i+1 < len(f.Events) && renewedAgain(e, f.Events[i+1]) {
			renewals++
			continue
		}
		attempt, fence, end := "-", "-", "-"
		if e.Attempt > 0 {
			attempt = strconv.Itoa(e.Attempt)
		}
		if e.Fence > 0 {
			fence = strconv.FormatUint(uint64(e.Fence), 10)
		}
		if !e.LeaseEnds.IsZero() {
			end = e.LeaseEnds.UTC().Format(clockFormat)
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", e.At.UTC().Format(momentFormat), e.Kind, attempt,
			orDash(shortName(e.Consumer)), orDash(e.Owner), fence, end, orDash(string(e.Stage)), detail(e, renewals))
		renewals = 1
	}
	tw.Flush()
}

func renewedAgain(a, b queue.Event) bool {
	return a.Kind == queue.EventRenewed && b.Kind == a.Kind && b.Owner == a.Owner
}

// detail words what an event says besides.
func detail(e queue.Event, renewals int) string {
	var parts []string
	switch e.Kind {
	case queue.EventReclaimed:
		p := e.Previous
		text := fmt.Sprintf("from %s, owner %s, fence %d, %s", orDash(shortName(p.Consumer)), p.Owner, p.Fence, p.Stage)
		if !p.LeaseEnds.IsZero() {
			text += fmt.Sprintf(", lease ended %v before", e.At.Sub(p.LeaseEnds).Round(time.Millisecond))
		}
		parts = append(parts, text)
	case queue.EventRecovered:
		parts = append(parts, "was delivered to "+shortName(e.Detail)+", which never began it")
	case queue.EventSplit:
		parts = append(parts, "its handler is stuck; was of owner "+e.Detail)
	default:
		if e.Detail != "" {
			parts = append(parts, e.Detail)
		}
	}
	if !e.Due.IsZero() {
		parts = append(parts, "due "+e.Due.UTC().Format(clockFormat))
	}
	if renewals > 1 {
		parts = append(parts, fmt.Sprintf("the last of %d in a row", renewals))
	}
	if e.Error != "" {
		parts = append(parts, oneLine(e.Error))
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ": ")
}

// relative is a moment and how far it is from the server's present.
func (f foundTask) relative(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	text := at.UTC().Format(momentFormat)
	if f.ServerNow.IsZero() {
		return text
	}
	d := at.Sub(f.ServerNow).Round(time.Millisecond)
	if d.Abs() >= 10*time.Second {
		d = d.Round(time.Second)
	}
	if d < 0 {
		return fmt.Sprintf("%s (%v ago)", text, -d)
	}
	return fmt.Sprintf("%s (in %v)", text, d)
}

func shortName(s string) string {
	if len(s) > shownName+4 {
		return s[:shownName] + "…"
	}
	return s
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// oneLine keeps a text from breaking the table, and the terminal.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}
