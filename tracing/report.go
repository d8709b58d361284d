package tracing

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/queue"
)

// report says how an attempt ended. A task that was handed back did not fail.
func (m middleware) report(ctx context.Context, span trace.Span, result []byte, err error) {
	if errors.Is(context.Cause(ctx), queue.ErrLeaseLost) {
		span.AddEvent(leaseLost)
	}
	outcome, reason := consumer.OutcomeOf(ctx, result, err)
	span.SetAttributes(outcomeKey.String(string(outcome)))
	if reason != consumer.FailedNone {
		span.SetAttributes(reasonKey.String(string(reason)))
	}
	switch {
	case err != nil:
		m.recordError(span, err, outcome != queue.Released)
	case outcome != queue.Completed:
		const what = "result_too_large"
		span.SetAttributes(semconv.ErrorTypeKey.String(what))
		span.SetStatus(codes.Error, fmt.Sprintf("the result has %d bytes, more than %d", len(result), queue.MaxResultBytes))
	}
}

// recordError adds an event with the error, and makes it the status of the
// span where the attempt has failed.
func (m middleware) recordError(span trace.Span, err error, failed bool) {
	what, text, stack := typeOf(err), textOf(err), ""
	if p, ok := asPanic(err); ok {
		text, stack = "handler panicked: "+p.Value, p.Stack
		if p.Goexit {
			text = "handler called runtime.Goexit"
		}
	}
	attrs := []attribute.KeyValue{semconv.ExceptionType(what)}
	if !m.texts {
		text, stack = what, ""
	} else {
		attrs = append(attrs, semconv.ExceptionMessage(text))
	}
	if stack != "" {
		attrs = append(attrs, semconv.ExceptionStacktrace(stack))
	}
	span.AddEvent(semconv.ExceptionEventName, trace.WithAttributes(attrs...))
	if failed {
		span.SetAttributes(semconv.ErrorTypeKey.String(what))
		span.SetStatus(codes.Error, text)
	}
}

// reportPanic is for a handler that did not return. What it panicked with is
// the worker's to recover and to log.
func (m middleware) reportPanic(span trace.Span) {
	span.SetAttributes(
		outcomeKey.String(string(queue.Retried)),
		reasonKey.String(string(consumer.FailedPanic)),
		semconv.ErrorTypeKey.String(panicType),
	)
	span.SetStatus(codes.Error, "handler panicked or called runtime.Goexit")
}
