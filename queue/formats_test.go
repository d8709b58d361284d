package queue_test

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/queue"
)

// TestG6Undecodable adds by hand what is no task, between tasks: each goes to
// the dead letters once, byte for byte, and stops no neighbour.
func TestG6Undecodable(t *testing.T) {
	many := make([]string, 0, 6000)
	for i := range 3000 {
		many = append(many, "field"+strconv.Itoa(i), "value\x00"+strconv.Itoa(i))
	}
	tooMany := []string{"kind", "k", "payload", "p"}
	for i := range 255 {
		tooMany = append(tooMany, "x"+strconv.Itoa(i), "")
	}
	longName := "h." + strings.Repeat("n", 100_000)
	bad := map[string][]string{
		"no kind":           {"id", "a1", "payload", "p"},
		"no payload":        {"id", "a2", "kind", "k"},
		"duplicate id":      {"id", "a3", "kind", "k", "payload", "p", "id", "b"},
		"duplicate payload": {"id", "a4", "kind", "k", "payload", "p", "payload", "p"},
		"long duplicate":    {"id", "a4", "kind", "k", "payload", "p", longName, "1", longName, "2"},
		"version":           {"v", "2", "id", "a5", "kind", "k", "payload", "p"},
		"id not ASCII":      {"id", "\xff\xfe", "kind", "k", "payload", "p"},
		"id with NUL":       {"id", "a\x00b", "kind", "k", "payload", "p"},
		"id empty":          {"id", "", "kind", "k", "payload", "p"},
		"id too long":       {"id", strings.Repeat("i", 201), "kind", "k", "payload", "p"},
		"kind not ASCII":    {"id", "a6", "kind", "\x80", "payload", "p"},
		"deadline":          {"id", "a7", "kind", "k", "payload", "p", "deadline_ms", "soon"},
		"enqueued twice":    {"id", "a7", "kind", "k", "payload", "p", "enqueued_ms", "1", "enqueued_ms", "1"},
		"random":            {"\x00\x01\xff", "\r\n$5\r\n", "", ""},
		"many":              many,
		"one field more":    tooMany,
	}
	r := newRig(t)
	want := map[queue.EntryID][]string{}
	for i, name := range sortedKeys(bad) {
		id, err := r.c.XAdd(bg, xadd(r.q.StreamKey(0), bad[name]...)).Result()
		if err != nil {
			t.Fatal(err)
		}
		want[queue.EntryID(id)] = bad[name]
		r.add(tasksNamed(fmt.Sprint("good", i))...)
	}
	es := r.read("w", 100)
	b := r.begin(es, 100)
	if len(b.Deliveries) != len(bad) || len(b.Buried) != len(bad) {
		t.Fatalf("%d run, %d buried: %+v", len(b.Deliveries), len(b.Buried), b.Buried)
	}
	for _, c := range b.Buried {
		if len(c.Detail) > 300 {
			t.Errorf("%s: a reason of %d bytes", c.EntryID, len(c.Detail))
		}
	}
	again := r.begin(es[:1], 1) // the same entries once more
	if len(again.Buried)+len(again.Deliveries) != 1 {
		t.Errorf("%+v", again)
	}
	letters, err := r.q.DeadTasks(bg, 0, "", 100)
	if err != nil || len(letters) != len(bad) {
		t.Fatalf("%d letters, %v", len(letters), err)
	}
	for _, d := range letters {
		if d.Reason != queue.DeadUndecodable || d.Failures != 0 || d.Error == "" || d.Task != nil {
			t.Errorf("%+v", d)
		}
		fields := d.Fields
		if len(fields) == 2 && fields[0] == "packed_fields" {
			fields = unpacked(t, fields[1])
		}
		if !slices.Equal(fields, want[d.Entry]) {
			t.Errorf("%s: %d strings, want %d", d.Entry, len(fields), len(want[d.Entry]))
		}
	}
	r.must(queue.Completed, r.q.Complete(bg, settlements(b.Deliveries)))
	if n := r.total("stream"); n != 0 {
		t.Errorf("%d entries are left", n)
	}
	// They can leave again.
	for _, d := range letters {
		m := r.q.Redrive(bg, []queue.TaskID{d.TaskID})[0]
		if packed := d.Fields[0] == "packed_fields"; packed != errors.Is(m.Err, queue.ErrInvalidTask) || !packed && m.Err != nil {
			t.Errorf("redrive: %+v", m)
		}
	}
	if b := r.begin(r.read("w", 100), 100); len(b.Buried) != len(bad)-1 {
		t.Errorf("%+v", b)
	}
	left, err := r.q.DeadTasks(bg, 0, "", 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range left {
		if m := r.q.Delete(bg, []queue.TaskID{d.TaskID})[0]; m.Err != nil || m.From != queue.Dead {
			t.Errorf("delete: %+v", m)
		}
	}
	if n := r.total("dead"); n != 0 {
		t.Errorf("%d dead letters are left", n)
	}
}

func sortedKeys(m map[string][]string) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// unpacked reads "<length>:<bytes>" one after the other.
func unpacked(t *testing.T, s string) []string {
	t.Helper()
	var out []string
	for s != "" {
		head, rest, ok := strings.Cut(s, ":")
		n, err := strconv.Atoi(head)
		if !ok || err != nil || n > len(rest) {
			t.Fatalf("packed fields: %q", head)
		}
		out, s = append(out, rest[:n]), rest[n:]
	}
	return out
}

// TestG6Bytes takes payloads through every place and compares them.
func TestG6Bytes(t *testing.T) {
	all := make([]byte, 0, 512)
	for i := range 512 {
		all = append(all, byte(i))
	}
	header := "\u0000 ü \r\n"
	r := newRig(t)
	r.add(
		queue.Task{ID: "empty", Kind: "k", Headers: map[string]string{"traceparent": header, "id": "x", "payload": ""}},
		queue.Task{ID: "binary", Kind: "k", Payload: all, ContentType: "application/octet-stream", Delay: time.Hour},
	)
	enqueued := map[queue.TaskID]time.Time{}
	check := func(where string, task *queue.Task) {
		t.Helper()
		if task == nil {
			t.Fatalf("%s: no task", where)
		}
		want := map[queue.TaskID]string{"empty": "", "binary": string(all)}[task.ID]
		if string(task.Payload) != want || task.Payload == nil {
			t.Errorf("%s: %s has the payload %q", where, task.ID, task.Payload)
		}
		if task.ID == "empty" && (len(task.Headers) != 3 || task.Headers["traceparent"] != header || task.Headers["id"] != "x") {
			t.Errorf("%s: headers %q", where, task.Headers)
		}
		if was, ok := enqueued[task.ID]; ok && !was.Equal(task.EnqueuedAt) {
			t.Errorf("%s: %s enqueued at %v, before %v", where, task.ID, task.EnqueuedAt, was)
		}
		enqueued[task.ID] = task.EnqueuedAt
	}
	run := func(where string) []queue.Delivery {
		t.Helper()
		r.advance(time.Hour)
		if _, err := r.q.Promote(bg, 0, 10); err != nil {
			t.Fatal(err)
		}
		ds := r.take("w", 2)
		for _, d := range ds {
			check(where, &d.Task)
			info := r.inspect(string(d.Task.ID))
			check(where+", inspect", info.Task)
		}
		return ds
	}
	r.must(queue.Retried, r.q.Retry(bg, settlements(run("first"), func(s *queue.Settlement) { s.Error = header + "\xff" })))
	for _, id := range []string{"empty", "binary"} {
		if info := r.inspect(id); info.LastError != header+"\xff" {
			t.Errorf("error %q", info.LastError)
		}
		check("scheduled", r.inspect(id).Task)
	}
	r.must(queue.Released, r.q.Release(bg, settlements(run("after retry"))))
	r.must(queue.DeadLettered, r.q.DeadLetter(bg, settlements(run("after release"), rejected)))
	letters, err := r.q.DeadTasks(bg, 0, "", 10)
	if err != nil || len(letters) != 2 {
		t.Fatal(letters, err)
	}
	for _, d := range letters {
		check("dead", d.Task)
		check("dead, inspect", r.inspect(string(d.TaskID)).Task)
		if m := r.q.Redrive(bg, []queue.TaskID{d.TaskID})[0]; m.Err != nil {
			t.Fatal(m.Err)
		}
	}
	r.must(queue.Completed, r.q.Complete(bg, settlements(run("after redrive"), func(s *queue.Settlement) { s.Result = all })))
	if got := r.inspect("binary").Result; string(got) != string(all) {
		t.Errorf("result %q", got)
	}
}

// A task that is read with the largest number of fields is read again after a
// move, which puts its enqueue time in.
func TestMovedTasksAreReadAgain(t *testing.T) {
	r := newRig(t)
	fields := []string{"kind", "k", "payload", "p"}
	for i := range 254 {
		fields = append(fields, "x"+strconv.Itoa(i), "")
	}
	// Without an ID it is named by its first entry, whatever is done to it.
	entry, err := r.c.XAdd(bg, xadd(r.q.StreamKey(0), fields...)).Result()
	if err != nil {
		t.Fatal(err)
	}
	id := queue.TaskID(entry)
	var added time.Time
	run := func(attempt, failures int) []queue.Delivery {
		t.Helper()
		ds := r.take("w", 1)
		if got := ds[0]; got.Task.ID != id || got.Lease.Attempt != attempt || got.Lease.Failures != failures {
			t.Errorf("%s came as %s, attempt %d", id, got.Task.ID, got.Lease.Attempt)
		}
		if added.IsZero() {
			added = ds[0].Task.EnqueuedAt
		} else if !added.Equal(ds[0].Task.EnqueuedAt) {
			t.Errorf("added at %v and at %v", added, ds[0].Task.EnqueuedAt)
		}
		return ds
	}
	r.must(queue.DeadLettered, r.q.DeadLetter(bg, settlements(run(1, 0), rejected)))
	r.q.Redrive(bg, []queue.TaskID{id})
	r.must(queue.Retried, r.q.Retry(bg, settlements(run(1, 0))))
	r.advance(time.Second)
	if _, err := r.q.Promote(bg, 0, 1); err != nil {
		t.Fatal(err)
	}
	r.must(queue.Released, r.q.Release(bg, settlements(run(2, 1))))
	ds := run(2, 1)
	if err := r.c.XGroupDelConsumer(bg, r.q.StreamKey(0), queue.Group, "w").Err(); err != nil {
		t.Fatal(err)
	}
	r.c.Del(bg, r.key(0, "leases"), r.key(0, "grants"))
	if got, err := r.q.Tidy(bg, 0); err != nil || len(got.Lost) != 0 {
		t.Fatal(got, err)
	}
	r.must(queue.Lost, r.q.Complete(bg, settlements(ds)))
	r.must(queue.Completed, r.q.Complete(bg, settlements(run(2, 1))))
	if n := r.c.HLen(bg, r.key(0, "tasks")).Val(); n != 0 {
		t.Errorf("%d records are left", n)
	}
}

// TestG7Limits holds every limit at its edge.
func TestG7Limits(t *testing.T) {
	r := newRig(t, func(c *queue.Config) { c.MaxPayload = 5 << 20 })
	r.add(queue.Task{ID: "big", Kind: "k", Payload: make([]byte, 5<<20)})
	got := r.q.Enqueue(bg, r.q.NewToken(), []queue.Task{{ID: "bigger", Kind: "k", Payload: make([]byte, 5<<20+1)}})[0]
	if !errors.Is(got.Err, queue.ErrInvalidTask) || len(got.Err.Error()) > 300 {
		t.Errorf("%v", got.Err)
	}
	ds := r.take("w", 1)
	over := settlements(ds, func(s *queue.Settlement) { s.Result = make([]byte, queue.MaxResultBytes+1) })
	if got := r.q.Complete(bg, over)[0]; !errors.Is(got.Err, queue.ErrInvalidTask) {
		t.Errorf("%+v", got)
	}
	if _, err := r.q.StepResult(bg, ds[0].Lease, "s", queue.StepDone, make([]byte, queue.MaxResultBytes+1)); !errors.Is(err, queue.ErrInvalidTask) {
		t.Errorf("%v", err)
	}
	for i := range queue.MaxSteps {
		name := fmt.Sprint("step", i)
		if _, err := r.q.StepIntent(bg, ds[0].Lease, name, "key", r.q.NewToken()); err != nil {
			t.Fatal(err)
		}
		if _, err := r.q.StepResult(bg, ds[0].Lease, name, queue.StepDone, make([]byte, queue.MaxResultBytes)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.q.StepIntent(bg, ds[0].Lease, "one-more", "key", r.q.NewToken()); !errors.Is(err, queue.ErrInvalidTask) {
		t.Errorf("%v", err)
	}
	for _, name := range []string{"", "a b", strings.Repeat("s", queue.MaxStepBytes+1)} {
		if _, err := r.q.StepIntent(bg, ds[0].Lease, name, "key", r.q.NewToken()); !errors.Is(err, queue.ErrInvalidTask) {
			t.Errorf("step %q: %v", name, err)
		}
	}
	r.must(queue.Retried, r.q.Retry(bg, settlements(ds, func(s *queue.Settlement) { s.Error = strings.Repeat("e", 10*queue.MaxErrorBytes) })))
	if got := r.inspect("big"); len(got.LastError) != queue.MaxErrorBytes || len(got.Steps) != queue.MaxSteps {
		t.Errorf("an error of %d bytes, %d steps", len(got.LastError), len(got.Steps))
	}
	r.advance(time.Second)
	if p, err := r.q.Promote(bg, 0, 1); err != nil || p.Count != 1 {
		t.Fatal(p, err)
	}
	r.must(queue.Completed, r.q.Complete(bg, settlements(r.take("w", 1), func(s *queue.Settlement) { s.Result = make([]byte, queue.MaxResultBytes) })))
	if got := r.inspect("big"); len(got.Result) != queue.MaxResultBytes || len(got.Steps) != queue.MaxSteps {
		t.Errorf("a result of %d bytes, %d steps", len(got.Result), len(got.Steps))
	}
	if n := r.c.HLen(bg, r.key(0, "steps")).Val(); n != 0 {
		t.Errorf("steps of %d unfinished tasks", n)
	}
}

// TestLargestBatches fills every list that a script unpacks: MaxBatch tasks with
// all headers, exceptions for all of them, and one more than a call carries.
func TestLargestBatches(t *testing.T) {
	r := newRig(t, func(c *queue.Config) { c.MaxFailures, c.MaxPayload = 5, 1<<10 }) // small payloads: reads are bounded by bytes
	headers := map[string]string{}
	for i := range queue.MaxHeaders {
		headers[fmt.Sprint("header", i)] = "v"
	}
	const n = 2*queue.MaxBatch + 1
	tasks := tasksNamed(numbered("t", n)...)
	for i := range tasks {
		tasks[i].Headers = headers
	}
	r.add(tasks...)
	es := r.read("w", n)
	first := r.begin(es, n)
	r.must(queue.Retried, r.q.Retry(bg, settlements(first.Deliveries)))
	r.must(queue.Retried, r.q.Retry(bg, settlements(first.Deliveries))) // all exceptions
	r.advance(time.Second)
	for range 3 {
		if _, err := r.q.Promote(bg, 0, n); err != nil {
			t.Fatal(err)
		}
	}
	es = r.read("w", n)
	req := queue.BeginRequest{Token: r.q.NewToken(), Entries: es, Start: n}
	for range 2 { // counts and states for all of them
		b, err := r.q.Begin(bg, req)
		if err != nil || len(b.Deliveries) != n || b.Deliveries[0].Lease.Failures != 1 {
			t.Fatalf("%d granted, %v", len(b.Deliveries), err)
		}
	}
	b, err := r.q.Begin(bg, queue.BeginRequest{Token: r.q.NewToken(), Entries: es, Start: n})
	if err != nil || len(b.Busy) != n {
		t.Fatalf("%d busy, %v", len(b.Busy), err)
	}
	// Split more than one call carries; then all of them lapse and are found.
	b, _ = r.q.Begin(bg, req)
	leases := make([]queue.Lease, n)
	for i, d := range b.Deliveries {
		leases[i] = d.Lease
	}
	token := r.q.NewToken()
	for range 2 {
		split, errs := r.q.Split(bg, token, leases)
		for i, err := range errs {
			if err != nil || split[i].Grant.Token != token {
				t.Fatalf("%d: %v", i, err)
			}
		}
	}
	r.advance(16 * time.Second)
	r.c.HSet(bg, r.key(0, "conf"), "walk_ms", r.c.Time(bg).Val().UnixMilli()) // the index alone, no walk
	found := 0
	for {
		got := r.reclaim(0, "w2", queue.MaxBatch)
		b := r.begin(got.Entries, n)
		found += len(b.Deliveries)
		r.must(queue.Completed, r.q.Complete(bg, settlements(b.Deliveries)))
		if len(got.Entries) == 0 {
			break
		}
	}
	if found != n {
		t.Errorf("%d of %d split leases were found", found, n)
	}
	// Copies of all, done.
	for _, task := range tasks {
		if err := r.c.XAdd(bg, xadd(r.q.StreamKey(0), "id", string(task.ID), "kind", "k", "payload", "")).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if b := r.begin(r.read("w", n), n); len(b.Duplicates) != n {
		t.Errorf("%d copies", len(b.Duplicates))
	}
	for _, m := range r.q.Delete(bg, idsOf(tasks)) {
		if m.From != queue.Done {
			t.Fatalf("%+v", m)
		}
	}
}

func idsOf(tasks []queue.Task) []queue.TaskID {
	var ids []queue.TaskID
	for _, task := range tasks {
		ids = append(ids, task.ID)
	}
	return ids
}

// A task named like an entry, and an entry that is no task of that name: both
// stay.
func TestIDsThatAreEntryIDs(t *testing.T) {
	r := newRig(t)
	entry := fmt.Sprintf("%d-7", r.c.Time(bg).Val().Add(time.Minute).UnixMilli())
	r.add(tasksNamed(entry)...)
	if err := r.c.Do(bg, "XADD", r.q.StreamKey(0), entry, "no", "task").Err(); err != nil {
		t.Fatal(err)
	}
	b := r.begin(r.read("w", 10), 10)
	if len(b.Deliveries) != 1 || len(b.Buried) != 1 {
		t.Fatalf("%+v", b)
	}
	if got := r.inspect(entry); got.Place != queue.Pending {
		t.Errorf("%+v", got)
	}
	r.must(queue.Completed, r.q.Complete(bg, settlements(b.Deliveries)))
	if letters, err := r.q.DeadTasks(bg, 0, "", 10); err != nil || len(letters) != 1 {
		t.Errorf("%+v %v", letters, err)
	}
	// In the other order: the record is overwritten by no task either.
	r = newRig(t)
	raw, err := r.c.XAdd(bg, xadd(r.q.StreamKey(0), "no", "task")).Result()
	if err != nil {
		t.Fatal(err)
	}
	es := r.read("w", 1)
	r.add(tasksNamed(raw)...)
	r.begin(es, 1)
	r.must(queue.Completed, r.q.Complete(bg, settlements(r.take("w", 1))))
	// An entry whose id is the ID of an entry without one.
	r = newRig(t)
	raw, err = r.c.XAdd(bg, xadd(r.q.StreamKey(0), "kind", "k", "payload", "1")).Result()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.c.XAdd(bg, xadd(r.q.StreamKey(0), "id", raw, "kind", "k", "payload", "2")).Err(); err != nil {
		t.Fatal(err)
	}
	b = r.begin(r.read("w", 10), 10)
	if len(b.Deliveries) != 1 || string(b.Deliveries[0].Task.Payload) != "1" || len(b.Duplicates) != 1 {
		t.Errorf("%+v", b)
	}
}

// What came without an ID is in the partition it was added to, not in the one
// of its name: it is found all the same.
func TestEntryNamesInManyPartitions(t *testing.T) {
	r := newRig(t, func(c *queue.Config) { c.Partitions = 8 })
	var names []queue.TaskID
	for p := range 8 {
		for _, fields := range [][]string{{"no", "task"}, {"kind", "k", "payload", ""}} {
			id, err := r.c.Do(bg, append([]any{"XADD", r.q.StreamKey(p), fmt.Sprintf("%d-%d", 1000+p, len(fields))}, anys(fields)...)...).Text()
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, queue.TaskID(fmt.Sprintf("%s.%d", id, p)))
		}
	}
	b := r.begin(r.readAll("w"), 100)
	if len(b.Deliveries) != 8 || len(b.Buried) != 8 {
		t.Fatalf("%+v", b)
	}
	r.must(queue.DeadLettered, r.q.DeadLetter(bg, settlements(b.Deliveries, rejected)))
	for _, name := range names {
		if got := r.inspect(string(name)); got.Place != queue.Dead {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for _, m := range r.q.Redrive(bg, names) {
		if m.Err != nil || m.From != queue.Dead {
			t.Errorf("redrive: %+v", m)
		}
	}
	if n := r.total("dead"); n != 0 {
		t.Errorf("%d dead letters are left", n)
	}
	// The same entry ID in two partitions: two tasks, two names, and with them
	// two keys for what they do.
	for _, p := range []int{2, 5} {
		if err := r.c.Do(bg, "XADD", r.q.StreamKey(p), "99999999999999-0", "kind", "k", "payload", fmt.Sprint(p)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	got := map[queue.TaskID]string{}
	for _, d := range r.begin(r.readAll("w"), 100).Deliveries { // those redriven above too
		if strings.HasPrefix(string(d.Task.ID), "99999999999999-") {
			got[d.Task.ID] = string(d.Task.Payload)
		}
	}
	if want := map[queue.TaskID]string{"99999999999999-0.2": "2", "99999999999999-0.5": "5"}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	// One that was read and never begun keeps its name when it is recovered.
	if err := r.c.Do(bg, "XADD", r.q.StreamKey(3), "99999999999999-0", "kind", "k", "payload", "3").Err(); err != nil {
		t.Fatal(err)
	}
	r.readAll("gone")
	r.advance(time.Minute)
	recovered := false
	for p := range 8 {
		re, err := r.q.Reclaim(bg, queue.ReclaimRequest{Partition: p, Consumer: "w", Max: 100})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range r.begin(re.Entries, 100).Deliveries {
			recovered = recovered || d.Task.ID == "99999999999999-0.3"
		}
	}
	if !recovered {
		t.Error("the entry that was never begun did not come back under its name")
	}
}

func anys(s []string) []any {
	out := make([]any, len(s))
	for i := range s {
		out[i] = s[i]
	}
	return out
}

// Numbers of entries beyond what Lua counts exactly.
func TestHugeEntryNumbers(t *testing.T) {
	r := newRig(t)
	ms := r.c.Time(bg).Val().UnixMilli()
	ids := []string{fmt.Sprintf("%d-18446744073709551612", ms), fmt.Sprintf("%d-18446744073709551613", ms), fmt.Sprintf("%d-18446744073709551614", ms)}
	for i, id := range ids {
		if err := r.c.Do(bg, "XADD", r.q.StreamKey(0), id, "id", fmt.Sprint("t", i), "kind", "k", "payload", "").Err(); err != nil {
			t.Fatal(err)
		}
	}
	r.turn("dead")
	b := r.begin(r.read("dead", 1), 1) // the others wait, and must not be taken for delivered
	r.q.Enqueue(bg, r.q.NewToken(), tasksNamed("x"))
	r.advance(time.Minute)
	done := map[queue.TaskID]bool{}
	r.drain("w", done)
	if len(done) != 4 || len(b.Deliveries) != 1 {
		t.Errorf("ran %v", done)
	}
}

// TestResp2 replays every trace over the older protocol.
func TestResp2(t *testing.T) {
	files, err := filepath.Glob("testdata/protocol/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	c := redistest.Shared(t).Client(func(o *redis.Options) { o.Protocol = 2 })
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			replay(t, file, redistest.Backend{Name: "resp2", Client: c, Real: true})
		})
	}
}

// TestServerClockSteppedBack moves what the server stored into the future, as a
// clock that is set back by an hour leaves it.
func TestServerClockSteppedBack(t *testing.T) {
	r := newRig(t)
	r.add(tasksNamed("a", "b")...)
	r.turn("dead")
	old := r.take("dead", 1)[0]
	r.must(queue.Completed, r.q.Complete(bg, settlements(r.take("w", 1))))
	fence := r.c.Get(bg, r.key(0, "fence")).Val()
	r.advance(-time.Hour)
	us, err := strconv.ParseInt(fence, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	r.c.Set(bg, r.key(0, "fence"), us+3600e6, 0)
	// Chores whose last time lies ahead are given out.
	if got := r.turn("w"); !got.Reclaim || !got.Tidy {
		t.Errorf("%+v", got)
	}
	// The lease that would last an hour and more is cut to its length.
	if got := r.reclaim(0, "w", 10); len(got.Entries) != 0 {
		t.Errorf("a live lease was reclaimed: %+v", got)
	}
	r.advance(16 * time.Second)
	got := r.reclaim(0, "w", 10)
	b := r.begin(got.Entries, 1)
	if len(b.Deliveries) != 1 || b.Deliveries[0].Lease.Fence <= old.Lease.Fence {
		t.Fatalf("%+v", b)
	}
	r.must(queue.Completed, r.q.Complete(bg, settlements(b.Deliveries)))
	for _, id := range []string{"a", "b"} {
		if got := r.q.Enqueue(bg, r.q.NewToken(), tasksNamed(id))[0]; !got.Duplicate || got.Place != queue.Done {
			t.Errorf("%+v", got)
		}
	}
}

// A task that a handler ran meanwhile starts its wait for a handler anew.
func TestUnhandledWaitsAnewAfterARun(t *testing.T) {
	r := newRig(t, func(c *queue.Config) { c.NoHandlerAfter = time.Hour })
	r.add(tasksNamed("a")...)
	unhandled := func(want queue.Outcome) {
		t.Helper()
		r.must(want, r.q.Release(bg, settlements(r.take("w", 1), func(s *queue.Settlement) { s.Unhandled = true })))
	}
	next := func(d time.Duration) {
		t.Helper()
		r.advance(d)
		// Counts hold a moment too: age it.
		v := strings.SplitN(r.c.HGet(bg, r.key(0, "counts"), "a").Val(), " ", 5)
		if v[3] != "0" {
			v[3] = strconv.FormatInt(int64(atoi(v[3]))-d.Milliseconds(), 10)
			r.c.HSet(bg, r.key(0, "counts"), "a", strings.Join(v, " "))
		}
		if p, err := r.q.Promote(bg, 0, 1); err != nil || p.Count != 1 {
			t.Fatalf("%+v %v", p, err)
		}
	}
	unhandled(queue.Released)
	next(time.Minute)
	r.must(queue.Retried, r.q.Retry(bg, settlements(r.take("w", 1), func(s *queue.Settlement) { s.Delay = time.Hour })))
	next(2 * time.Hour)
	unhandled(queue.Released)
	next(time.Minute)
	unhandled(queue.Released)
	next(2 * time.Hour)
	unhandled(queue.DeadLettered)
	if got := r.inspect("a"); got.Reason != queue.DeadNoHandler || got.Failures != 1 {
		t.Errorf("%+v", got)
	}
}

// A record that is lost while its task is scheduled must not let a finished
// task run again.
func TestI5LostRecordOfAScheduledTask(t *testing.T) {
	r := newRig(t)
	r.add(queue.Task{ID: "a", Kind: "k", Delay: time.Hour}, queue.Task{ID: "b", Kind: "k", Delay: time.Hour})
	r.c.HDel(bg, r.key(0, "tasks"), "a", "b")
	if err := r.c.XAdd(bg, xadd(r.q.StreamKey(0), "id", "a", "kind", "k", "payload", "")).Err(); err != nil {
		t.Fatal(err)
	}
	r.must(queue.Completed, r.q.Complete(bg, settlements(r.take("w", 1))))
	r.advance(time.Hour)
	if p, err := r.q.Promote(bg, 0, 10); err != nil || p.Count != 2 {
		t.Fatal(p, err)
	}
	b := r.begin(r.read("w", 10), 10)
	if len(b.Deliveries) != 1 || b.Deliveries[0].Task.ID != "b" || len(b.Duplicates) != 1 {
		t.Errorf("%+v", b)
	}
}

// What the server keeps of a consumer goes with it.
func TestWalkCursorsGo(t *testing.T) {
	r := newRig(t)
	r.add(tasksNamed(numbered("t", 600)...)...)
	r.turn("dead")
	r.read("dead", 600)
	r.turn("w")
	r.advance(time.Minute)
	b := r.begin(r.reclaim(0, "w", 10).Entries, 10)
	if n := r.c.HExists(bg, r.key(0, "conf"), "walk:dead").Val(); !n {
		t.Fatal("the walk has no cursor")
	}
	r.must(queue.Completed, r.q.Complete(bg, settlements(b.Deliveries)))
	for _, row := range r.pending(0) { // the rest is taken by hand
		r.c.XClaimJustID(bg, &redis.XClaimArgs{Stream: r.q.StreamKey(0), Group: queue.Group, Consumer: "w", Messages: []string{row.ID}})
	}
	if got, err := r.q.Tidy(bg, 0); err != nil || !slices.Contains(got.RemovedConsumers, "dead") {
		t.Fatal(got, err)
	}
	if r.c.HExists(bg, r.key(0, "conf"), "walk:dead").Val() {
		t.Error("the cursor of a consumer that is gone is still there")
	}
}
