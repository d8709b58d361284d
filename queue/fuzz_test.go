package queue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// answering is a client whose server gives a reply of the test's own.
type answering struct {
	reply any
	raw   []byte // of a read, where it is not the same reply
	resp3 bool
}

func (a *answering) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a *answering) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error { a.answer(cmd); return cmd.Err() }
}

func (a *answering) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			a.answer(cmd)
		}
		return nil
	}
}

func (a *answering) answer(cmd redis.Cmder) {
	switch c := cmd.(type) {
	case *redis.Cmd:
		c.SetVal(a.reply)
	case *redis.RawCmd:
		raw := a.raw
		if raw == nil {
			raw = wire(nil, a.reply, a.resp3)
		}
		c.SetVal(raw)
	}
}

// wire is a reply as a server sends it.
func wire(b []byte, v any, resp3 bool) []byte {
	switch v := v.(type) {
	case nil:
		if resp3 {
			return append(b, "_\r\n"...)
		}
		return append(b, "$-1\r\n"...)
	case int64:
		return fmt.Appendf(b, ":%d\r\n", v)
	case float64:
		if resp3 {
			return fmt.Appendf(b, ",%g\r\n", v)
		}
		s := fmt.Sprint(v)
		return fmt.Appendf(b, "$%d\r\n%s\r\n", len(s), s)
	case string:
		return fmt.Appendf(b, "$%d\r\n%s\r\n", len(v), v)
	case []any:
		b = fmt.Appendf(b, "*%d\r\n", len(v))
		for _, x := range v {
			b = wire(b, x, resp3)
		}
		return b
	case map[any]any:
		head, n := byte('*'), 2*len(v)
		if resp3 {
			head, n = '%', len(v)
		}
		b = fmt.Appendf(b, "%c%d\r\n", head, n)
		for key, x := range v {
			b = wire(wire(b, key, resp3), x, resp3)
		}
		return b
	}
	panic(fmt.Sprintf("no reply: %T", v))
}

