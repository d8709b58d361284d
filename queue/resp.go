package queue

import (
	"bytes"
	"strconv"
)

// resp takes the bytes of a reply apart, for the one reply that is large and on
// the way of every task: that of a read. The client's own reader makes an
// allocation or two of each of its strings. It knows both protocol versions;
// what it does not know it reports.
type resp struct {
	b []byte
	arena
}

// line takes the next line: its type, and the rest. The type is 0 when there
// is none.
func (r *resp) line() (kind byte, rest []byte) {
	end := bytes.Index(r.b, []byte("\r\n"))
	if end < 1 {
		return 0, nil
	}
	kind, rest = r.b[0], r.b[1:end]
	r.b = r.b[end+2:]
	return kind, rest
}

// list takes the head of a list and returns how many elements follow, -1 for
// nil; a map of n pairs is a list of 2n elements. It is false when something
// else comes.
func (r *resp) list() (n int, ok bool) {
	kind, rest := r.line()
	switch kind {
	case '*', '~', '%':
		n, err := strconv.Atoi(string(rest))
		if err != nil || n < -1 || n > len(r.b) {
			return 0, false
		}
		if kind == '%' {
			n *= 2
		}
		return n, true
	case '_':
		return -1, true
	case '$':
		return -1, string(rest) == "-1"
	}
	return 0, false
}

// value takes one string or number as text, which is valid until r.b is
// changed. It is false when something else comes.
func (r *resp) value() (text []byte, ok bool) {
	kind, rest := r.line()
	switch kind {
	case '+', ':', ',', '(':
		return rest, true
	case '$', '=':
		n, err := strconv.Atoi(string(rest))
		if err != nil || n < 0 || n > len(r.b)-2 || r.b[n] != '\r' || r.b[n+1] != '\n' {
			return nil, false
		}
		text, r.b = r.b[:n], r.b[n+2:]
		if kind == '=' {
			_, text, ok = bytes.Cut(text, []byte(":"))
			return text, ok
		}
		return text, true
	}
	return nil, false
}

// skipAttributes drops what may come before a reply and says something about
// it.
func (r *resp) skipAttributes() bool {
	for len(r.b) > 0 && r.b[0] == '|' {
		_, rest := r.line()
		n, err := strconv.Atoi(string(rest))
		if err != nil || n < 0 {
			return false
		}
		for range 2 * n {
			if !r.skip() {
				return false
			}
		}
	}
	return true
}

// skip drops one value of any kind. A client has checked what comes here, so
// it is not deeper than the client's own reader went.
func (r *resp) skip() bool {
	if len(r.b) == 0 {
		return false
	}
	switch r.b[0] {
	case '*', '~', '%', '_':
		n, ok := r.list()
		for ; ok && n > 0; n-- {
			ok = r.skip()
		}
		return ok
	case '#', '-':
		_, rest := r.line()
		return rest != nil
	case '$':
		if bytes.HasPrefix(r.b, []byte("$-1\r\n")) {
			r.line()
			return true
		}
	}
	_, ok := r.value()
	return ok
}

// isErrorReply reports whether a whole reply is an error.
func isErrorReply(raw []byte) bool {
	r := resp{b: raw}
	return r.skipAttributes() && len(r.b) > 0 && (r.b[0] == '-' || r.b[0] == '!')
}

// parseRead takes the reply of a read apart, a list of pairs (RESP2) or a map
// (RESP3). It is false when it is no such thing: then entries may have been
// delivered that nobody saw.
func parseRead(raw []byte, streams []stream) ([]Entry, bool) {
	r := resp{b: raw, arena: arena{left: len(raw)}}
	if !r.skipAttributes() || len(r.b) == 0 {
		return nil, false
	}
	pairs := r.b[0] == '%'
	n, ok := r.list()
	if pairs {
		n /= 2
	}
	var out []Entry
	at := 0
	for ; ok && n > 0; n-- {
		if !pairs {
			var two int
			if two, ok = r.list(); !ok || two != 2 {
				return nil, false
			}
		}
		var key []byte
		if key, ok = r.value(); !ok {
			return nil, false
		}
		if at, ok = findStream(streams, at, key); !ok {
			return nil, false
		}
		out, ok = r.entries(out, streams[at])
	}
	return out, ok && len(r.b) == 0
}

// findStream finds a stream by its key, looking first where the next should be.
func findStream(streams []stream, from int, key []byte) (at int, ok bool) {
	for i := range streams {
		at = (from + i) % len(streams)
		if streams[at].queue.StreamKey(streams[at].partition) == string(key) {
			return at, true
		}
	}
	return 0, false
}

// entries takes a list of [ID, [name, value, …]].
func (r *resp) entries(out []Entry, s stream) ([]Entry, bool) {
	n, ok := r.list()
	if n > 0 && out == nil {
		out = make([]Entry, 0, min(n, maxRead))
	}
	var fields []string // of many entries, one after another
	for ; ok && n > 0; n-- {
		two, isList := r.list()
		id, isText := r.value()
		if !isList || two != 2 || !isText {
			return nil, false
		}
		e := Entry{Queue: s.queue, Partition: s.partition, ID: EntryID(r.string(id))}
		var m int
		if m, ok = r.list(); !ok || m < 0 {
			continue // nil: deleted from outside between delivery and reply
		}
		if cap(fields)-len(fields) < m {
			fields = make([]string, 0, max(m, min(n*m, arenaChunk/16)))
		}
		from := len(fields)
		for range m {
			value, isText := r.value()
			if !isText {
				return nil, false
			}
			fields = append(fields, r.field(value))
		}
		e.Fields = fields[from:len(fields):len(fields)]
		out = append(out, e)
	}
	return out, ok
}

// field is a name or a value of an entry; the usual names need no memory.
func (r *resp) field(b []byte) string {
	switch string(b) {
	case fieldID:
		return fieldID
	case fieldKind:
		return fieldKind
	case fieldPayload:
		return fieldPayload
	case fieldContentType:
		return fieldContentType
	case fieldDeadline:
		return fieldDeadline
	case fieldEnqueued:
		return fieldEnqueued
	}
	return r.string(b)
}
