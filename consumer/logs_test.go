package consumer_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/queue"
)

// TestLogsNameTheTaskAlike runs tasks that fail, die, are taken over, deleted
// under their holder and refused: each line about one of them has the fields
// that its events on the server have, under the same names, and no line has
// anything of a payload.
func TestLogsNameTheTaskAlike(t *testing.T) {
	const secret = "secret-payload"
	q := newQueue(t, func(c *queue.Config) { c.MaxFailures = 1 })
	var log lockedBuffer
	var mux consumer.Mux
	forget := func(ctx context.Context, l queue.Lease) error {
		return q.Delete(context.WithoutCancel(ctx), []queue.TaskID{l.TaskID})[0].Err
	}
	for kind, h := range map[string]func(context.Context, queue.Lease, []byte) error{
		"fail":   func(context.Context, queue.Lease, []byte) error { return errors.New("boom") },
		"panic":  func(context.Context, queue.Lease, []byte) error { panic("oh") },
		"taken":  func(context.Context, queue.Lease, []byte) error { return nil },
		"refuse": func(ctx context.Context, l queue.Lease, _ []byte) error { return forget(ctx, l) },
		"revoke": func(ctx context.Context, l queue.Lease, _ []byte) error {
			err := forget(ctx, l)
			<-ctx.Done()
			return err
		},
	} {
		consumer.Handle(&mux, kind, func(ctx context.Context, l queue.Lease, in []byte) error { return h(ctx, l, in) })
	}
	for _, kind := range []string{"fail", "panic", "refuse", "revoke"} {
		enqueue(t, q, queue.Task{ID: queue.TaskID(kind), Kind: kind, Payload: []byte(secret), Headers: map[string]string{"h": secret}})
	}
	other := again(t, q, func(c *queue.Config) {})
	enqueue(t, q, queue.Task{ID: "taken", Kind: "taken", Payload: []byte(secret)})
	for _, e := range readAll(t, other, "gone") {
		if slices.Contains(e.Fields, "taken") {
			if _, err := other.Begin(t.Context(), queue.BeginRequest{Token: other.NewToken(), Entries: []queue.Entry{e}, Start: 1}); err != nil {
				t.Fatal(err)
			}
		}
	}
	run(t, q, consumer.Config{Handler: &mux, Consumer: "mine", Logger: slog.New(slog.NewJSONHandler(&log, nil))})
	want := []string{
		"attempt did not succeed", "handler panicked", "task is a dead letter", "outcome refused: the lease was lost", "lease lost",
		"outcome dropped: the lease was lost before the handler returned", "task reclaimed",
	}
	eventually(t, "all is logged", func() bool {
		return !slices.ContainsFunc(want, func(msg string) bool { return !strings.Contains(log.String(), `"msg":"`+msg+`"`) })
	})
	fields := []string{"task", "kind", "queue", "consumer", "owner", "fence", "lease_end", "stage", "attempt"}
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, secret) {
			t.Errorf("a payload is in the log: %s", line)
		}
		var got map[string]any
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if got["task"] == nil || !slices.Contains(want, got["msg"].(string)) {
			continue
		}
		for _, name := range fields {
			if v := got[name]; v == nil || v == "" || v == 0. {
				t.Errorf("%q has no %s, but %v", got["msg"], name, slices.Sorted(maps.Keys(got)))
			}
		}
		owner, _ := got["owner"].(string)
		end, err := time.Parse(time.RFC3339Nano, got["lease_end"].(string))
		switch {
		case len(owner) != 8:
			t.Errorf("%q shows the owner token as %q", got["msg"], owner)
		case err != nil || time.Until(end).Abs() > time.Minute:
			t.Errorf("%q says the lease ends at %v, %v", got["msg"], end, err)
		case !strings.HasPrefix(got["consumer"].(string), "mine-"):
			t.Errorf("%q names consumer %v", got["msg"], got["consumer"])
		case got["task"] == "fail" && got["msg"] != "task reclaimed" && got["error"] != "boom":
			t.Errorf("%q has error %v", got["msg"], got["error"])
		}
	}
}

func readAll(t *testing.T, q *queue.Queue, name string) []queue.Entry {
	t.Helper()
	es, err := queue.Read(t.Context(), queue.ReadRequest{Queues: []*queue.Queue{q}, Consumer: name, Max: 100})
	if err != nil {
		t.Fatal(err)
	}
	return es
}
