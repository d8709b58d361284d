package tracing

import (
	"context"
	"strconv"

	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/queue"
)

// Middleware opens a span around each attempt: a new trace, linked to the span
// of the producer where the task carries its context. The handler's context
// has the span in it.
//
// Give it to consumer.Mux.Use, or call it with a handler. Called with a
// consumer.Router it returns one, whose routes are those of the router; called
// with a *consumer.Mux it is added to the mux, which is returned.
func Middleware(cfg Config) func(consumer.Handler) consumer.Handler {
	return middleware{cfg.tracer()}.around
}

type middleware struct{ tracer }

func (m middleware) around(h consumer.Handler) consumer.Handler {
	switch h := h.(type) {
	case nil:
		return nil // the worker says what is wrong with it
	case *consumer.Mux:
		// A wrapped mux would keep from the worker what is wrong with it.
		if h != nil {
			h.Use(m.around)
		}
		return h
	case consumer.Router:
		return router{traced{m, h}, h}
	}
	return traced{m, h}
}

// router is a Router with a span around what it routes to.
type router struct {
	traced
	to consumer.Router
}

func (r router) Route(kind string) (consumer.Route, bool) {
	route, ok := r.to.Route(kind)
	if ok {
		route.Handler = traced{r.middleware, route.Handler}
	}
	return route, ok
}

// traced is a Handler with a span around it.
type traced struct {
	middleware
	next consumer.Handler
}

// HandleTask runs the handler. A panic, or the end of its goroutine, ends the
// span and goes on.
func (t traced) HandleTask(ctx context.Context, d consumer.Delivery) (result []byte, err error) {
	ctx, span := t.start(ctx, d)
	returned := false
	defer func() {
		if returned {
			t.report(ctx, span, result, err)
		} else {
			t.reportPanic(span)
		}
		span.End()
	}()
	result, err = t.next.HandleTask(ctx, d)
	returned = true
	return result, err
}

func (m middleware) start(ctx context.Context, d consumer.Delivery) (context.Context, trace.Span) {
	ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{}) // a trace of the worker's own is none of the task's
	ctx = m.propagator.Extract(ctx, propagation.MapCarrier(d.Task.Headers))
	options := []trace.SpanStartOption{
		trace.WithNewRoot(), // an attempt may begin hours after its task came
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(
			semconv.MessagingSystemKey.String(system),
			semconv.MessagingOperationName("process"),
			semconv.MessagingOperationTypeProcess,
			semconv.MessagingDestinationName(d.Lease.Queue),
			semconv.MessagingDestinationPartitionID(strconv.Itoa(d.Lease.Grant.Partition)),
			semconv.MessagingConsumerGroupName(queue.Group),
			semconv.MessagingMessageID(string(d.Lease.TaskID)),
			kindKey.String(d.Task.Kind),
			attemptKey.Int(d.Lease.Attempt),
			failuresKey.Int(d.Lease.Failures),
			interruptionsKey.Int(d.Lease.Interruptions),
			fenceKey.Int64(int64(d.Lease.Fence)), // below 2^53
		),
	}
	if d.Source != "" {
		options = append(options, trace.WithAttributes(reclaimedKey.Bool(d.Source == consumer.SourceReclaimed)))
	}
	if from := trace.SpanContextFromContext(ctx); from.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: from}))
	}
	return m.Start(ctx, "process "+d.Lease.Queue, options...)
}
