package queue

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Fields of a stream entry. See docs/wire-format.md, which is the contract for
// producers in other languages.
const (
	fieldVersion     = "v"
	fieldID          = "id"
	fieldKind        = "kind"
	fieldPayload     = "payload"
	fieldContentType = "content_type"
	fieldDeadline    = "deadline_ms"
	fieldEnqueued    = "enqueued_ms"
	headerPrefix     = "h."

	wireVersion = "1"
	// maxFields is the largest number of fields of an entry that is a task.
	maxFields = 256
	// maxMilliseconds is the largest time that is read.
	maxMilliseconds = 1 << 52
	// maxNamed is how much of a field's name a reason quotes.
	maxNamed = 64
)

// fields is how many strings appendFields adds.
func (t *Task) fields() int {
	n := 6 + 2*len(t.Headers)
	if t.ContentType != "" {
		n += 2
	}
	if !t.Deadline.IsZero() {
		n += 2
	}
	return n
}

// appendFields adds the entry fields of a task that was checked. The payload
// gets memory of payloads.
func (t *Task) appendFields(f []string, payloads *arena) []string {
	f = append(f, fieldID, string(t.ID), fieldKind, t.Kind, fieldPayload, payloads.string(t.Payload))
	if t.ContentType != "" {
		f = append(f, fieldContentType, t.ContentType)
	}
	if !t.Deadline.IsZero() {
		f = append(f, fieldDeadline, strconv.FormatInt(t.Deadline.UnixMilli(), 10))
	}
	if len(t.Headers) == 0 {
		return f
	}
	for _, name := range slices.Sorted(maps.Keys(t.Headers)) {
		f = append(f, headerPrefix+name, t.Headers[name])
	}
	return f
}

// Check reports what Enqueue would refuse the task for where Config.MaxPayload
// is maxPayload: nil, or an ErrInvalidTask that names the field.
func (t Task) Check(maxPayload int) error {
	switch {
	case t.ID == "":
		return badTask("ID", "give a stable ID; package producer assigns one where none is given")
	case !printable(string(t.ID), MaxIDBytes):
		return badTask("ID", "use 1 to %d bytes of printable ASCII without spaces, got %d bytes", MaxIDBytes, len(t.ID))
	case !printable(t.Kind, MaxKindBytes):
		return badTask("Kind", "use 1 to %d bytes of printable ASCII without spaces, got %d bytes", MaxKindBytes, len(t.Kind))
	case len(t.Payload) > maxPayload:
		return badTask("Payload", "at most %d bytes, got %d: store the data elsewhere and send a reference, or raise MaxPayload", maxPayload, len(t.Payload))
	case len(t.ContentType) > MaxHeaderBytes || !utf8.ValidString(t.ContentType):
		return badTask("ContentType", "use at most %d bytes of UTF-8", MaxHeaderBytes)
	case len(t.Headers) > MaxHeaders:
		return badTask("Headers", "at most %d, got %d", MaxHeaders, len(t.Headers))
	case t.Delay < 0:
		return badTask("Delay", "use zero or a positive duration, got %v", t.Delay)
	case !t.Deadline.IsZero() && (t.Deadline.UnixMilli() < 0 || t.Deadline.UnixMilli() > maxMilliseconds):
		return badTask("Deadline", "use a time after 1970, got %v", t.Deadline)
	case t.Delay > 0 && !t.Due.IsZero():
		return badTask("Due", "set either Delay or Due, not both")
	}
	for name, value := range t.Headers {
		if !printable(name, 64) {
			return badTask("Headers", "names are 1 to 64 bytes of printable ASCII without spaces, got %d bytes", len(name))
		}
		if len(name)+len(value) > MaxHeaderBytes || !utf8.ValidString(value) {
			return badTask("Headers["+name+"]", "use at most %d bytes of UTF-8", MaxHeaderBytes)
		}
	}
	return nil
}

