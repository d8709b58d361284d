package queue

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// readStreams are the streams of a queue with two partitions.
func readStreams(q *Queue) []stream { return []stream{{q, 0}, {q, 1}} }

// readReplies are replies to a read of readStreams.
func readReplies(q *Queue) map[string][]any {
	entry := func(id string, fields ...any) any { return []any{id, fields} }
	return map[string][]any{
		"one":            {[]any{q.StreamKey(0), []any{entry("1-1", "id", "t", "kind", "k", "payload", "p")}}},
		"second only":    {[]any{q.StreamKey(1), []any{entry("1-1", "id", "t", "kind", "k", "payload", "p")}}},
		"binary":         {[]any{q.StreamKey(0), []any{entry("1-1", "payload", "a\r\n$-1\r\n*3\r\n", "h.x", "", "\x00", "\xff")}}},
		"deleted":        {[]any{q.StreamKey(0), []any{[]any{"1-1", nil}, entry("1-2", "kind", "k")}}},
		"no fields":      {[]any{q.StreamKey(0), []any{[]any{"1-1", []any{}}}}},
		"large and many": {[]any{q.StreamKey(0), slices.Repeat([]any{entry("1-1", "payload", strings.Repeat("x", arenaLargest+1), "id", strings.Repeat("y", 200))}, 100)}},
		"both": {
			[]any{q.StreamKey(0), []any{entry("1-1", "a", "b"), entry("1-2", "c", "d", "odd")}},
			[]any{q.StreamKey(1), []any{entry("2-1", "e", int64(5))}},
		},
	}
}

// Both protocol versions are read, and as the client's own reader would.
func TestReadReplies(t *testing.T) {
	q, a := answeredQueue(t)
	for name, pairs := range readReplies(q) {
		byKey := map[any]any{}
		for _, p := range pairs {
			byKey[p.([]any)[0]] = p.([]any)[1]
		}
		want := readReply(pairs, readStreams(q))
		if name != "deleted" && len(want) == 0 {
			t.Fatalf("%s: nothing to compare with", name)
		}
		for _, reply := range []any{pairs, byKey} {
			a.reply, a.resp3 = reply, reflect.TypeOf(reply).Kind() == reflect.Map
			a.raw = wire([]byte("|1\r\n+ttl\r\n:3600\r\n"), reply, a.resp3) // an attribute says nothing
			if !a.resp3 {
				a.raw = nil
			}
			got, err := Read(context.Background(), ReadRequest{Queues: []*Queue{q}, Consumer: "w", Max: 300})
			slices.SortStableFunc(got, func(x, y Entry) int { return x.Partition - y.Partition }) // a Go map has no order
			if err != nil || !sameEntries(got, want) {
				t.Errorf("%s: %T: %v, want %v; %v", name, reply, got, want, err)
			}
		}
	}
}

func sameEntries(a, b []Entry) bool {
	return slices.EqualFunc(a, b, func(x, y Entry) bool {
		return x.Queue == y.Queue && x.Partition == y.Partition && x.ID == y.ID && slices.Equal(x.Fields, y.Fields)
	})
}

// A reply that is cut off, or is none of a read, is reported: entries may have
// been delivered that nobody saw.
func TestReadReplyCutOff(t *testing.T) {
	q, a := answeredQueue(t)
	for name, pairs := range readReplies(q) {
		if strings.HasPrefix(name, "large") {
			continue
		}
		whole := wire(nil, pairs, false)
		for n := 1; n < len(whole); n++ {
			if es, ok := parseRead(whole[:n], readStreams(q)); ok {
				t.Errorf("%s: %d of %d bytes pass for a whole: %v", name, n, len(whole), es)
			}
		}
		if _, ok := parseRead(append(whole, '+'), readStreams(q)); ok {
			t.Errorf("%s: a byte too many is not noticed", name)
		}
	}
	for _, raw := range []string{"+OK\r\n", ":1\r\n", "*1\r\n*2\r\n+other\r\n*0\r\n", "*9999999999\r\n", "*-2\r\n", "*1\r\n*2\r\n$-1\r\n*0\r\n", "%1\r\n", "$3\r\nabc\r\n"} {
		a.raw = []byte(raw)
		es, err := Read(context.Background(), ReadRequest{Queues: []*Queue{q}, Consumer: "w", Max: 10})
		if !errors.Is(err, ErrIndefinite) {
			t.Errorf("%q is read as %v, %v", raw, es, err)
		}
	}
	for _, raw := range []string{"*-1\r\n", "_\r\n", "$-1\r\n", "*0\r\n", "%0\r\n"} {
		a.raw = []byte(raw)
		if es, err := Read(context.Background(), ReadRequest{Queues: []*Queue{q}, Consumer: "w", Max: 10}); err != nil || len(es) > 0 {
			t.Errorf("%q is no empty read: %v, %v", raw, es, err)
		}
	}
}

// FuzzRead: no bytes end the program, and what is read from them is what they
// hold.
func FuzzRead(f *testing.F) {
	q, _ := answeredQueue(f)
	for _, pairs := range readReplies(q) {
		f.Add(wire(nil, pairs, false))
		f.Add(wire(nil, pairs, true))
	}
	f.Add([]byte("%1\r\n+" + q.StreamKey(0) + "\r\n*1\r\n*2\r\n=7\r\ntxt:1-1\r\n~2\r\n,1.5\r\n(123\r\n"))
	f.Add([]byte("|1\r\n+a\r\n*2\r\n#t\r\n_\r\n*-1\r\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		isErrorReply(raw)
		before := slices.Clone(raw)
		es, ok := parseRead(raw, readStreams(q))
		if !slices.Equal(before, raw) {
			t.Fatal("the reply was changed")
		}
		if !ok {
			return
		}
		clear(raw) // what was read has memory of its own
		for _, e := range es {
			for _, field := range append([]string{string(e.ID)}, e.Fields...) {
				if !strings.Contains(string(before), field) {
					t.Fatalf("%q is not in the reply", field)
				}
			}
			_, _ = e.decode()
		}
	})
}

// Small values share memory in pieces of bounded size, and none can reach into
// another.
func TestArena(t *testing.T) {
	a := arena{left: 3 * arenaChunk}
	var all [][]byte
	var texts []string
	for i := range 300 {
		b := a.bytes(strings.Repeat(string(rune('a'+i%26)), i%40))
		if len(b) != cap(b) {
			t.Fatalf("%d bytes have room for %d", len(b), cap(b))
		}
		all = append(all, b)
		texts = append(texts, a.string(b))
		if n := cap(a.data); n > arenaChunk {
			t.Fatalf("a piece of %d bytes", n)
		}
		if a.text.Cap() > arenaChunk+arenaChunk/4 {
			t.Fatalf("a piece of text of %d bytes", a.text.Cap())
		}
	}
	for i := range all {
		for j := range all[i] {
			all[i][j] = '!'
		}
		all[i] = append(all[i], "more"...)
	}
	for i := range all {
		if want := strings.Repeat("!", i%40) + "more"; string(all[i]) != want {
			t.Fatalf("value %d is %q, want %q", i, all[i], want)
		}
		if want := strings.Repeat(string(rune('a'+i%26)), i%40); texts[i] != want {
			t.Fatalf("text %d is %q, want %q", i, texts[i], want)
		}
	}
	if a := (&arena{}); a.bytes("") == nil || len(a.bytes(strings.Repeat("x", arenaLargest+1))) != arenaLargest+1 {
		t.Error("empty and large values")
	}
}
