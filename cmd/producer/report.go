package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/queue"
)

// report is the summary. Its JSON form is a contract.
type report struct {
	Queue      string `json:"queue"`
	Lines      int64  `json:"lines"` // read, blank ones included
	Added      int    `json:"added"`
	Duplicate  int    `json:"duplicate"`
	Refused    int    `json:"refused"`
	Full       int    `json:"full"`       // refused because the queue was full
	Indefinite int    `json:"indefinite"` // may or may not have been added
	Unsent     int    `json:"unsent"`     // the server was away
	Bad        int    `json:"bad"`        // lines that are no task
	NoID       int    `json:"no_id"`      // tasks that a second run adds again
	Stopped    bool   `json:"stopped"`    // before the end
	ReadError  string `json:"read_error,omitempty"`

	ID    string `json:"id,omitempty"`    // of the one task given by flags
	Place string `json:"place,omitempty"` // where that one is

	single bool
}

func (r *report) count(receipt queue.Receipt) {
	s := producer.Summarize([]queue.Receipt{receipt})
	r.Added += s.Added
	r.Duplicate += s.Duplicate
	r.Refused += s.Refused
	r.Full += s.Full
	r.Indefinite += s.Indefinite
	r.Unsent += s.Unsent
}

// sent counts the tasks that were dealt with.
func (r *report) sent() int {
	return r.Added + r.Duplicate + r.Refused + r.Full + r.Indefinite + r.Unsent
}

func (r *report) exitCode() int {
	switch {
	case r.Indefinite > 0:
		return exitIndefinite
	case r.Refused+r.Full+r.Unsent+r.Bad > 0, r.Stopped, r.ReadError != "":
		return exitFailed
	}
	return exitDone
}

func (r *report) write(out io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(r)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name string, value any) { fmt.Fprintf(w, "%s\t%v\n", name, value) }
	row("queue", r.Queue)
	if r.single {
		row("id", r.ID)
		if r.Place != "" {
			row("place", r.Place)
		}
	}
	row("added", r.Added)
	row("duplicate", r.Duplicate)
	row("refused", r.Refused)
	row("full", r.Full)
	row("indefinite", r.Indefinite)
	row("unsent", r.Unsent)
	row("bad lines", r.Bad)
	if r.NoID > 0 {
		row("without id", fmt.Sprintf("%d, which a second run adds again", r.NoID))
	}
	if r.Stopped {
		row("stopped", "before the end; run it again for the rest")
	}
	if r.ReadError != "" {
		row("read error", r.ReadError)
	}
	return w.Flush()
}