// printable reports whether s is 1 to limit bytes of printable ASCII without
// spaces.
func printable(s string, limit int) bool {
	if len(s) == 0 || len(s) > limit {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// name is the task ID of an entry that came without one: its entry ID, and its
// partition where there are several, since their streams number their entries
// each for itself. It must tell such tasks apart: keys of recorded steps follow
// from it.
func (e Entry) name() TaskID { return TaskID(string(e.ID) + e.Queue.nameSuffix(e.Partition)) }

func (q *Queue) nameSuffix(partition int) string {
	if q == nil || len(q.parts) == 1 {
		return ""
	}
	return "." + strconv.Itoa(partition)
}

// decode reads an entry. Unknown fields are ignored and order does not matter;
// an entry without an ID is given its name. The error says, without
// quoting what the entry holds, why it is no task.
func (e Entry) decode() (Task, error) { return e.decodeIn(&arena{}) }

// decodeIn takes the payload's memory from payloads.
func (e *Entry) decodeIn(payloads *arena) (Task, error) {
	t := Task{EnqueuedAt: e.ID.time()}
	if n := e.count(); n > maxFields {
		return t, fmt.Errorf("it has %d fields, at most %d are read", n, maxFields)
	}
	var seen field // those that may appear once
	for i := 0; i+1 < len(e.Fields); i += 2 {
		name, value := e.Fields[i], e.Fields[i+1]
		which, twice := fieldOf(name), false
		var err error
		if which == isHeader {
			twice = t.setHeader(name[len(headerPrefix):], value)
		} else {
			twice = seen&which != 0
			err = t.set(which, name, value, payloads)
		}
		if err != nil {
			return t, err
		}
		if twice {
			return t, fmt.Errorf("field %q appears more than once", name[:min(len(name), maxNamed)])
		}
		seen |= which
	}
	switch {
	case seen&isKind == 0:
		return t, fmt.Errorf("field %q is missing", fieldKind)
	case seen&isPayload == 0:
		return t, fmt.Errorf("field %q is missing", fieldPayload)
	}
	if seen&isID == 0 {
		t.ID = e.name()
	}
	return t, nil
}

// count is the number of fields, without the ID and the enqueue time that a
// move puts at the end (include/move.lua): a task that was read once is read
// again.
func (e Entry) count() int {
	n := len(e.Fields) / 2
	for _, added := range []string{fieldEnqueued, fieldID} {
		if n > 0 && e.Fields[2*n-2] == added {
			n--
		}
	}
	return n
}

// field is what a field of an entry is; 0 is one that is not known.
type field uint8

const (
	isVersion field = 1 << iota
	isID
	isKind
	isPayload
	isContentType
	isDeadline
	isEnqueued
	isHeader
)

func fieldOf(name string) field {
	switch name {
	case fieldVersion:
		return isVersion
	case fieldID:
		return isID
	case fieldKind:
		return isKind
	case fieldPayload:
		return isPayload
	case fieldContentType:
		return isContentType
	case fieldDeadline:
		return isDeadline
	case fieldEnqueued:
		return isEnqueued
	}
	if strings.HasPrefix(name, headerPrefix) {
		return isHeader
	}
	return 0
}

// set takes one field that is not a header.
func (t *Task) set(which field, name, value string, payloads *arena) (err error) {
	switch which {
	case isVersion:
		if value != wireVersion {
			return fmt.Errorf("field %q is not %s, the only format version known here", name, wireVersion)
		}
	case isID:
		if !printable(value, MaxIDBytes) {
			return fmt.Errorf("field %q is not 1 to %d bytes of printable ASCII without spaces", name, MaxIDBytes)
		}
		t.ID = TaskID(value)
	case isKind:
		if !printable(value, MaxKindBytes) {
			return fmt.Errorf("field %q is not 1 to %d bytes of printable ASCII without spaces", name, MaxKindBytes)
		}
		t.Kind = value
	case isPayload:
		t.Payload = payloads.bytes(value)
	case isContentType:
		t.ContentType = value
	case isDeadline:
		t.Deadline, err = milliseconds(name, value)
	case isEnqueued:
		t.EnqueuedAt, err = milliseconds(name, value)
	}
	return err
}

// setHeader takes one header and reports whether it was there already.
func (t *Task) setHeader(name, value string) (twice bool) {
	_, twice = t.Headers[name]
	if t.Headers == nil {
		t.Headers = make(map[string]string)
	}
	t.Headers[name] = value
	return twice
}

func milliseconds(name, value string) (time.Time, error) {
	ms, err := strconv.ParseInt(value, 10, 64)
	if err != nil || ms < 0 || ms > maxMilliseconds {
		return time.Time{}, fmt.Errorf("field %q is not a time in milliseconds since 1970", name)
	}
	return time.UnixMilli(ms), nil
}

// time is the server's clock when the entry was added.
func (id EntryID) time() time.Time {
	ms, _, _ := strings.Cut(string(id), "-")
	n, err := strconv.ParseInt(ms, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(n)
}