// answeredQueue is a queue on a server that answers with a.reply.
func answeredQueue(t testing.TB) (*Queue, *answering) {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	a := &answering{}
	c.AddHook(a)
	q, err := New(Config{Name: "q", Client: c, ReadClient: c, Partitions: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return q, a
}

// shape makes a reply of bytes: nested lists, maps, strings, numbers and nil,
// in any combination.
func shape(data []byte) any {
	v, _ := shapeAt(data, 0)
	return v
}

func shapeAt(data []byte, depth int) (v any, rest []byte) {
	if len(data) == 0 {
		return nil, nil
	}
	kind, data := data[0], data[1:]
	n := int(kind>>3) & 7
	switch kind & 7 {
	case 0:
		return nil, data
	case 1:
		return int64(n) - 1, data
	case 2:
		n = min(n*3, len(data))
		return string(data[:n]), data[n:]
	case 3:
		return float64(n) * 1e300, data
	case 4:
		if depth > 4 {
			return nil, data
		}
		m := map[any]any{}
		for range n {
			var x any
			x, data = shapeAt(data, depth+1)
			m[strconv.Itoa(len(m))] = x
		}
		return m, data
	case 5:
		words := []string{"lost", "again", "as", "count", "copy", "busy", "gone", "dead", "error", "p 1", "1 2", "added waiting", "w", "h1-1 - 5", "p1-1 - 5 tok", "done", "d"}
		return words[(n+len(data))%len(words)], data
	}
	if depth > 4 {
		return nil, data
	}
	var list []any
	for range n {
		var x any
		x, data = shapeAt(data, depth+1)
		list = append(list, x)
	}
	return list, data
}

// FuzzReplies: no reply that a server, or something in front of it, may give
// ends the program, and none that is not understood passes for a success that
// grants something.
func FuzzReplies(f *testing.F) {
	for _, seed := range []string{
		"", "\x00", "\x0f\x01\x01", "\x1f\x09\x0d\x05", "\x1e\x01\x05\x05", "\x3f\x09\x09\x3e\x05\x05\x05\x05\x05\x05\x05",
		"\x1f\x39\x05\x05", "\x1f\x01\x0d\x0d", "\x37\x11\x11\x0d\x05\x05\x05\x05", "\x3e\x3e\x3e\x3e\x3e\x3e", "\x1c\x0e\x0e\x0e\x02abc",
		"\x37\x05\x00\x00\x00\x00\x00", "\x37\x6d\x09\x00\x00\x00\x00\x00",
	} {
		f.Add([]byte(seed))
	}
	q, a := answeredQueue(f)
	ctx := context.Background()
	token := q.NewToken()
	lease := Lease{TaskID: "t", EntryID: "1-1", Grant: Grant{Token: token, Length: time.Second}}
	entry := Entry{Queue: q, ID: "1-1", Fields: []string{"id", "t", "kind", "k", "payload", "p"}}
	bad := Entry{Queue: q, ID: "1-2", Fields: []string{"no", "task"}}
	f.Fuzz(func(t *testing.T, data []byte) {
		a.reply = shape(data)
		for _, got := range q.Enqueue(ctx, token, []Task{{ID: "a", Kind: "k"}, {ID: "b", Kind: "k"}}) {
			if list, ok := a.reply.([]any); got.Added && (!ok || len(list)%2 == 0) {
				t.Errorf("%v adds %+v", a.reply, got)
			}
		}
		if b, err := q.Begin(ctx, BeginRequest{Token: token, Entries: []Entry{entry, bad}, Start: 1}); err == nil && len(b.Deliveries) > 1 {
			t.Errorf("%v grants %+v", a.reply, b)
		}
		q.Start(ctx, []Lease{lease})
		q.Renew(ctx, []Grant{lease.Grant})
		q.Split(ctx, token, []Lease{lease})
		one := []Settlement{{Lease: lease, Reason: DeadRejected}}
		for _, verb := range []func(context.Context, []Settlement) []Settled{q.Complete, q.Retry, q.Release, q.DeadLetter} {
			if got := verb(ctx, one)[0]; got.Outcome == "" && got.Err == nil {
				t.Errorf("%v settles as nothing and without an error", a.reply)
			}
		}
		_, _ = q.Reclaim(ctx, ReclaimRequest{Consumer: "w", Max: 1})
		_, _ = q.Promote(ctx, 0, 1)
		_, _ = q.Tidy(ctx, 0)
		q.Turn(ctx, TurnRequest{Consumer: "w"})
		_ = q.Ensure(ctx)
		_, _ = q.Stats(ctx)
		_, _ = q.Inspect(ctx, "t")
		_, _ = q.DeadTasks(ctx, 0, "", 10)
		q.Redrive(ctx, []TaskID{"t"})
		q.Delete(ctx, []TaskID{"t"})
		_, _ = q.StepIntent(ctx, lease, "s", "k", token)
		_, _ = q.StepResult(ctx, lease, "s", StepDone, nil)
		if es, err := Read(ctx, ReadRequest{Queues: []*Queue{q}, Consumer: "w", Max: 4}); err == nil {
			for _, e := range es {
				_, _ = e.decode()
			}
		}
		_, _ = q.Probe(ctx)
	})
}

// FuzzRecords: what the server keeps of a task is taken apart, or refused.
func FuzzRecords(f *testing.F) {
	for _, rec := range []string{"", "w", "done", "w1-1 -", "s1-1 - ", "h1-1 tag 5 tok", "p1-1 - 18446744073709551616 tok", "x ", "\xff 1", "d5-5 !,Dtag"} {
		f.Add(rec, "1700000000000", "1 2 3 4 err\nor", "s d key 1 1 1 n p 3\nabc\n")
	}
	f.Add("w1-1 -", "-1", "1 2 3", "s d key 1 1 1 n p 99999999999999999999\nabc\n")
	f.Add("w1-1 -", "", "", "s d key 1 1 1 n p 4\nabc\n")
	q, a := answeredQueue(f)
	f.Fuzz(func(t *testing.T, rec, at, counts, steps string) {
		a.reply = []any{rec, at, counts, steps, "", []any{"id", "t", "kind", "k", "payload", "p"}}
		info, err := q.Inspect(context.Background(), "t")
		if err == nil && info.Place == Unknown {
			t.Errorf("the record %q is a task in no place", rec)
		}
		if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrIndefinite) {
			t.Errorf("the record %q: %v", rec, err)
		}
		for _, s := range parseSteps(steps) {
			if !strings.Contains(steps, string(s.Result)) {
				t.Errorf("step %+v of %q", s, steps)
			}
		}
	})
}

// FuzzEntry: any entry is decoded or refused with a reason that quotes nothing
// of it, and what was decoded is encoded and read again as the same.
func FuzzEntry(f *testing.F) {
	const sep = "\x1f"
	for _, fields := range []string{
		"", "id", "id\x1ft\x1fkind\x1fk\x1fpayload\x1fp", "kind\x1fk\x1fpayload\x1f", "v\x1f1\x1fid\x1ft\x1fkind\x1fk\x1fpayload\x1fp\x1fh.a\x1fb\x1fcontent_type\x1fx",
		"v\x1f2", "id\x1fa b", "kind\x1fk\x1fkind\x1fk", "deadline_ms\x1f-1", "deadline_ms\x1f4503599627370496\x1fkind\x1fk\x1fpayload\x1fp",
		"deadline_ms\x1f99999999999999999999", "h.\x1fx\x1fkind\x1fk\x1fpayload\x1fp", "enqueued_ms\x1f1700000000000\x1fkind\x1fk\x1fpayload\x1f\xff\x00",
	} {
		f.Add("1700000000000-0", fields)
	}
	f.Add("", "kind\x1fk\x1fpayload\x1fp")
	f.Add("-", "kind\x1fk\x1fpayload\x1fp")
	q, _ := answeredQueue(f)
	f.Fuzz(func(t *testing.T, id, joined string) {
		fields := strings.Split(joined, sep)
		got, err := Entry{Queue: q, ID: EntryID(id), Fields: fields}.decode()
		if err != nil {
			if text := err.Error(); len(text) > 200 {
				t.Errorf("a reason of %d bytes", len(text))
			}
			return
		}
		if got.Check(q.cfg.MaxPayload) != nil {
			return // entries by hand may hold more than Enqueue takes
		}
		again := got.appendFields(nil, &arena{})
		back, err := Entry{Queue: q, ID: EntryID(id), Fields: again}.decode()
		if err != nil {
			t.Fatalf("%v does not decode: %v", again, err)
		}
		if back.ID != got.ID || back.Kind != got.Kind || !bytes.Equal(back.Payload, got.Payload) || back.ContentType != got.ContentType ||
			!maps.Equal(back.Headers, got.Headers) || !back.Deadline.Equal(got.Deadline) {
			t.Errorf("%+v came back as %+v", got, back)
		}
	})
}

// FuzzDead: a dead letter is taken apart by position, whatever is in it.
func FuzzDead(f *testing.F) {
	whole := "dead_reason,rejected,dead_error,e,dead_failures,1,dead_interruptions,2,dead_ms,1700000000000,dead_task,t,dead_entry,1-1,dead_fields,2,id,t"
	f.Add(whole)
	f.Add(strings.Repeat("x,", 16))
	f.Add(strings.Repeat(",", 15))
	f.Add("")
	q, a := answeredQueue(f)
	f.Fuzz(func(t *testing.T, joined string) {
		var fields []any
		for s := range strings.SplitSeq(joined, ",") {
			fields = append(fields, s)
		}
		a.reply = []any{[]any{"5-0", fields}, []any{"6-0", nil}, []any{"7-0"}, nil}
		letters, err := q.DeadTasks(context.Background(), 0, "", 10)
		if err != nil || len(letters) > 1 {
			t.Fatalf("%+v %v", letters, err)
		}
		for _, d := range letters {
			if len(d.Fields) != len(fields)-deadFields {
				t.Errorf("%d of %d fields are the entry's", len(d.Fields), len(fields))
			}
		}
	})
}
