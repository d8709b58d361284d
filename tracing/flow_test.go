package tracing_test

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/internal/faultredis"
	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/queue"
)

// TestAttemptsLinkToTheSend: one span for the send, and one for each attempt,
// in a trace of its own and linked to the send.
func TestAttemptsLinkToTheSend(t *testing.T) {
	r := newRig(t)
	ctx, request := r.cfg.TracerProvider.Tracer("caller").Start(t.Context(), "request")
	task := queue.Task{ID: "invoice-4821-send", Kind: "invoice.send", Headers: map[string]string{"own": "kept"}}
	receipt, err := r.producer().Enqueue(ctx, task)
	if err != nil || !receipt.Added {
		t.Fatalf("%+v, %v", receipt, err)
	}
	request.End()
	if len(task.Headers) != 1 {
		t.Errorf("the caller's headers have become %v", task.Headers)
	}
	var inside []trace.SpanContext
	r.work(2, func(ctx context.Context, d consumer.Delivery) ([]byte, error) {
		inside = append(inside, trace.SpanContextFromContext(ctx))
		if d.Task.Headers["own"] != "kept" || len(d.Task.Headers) != 2 {
			t.Errorf("headers are %v", d.Task.Headers)
		}
		if len(inside) == 1 {
			return nil, errPlain
		}
		return nil, nil
	})

	send := only(t, r.spans, "send invoices")
	if send.Parent.SpanID() != request.SpanContext().SpanID() || send.SpanKind != trace.SpanKindProducer {
		t.Errorf("the send has parent %v and kind %v", send.Parent.SpanID(), send.SpanKind)
	}
	has(t, send, "messaging.system=redis_streams", "messaging.operation.name=send", "messaging.operation.type=send",
		"messaging.destination.name=invoices", "messaging.message.id=invoice-4821-send", "claimq.task.kind=invoice.send",
		"claimq.enqueue.added=1", "claimq.enqueue.duplicate=", "error.type=", "messaging.batch.message_count=")
	status(t, send, codes.Unset, "")

	attempts := named(r.spans, "process invoices")
	if len(attempts) != 2 {
		t.Fatalf("%d spans of attempts, want 2", len(attempts))
	}
	for i, s := range attempts {
		if len(s.Links) != 1 || s.Links[0].SpanContext.TraceID() != send.SpanContext.TraceID() ||
			s.Links[0].SpanContext.SpanID() != send.SpanContext.SpanID() {
			t.Errorf("attempt %d has the links %+v, want one to %+v", i+1, s.Links, send.SpanContext)
		}
		if s.Parent.IsValid() || s.SpanContext.TraceID() == send.SpanContext.TraceID() || s.SpanKind != trace.SpanKindConsumer {
			t.Errorf("attempt %d: parent %v, trace %v, kind %v", i+1, s.Parent, s.SpanContext.TraceID(), s.SpanKind)
		}
		if !s.SpanContext.Equal(inside[i]) {
			t.Errorf("attempt %d: the handler's span is %v", i+1, inside[i])
		}
		has(t, s, "messaging.system=redis_streams", "messaging.operation.name=process", "messaging.operation.type=process",
			"messaging.destination.name=invoices", "messaging.destination.partition.id=0", "messaging.consumer.group.name=workers",
			"messaging.message.id=invoice-4821-send", "claimq.task.kind=invoice.send", "claimq.reclaimed=false",
			"claimq.interruptions=0", "claimq.attempt="+strconv.Itoa(i+1), "claimq.failures="+strconv.Itoa(i))
	}
	has(t, attempts[0], "claimq.outcome=retried", "claimq.reason=error", "error.type=*errors.errorString")
	status(t, attempts[0], codes.Error, errPlain.Error())
	has(t, attempts[1], "claimq.outcome=completed", "claimq.reason=", "error.type=")
	status(t, attempts[1], codes.Unset, "")
	first, _ := strconv.ParseUint(attr(attempts[0].Attributes, "claimq.fence"), 10, 64)
	second, _ := strconv.ParseUint(attr(attempts[1].Attributes, "claimq.fence"), 10, 64)
	if first == 0 || second <= first {
		t.Errorf("fences %d and %d", first, second)
	}
}

