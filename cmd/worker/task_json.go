package main

import (
	"time"

	"github.com/claimq/claimq/queue"
)

// taskReport is a task as JSON; its form is a contract.
type taskReport struct {
	ID        queue.TaskID `json:"id"`
	Queue     string       `json:"queue"`
	Partition int          `json:"partition"`
	ServerNow time.Time    `json:"server_now,omitzero"`

	Place         queue.Place      `json:"place"` // "": only events are known
	Kind          string           `json:"kind,omitempty"`
	Accepted      time.Time        `json:"accepted,omitzero"`
	Due           time.Time        `json:"due,omitzero"`
	Holder        *holderReport    `json:"holder,omitempty"`
	Failures      int              `json:"failures"`
	Interruptions int              `json:"interruptions"`
	LastError     string           `json:"last_error,omitempty"`
	Reason        queue.DeadReason `json:"reason,omitempty"`
	Steps         []stepReport     `json:"steps,omitempty"`

	Events []eventReport `json:"events"`
	Cut    bool          `json:"cut"` // older events may be gone
	Since  time.Time     `json:"since,omitzero"`
}

type holderReport struct {
	Consumer string      `json:"consumer,omitempty"`
	Owner    string      `json:"owner,omitempty"`
	Fence    queue.Fence `json:"fence,omitempty"`
	LeaseEnd time.Time   `json:"lease_end,omitzero"`
	Stage    queue.Stage `json:"stage,omitempty"`
}

type stepReport struct {
	Name  string          `json:"name"`
	State queue.StepState `json:"state"`
	Calls int             `json:"calls"`
	Fence queue.Fence     `json:"fence"`
	At    time.Time       `json:"at,omitzero"`
}

type eventReport struct {
	At    time.Time       `json:"at"`
	Event queue.EventKind `json:"event"`
	holderReport
	From          *holderReport `json:"from,omitempty"`
	Attempt       int           `json:"attempt,omitempty"`
	Failures      int           `json:"failures,omitempty"`
	Interruptions int           `json:"interruptions,omitempty"`
	Due           time.Time     `json:"due,omitzero"`
	Detail        string        `json:"detail,omitempty"`
	Error         string        `json:"error,omitempty"`
}

func reportOf(h queue.Holder) *holderReport {
	if h == (queue.Holder{}) {
		return nil
	}
	return &holderReport{h.Consumer, h.Owner, h.Fence, h.LeaseEnds.UTC(), h.Stage}
}

func taskReports(found []foundTask) []taskReport {
	out := []taskReport{}
	for _, f := range found {
		i := f.Info
		r := taskReport{
			ID: f.ID, Queue: f.queue, Partition: f.Partition, ServerNow: f.ServerNow.UTC(),
			Place: i.Place, Due: i.Due.UTC(), Failures: i.Failures, Interruptions: i.Interruptions, LastError: i.LastError, Reason: i.Reason,
			Events: []eventReport{}, Cut: f.Cut, Since: f.Since.UTC(),
		}
		if i.Task != nil {
			r.Kind, r.Accepted = i.Task.Kind, i.Task.EnqueuedAt.UTC()
		}
		if i.Token != "" {
			r.Holder = reportOf(f.holder())
		}
		for _, s := range i.Steps {
			r.Steps = append(r.Steps, stepReport{s.Name, s.State, s.Calls, s.Fence, s.At.UTC()})
		}
		for _, e := range f.Events {
			v := eventReport{
				At: e.At.UTC(), Event: e.Kind, From: reportOf(e.Previous), Attempt: e.Attempt,
				Failures: e.Failures, Interruptions: e.Interruptions, Due: e.Due.UTC(), Detail: e.Detail, Error: e.Error,
			}
			if h := reportOf(e.Holder); h != nil {
				v.holderReport = *h
			}
			r.Events = append(r.Events, v)
		}
		out = append(out, r)
	}
	return out
}
