package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/claimq/claimq/queue"
)

const jsonType = "application/json"

// line is one task as a file describes it.
type line struct {
	ID      queue.TaskID    `json:"id"`
	Kind    string          `json:"kind"`
	Payload json.RawMessage `json:"payload"` // kept as the bytes that stand in the line
	Delay   json.RawMessage `json:"delay"`
	Due     json.RawMessage `json:"due"`
}

// parseLine reads one line. Its errors quote nothing of the payload.
func parseLine(text []byte) (queue.Task, error) {
	var l line
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields() // a misspelt "delay" must not start a task at once
	if err := dec.Decode(&l); err != nil {
		return queue.Task{}, plain(err)
	}
	if rest := bytes.TrimSpace(text[dec.InputOffset():]); len(rest) > 0 {
		return queue.Task{}, errors.New("there is more on the line after the object")
	}
	t := queue.Task{ID: l.ID, Kind: l.Kind, Payload: l.Payload}
	if len(l.Payload) > 0 {
		t.ContentType = jsonType
	}
	var err error
	if given(l.Delay) {
		if t.Delay, err = parseDelay(l.Delay); err != nil {
			return t, err
		}
	}
	if given(l.Due) {
		var s string
		if json.Unmarshal(l.Due, &s) == nil {
			t.Due, err = time.Parse(time.RFC3339, s)
		}
		if s == "" || err != nil {
			return t, errors.New(`due: write a moment such as "2030-01-31T09:00:00Z"`)
		}
	}
	if t.Delay > 0 && !t.Due.IsZero() {
		return t, errors.New("delay and due exclude each other")
	}
	return t, nil
}

func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// maxDelay keeps a number of seconds within a time.Duration.
const maxDelay = 100 * 365 * 24 * time.Hour

func parseDelay(raw json.RawMessage) (time.Duration, error) {
	var seconds float64
	var text string
	d := time.Duration(-1)
	if json.Unmarshal(raw, &seconds) == nil {
		if seconds <= maxDelay.Seconds() {
			d = time.Duration(seconds * float64(time.Second))
		}
	} else if json.Unmarshal(raw, &text) == nil {
		if parsed, err := time.ParseDuration(text); err == nil {
			d = parsed
		}
	}
	if d < 0 || d > maxDelay {
		return 0, errors.New(`delay: write "5s" or a number of seconds, not negative`)
	}
	return d, nil
}

// plain words an error of the decoder without the text it stumbled on.
func plain(err error) error {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if e.Field == "" {
			return fmt.Errorf("not a JSON object but a JSON %s", e.Value)
		}
		return fmt.Errorf("%s: write a string, not a JSON %s", e.Field, strings.Fields(e.Value)[0])
	}
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("not valid JSON at byte %d", e.Offset)
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return fmt.Errorf("unknown field %.60s: use id, kind, payload, delay and due", name)
	}
	return errors.New("not a whole JSON object")
}
