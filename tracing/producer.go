package tracing

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/queue"
)

// Enqueuer adds tasks: a *producer.Producer, or what wraps one.
type Enqueuer interface {
	Enqueue(ctx context.Context, task queue.Task) (queue.Receipt, error)
	EnqueueMany(ctx context.Context, tasks []queue.Task) ([]queue.Receipt, error)
}

var _ Enqueuer = (*producer.Producer)(nil)

// Producer opens a span around each call to another Enqueuer and sends its
// context along with the tasks. It is safe for concurrent use.
type Producer struct {
	tracer tracer
	queue  string
	to     Enqueuer
}

var _ Enqueuer = (*Producer)(nil)

// NewProducer returns a Producer over to, which adds to q. Of q only the name
// is used.
func NewProducer(q *queue.Queue, to Enqueuer, cfg Config) *Producer {
	return &Producer{tracer: cfg.tracer(), queue: q.Name(), to: to}
}

// Enqueue is that of package producer, in a span of its own. The task carries
// the span's context in its headers, unless it has one already or there is no
// room for it.
func (p *Producer) Enqueue(ctx context.Context, task queue.Task) (queue.Receipt, error) {
	ctx, span := p.start(ctx, kindKey.String(task.Kind))
	defer span.End()
	receipt, err := p.to.Enqueue(ctx, p.tracer.carry(ctx, []queue.Task{task})[0])
	if receipt.ID != "" {
		span.SetAttributes(semconv.MessagingMessageID(string(receipt.ID)))
	}
	p.report(span, []queue.Receipt{receipt}, err)
	return receipt, err
}

// EnqueueMany is that of package producer, in one span for all of the tasks,
// each of which carries its context as with Enqueue.
func (p *Producer) EnqueueMany(ctx context.Context, tasks []queue.Task) ([]queue.Receipt, error) {
	ctx, span := p.start(ctx, semconv.MessagingBatchMessageCount(len(tasks)))
	defer span.End()
	receipts, err := p.to.EnqueueMany(ctx, p.tracer.carry(ctx, tasks))
	p.report(span, receipts, err)
	return receipts, err
}

func (p *Producer) start(ctx context.Context, also attribute.KeyValue) (context.Context, trace.Span) {
	return p.tracer.Start(ctx, "send "+p.queue, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
		semconv.MessagingSystemKey.String(system),
		semconv.MessagingOperationName("send"),
		semconv.MessagingOperationTypeSend,
		semconv.MessagingDestinationName(p.queue),
		also,
	))
}

// report counts the answers. An error is that of any task, as for the caller.
func (p *Producer) report(span trace.Span, receipts []queue.Receipt, err error) {
	s := producer.Summarize(receipts)
	for _, c := range []struct {
		key attribute.Key
		n   int
	}{
		{addedKey, s.Added}, {duplicateKey, s.Duplicate}, {refusedKey, s.Refused},
		{fullKey, s.Full}, {indefiniteKey, s.Indefinite}, {unsentKey, s.Unsent},
	} {
		if c.n > 0 {
			span.SetAttributes(c.key.Int(c.n))
		}
	}
	if err == nil {
		return
	}
	what := refusal(err)
	span.SetAttributes(semconv.ErrorTypeKey.String(what))
	text := what
	if p.tracer.texts {
		text = serverText(err)
	}
	span.SetStatus(codes.Error, text)
}

// refusal names the cause of an error of package producer, the one that leaves
// most open first where there are several.
func refusal(err error) string {
	switch {
	case errors.Is(err, queue.ErrIndefinite):
		return "indefinite"
	case errors.Is(err, queue.ErrUnavailable):
		return "unavailable"
	case errors.Is(err, queue.ErrQueueFull):
		return "full"
	case errors.Is(err, queue.ErrInvalidTask):
		return "invalid"
	}
	return typeOf(err)
}