// TestEntriesOfOthers: a task that another program has added is traced like
// any other, and linked if it has a context that can be read.
func TestEntriesOfOthers(t *testing.T) {
	r := newRig(t)
	const traceID, spanID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	entries := map[string][]string{
		"bare":      nil,
		"empty":     {"h.traceparent", ""},
		"malformed": {"h.traceparent", "00-4bf9-00f0-01"},
		"zero":      {"h.traceparent", "00-" + strings.Repeat("0", 32) + "-" + strings.Repeat("0", 16) + "-01"},
		"sampled":   {"h.traceparent", "00-" + traceID + "-" + spanID + "-01", "h.tracestate", "vendor=1"},
		"unsampled": {"h.traceparent", "00-" + traceID + "-" + spanID + "-00"},
	}
	for id, headers := range entries {
		values := append([]string{"id", id, "kind", "k", "payload", "p"}, headers...)
		if err := r.client.XAdd(t.Context(), &redis.XAddArgs{Stream: r.q.StreamKey(0), Values: values}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	r.work(len(entries), func(context.Context, consumer.Delivery) ([]byte, error) { return nil, nil })
	spans := named(r.spans, "process invoices")
	if len(spans) != len(entries) {
		t.Fatalf("%d spans, want %d", len(spans), len(entries))
	}
	for _, s := range spans {
		id := attr(s.Attributes, "messaging.message.id")
		linked := id == "sampled" || id == "unsampled"
		if got := len(s.Links); got != 0 && !linked || got != 1 && linked {
			t.Errorf("%s: links %+v", id, s.Links)
			continue
		}
		if linked {
			to := s.Links[0].SpanContext
			if to.TraceID().String() != traceID || to.SpanID().String() != spanID || to.IsSampled() != (id == "sampled") {
				t.Errorf("%s: linked to %+v", id, to)
			}
		}
		if s.Parent.IsValid() {
			t.Errorf("%s: has the parent %v", id, s.Parent)
		}
	}
}

// TestTakenOver: an attempt that follows on one without an outcome says so.
func TestTakenOver(t *testing.T) {
	r := newRig(t, func(c *queue.Config) { c.Lease = queue.MinLease })
	if _, err := r.producer().Enqueue(t.Context(), queue.Task{ID: "t", Kind: "k"}); err != nil {
		t.Fatal(err)
	}
	// A worker that starts the task and is not heard of again.
	entries, err := queue.Read(t.Context(), queue.ReadRequest{Queues: []*queue.Queue{r.q}, Consumer: "gone", Max: 1})
	if err != nil || len(entries) != 1 {
		t.Fatal(entries, err)
	}
	if b, err := r.q.Begin(t.Context(), queue.BeginRequest{Token: r.q.NewToken(), Entries: entries, Start: 1}); err != nil || len(b.Deliveries) != 1 {
		t.Fatal(b, err)
	}
	r.work(1, func(context.Context, consumer.Delivery) ([]byte, error) { return nil, nil })
	s := only(t, r.spans, "process invoices")
	has(t, s, "claimq.reclaimed=true", "claimq.attempt=2", "claimq.interruptions=1", "claimq.failures=0", "claimq.outcome=completed")
	if len(s.Links) != 1 || s.Links[0].SpanContext.SpanID() != only(t, r.spans, "send invoices").SpanContext.SpanID() {
		t.Errorf("links %+v", s.Links)
	}
}

// TestBatch: one span, whose context all tasks carry but the one that has its
// own; and the answers, counted.
func TestBatch(t *testing.T) {
	r := newRig(t)
	const own = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	tasks := []queue.Task{
		{ID: "a", Kind: "k"},
		{ID: "b", Kind: "k", Headers: map[string]string{"traceparent": own}},
		{ID: "a", Kind: "k"}, // a duplicate
		{ID: "c", Kind: "not a kind"},
	}
	receipts, err := r.producer().EnqueueMany(t.Context(), tasks)
	if got := producer.Summarize(receipts); err == nil || got != (producer.Summary{Added: 2, Duplicate: 1, Refused: 1}) {
		t.Fatalf("%+v, %v", got, err)
	}
	if tasks[0].Headers != nil || len(tasks[1].Headers) != 1 {
		t.Errorf("the caller's tasks have become %+v", tasks)
	}
	send := only(t, r.spans, "send invoices")
	has(t, send, "messaging.batch.message_count=4", "messaging.message.id=", "claimq.task.kind=",
		"claimq.enqueue.added=2", "claimq.enqueue.duplicate=1", "claimq.enqueue.refused=1", "claimq.enqueue.indefinite=", "error.type=invalid")
	status(t, send, codes.Error, "not added for certain")
	for id, want := range map[queue.TaskID]string{
		"a": "00-" + send.SpanContext.TraceID().String() + "-" + send.SpanContext.SpanID().String() + "-01",
		"b": own,
	} {
		info, err := r.q.Inspect(t.Context(), id)
		if err != nil || info.Task.Headers["traceparent"] != want {
			t.Errorf("task %s has the headers %v, want traceparent %s; %v", id, info.Task.Headers, want, err)
		}
	}
}

// TestRefusals: what kept a task out is told apart.
func TestRefusals(t *testing.T) {
	anyScript := faultredis.Command("evalsha", "eval")
	for name, c := range map[string]struct {
		fault faultredis.Fault
		task  queue.Task
		want  string
	}{
		"indefinite":  {faultredis.LoseReply(anyScript), queue.Task{Kind: "k"}, "claimq.enqueue.indefinite=1"},
		"unavailable": {faultredis.FailBefore(anyScript).With(faultredis.ErrRefused), queue.Task{Kind: "k"}, "claimq.enqueue.unsent=1"},
		"invalid":     {faultredis.Fault{}, queue.Task{}, "claimq.enqueue.refused=1"},
		"full":        {faultredis.Fault{}, queue.Task{Kind: "k"}, "claimq.enqueue.full=1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(c *queue.Config) { c.MaxBacklog = 1 })
			if name == "full" {
				if _, err := r.inner.Enqueue(t.Context(), queue.Task{Kind: "k"}); err != nil {
					t.Fatal(err)
				}
			}
			hook := faultredis.New(r.client)
			if name == "indefinite" || name == "unavailable" {
				hook.Inject(c.fault)
			}
			_, err := r.producer().Enqueue(t.Context(), c.task)
			send := only(t, r.spans, "send invoices")
			has(t, send, c.want, "claimq.enqueue.added=", "error.type="+name)
			status(t, send, codes.Error, err.Error())

			r.spans.Reset()
			r.cfg.OmitErrorText = true
			_, _ = r.producer().Enqueue(t.Context(), c.task)
			if send = only(t, r.spans, "send invoices"); send.Status.Description != name {
				t.Errorf("with texts omitted: %q", send.Status.Description)
			}
		})
	}
}
