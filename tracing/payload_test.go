package tracing_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/internal/faultredis"
	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/queue"
)

// TestNoPayloadAnywhere puts a word into everything that a task holds, has it
// enqueued, refused and run in many ways, and looks for it in all spans.
func TestNoPayloadAnywhere(t *testing.T) {
	const secret = "4111-1111-1111-1111"
	payload := []byte(`{"number": "` + secret + `"}`)
	r := newRig(t, func(c *queue.Config) { c.MaxPayload = 100 })
	p := r.producer()
	headers := map[string]string{"card": secret}
	tasks := []queue.Task{
		{ID: "done", Kind: "k", Payload: payload, Headers: headers},
		{ID: "failed", Kind: "k", Payload: payload},
		{ID: "undecodable", Kind: "typed", Payload: payload},
		{ID: "too-large", Kind: "k", Payload: []byte(strings.Repeat(secret, 10))},
		{ID: "bad-header", Kind: "k", Headers: map[string]string{"x": secret + "\xff"}},
	}
	if receipts, _ := p.EnqueueMany(t.Context(), tasks); producer.Summarize(receipts) != (producer.Summary{Added: 3, Refused: 2}) {
		t.Fatalf("%+v", receipts)
	}
	fault := faultredis.New(r.client).Inject(faultredis.ReplyError(faultredis.Command("evalsha"),
		"ERR unknown command 'evalsha', with args beginning with: 'sha' '1' '"+string(payload)+"'"))
	for _, task := range tasks {
		if _, err := p.Enqueue(t.Context(), task); err == nil {
			t.Error("a server that knows no scripts has accepted a task")
		}
	}
	fault.Remove()
	r.work(4, func(_ context.Context, d consumer.Delivery) ([]byte, error) {
		if d.Task.ID == "failed" && d.Lease.Attempt == 1 {
			return nil, errPlain
		}
		return []byte(secret), nil
	})
	if n := len(named(r.spans, "process invoices")); n != 4 {
		t.Errorf("%d spans of attempts, want 4", n)
	}
	for _, s := range r.spans.GetSpans() {
		text := everything(s)
		if strings.Contains(text, secret) {
			t.Errorf("the payload is in a span: %s", text)
		}
	}
	if text := everything(named(r.spans, "process invoices")[0]); !strings.Contains(text, "messaging.message.id") {
		t.Errorf("the search does not see attributes: %s", text)
	}
}

// everything is all text of a span.
func everything(s tracetest.SpanStub) string {
	var b strings.Builder
	fmt.Fprintln(&b, s.Name, s.Status.Description, s.SpanContext.TraceState(), s.InstrumentationScope)
	sets := [][]any{}
	for _, kv := range s.Attributes {
		sets = append(sets, []any{kv.Key, kv.Value.String()})
	}
	for _, kv := range s.Resource.Attributes() {
		sets = append(sets, []any{kv.Key, kv.Value.String()})
	}
	for _, e := range s.Events {
		sets = append(sets, []any{e.Name})
		for _, kv := range e.Attributes {
			sets = append(sets, []any{kv.Key, kv.Value.String()})
		}
	}
	for _, l := range s.Links {
		sets = append(sets, []any{l.SpanContext.TraceState()})
		for _, kv := range l.Attributes {
			sets = append(sets, []any{kv.Key, kv.Value.String()})
		}
	}
	for _, set := range sets {
		fmt.Fprintln(&b, set...)
	}
	return b.String()
}
