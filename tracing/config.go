package tracing

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// Config says where spans go. The zero value makes none, and passes on the
// trace context that it finds.
type Config struct {
	// TracerProvider makes the spans; default: none are made. The global
	// provider is not used unless it is given here.
	TracerProvider trace.TracerProvider

	// Propagator writes the trace context into the headers of a task and
	// reads it from there; default propagation.TraceContext, which is the
	// W3C's traceparent and tracestate. What it reads besides, such as
	// baggage, is in the context of the handler.
	Propagator propagation.TextMapPropagator

	// OmitErrorText keeps the texts of errors and the stacks of panics out of
	// spans; their types stay. The text of a handler's error is whatever the
	// handler put into it. At most queue.MaxErrorBytes of one are recorded.
	OmitErrorText bool
}

// system is the value of messaging.system: the conventions have none for
// streams of Redis, and allow others.
const system = "redis_streams"

// Attributes for which there is no convention. docs/tracing.md lists them.
const (
	kindKey          = attribute.Key("claimq.task.kind")
	attemptKey       = attribute.Key("claimq.attempt")
	failuresKey      = attribute.Key("claimq.failures")
	interruptionsKey = attribute.Key("claimq.interruptions")
	fenceKey         = attribute.Key("claimq.fence")
	reclaimedKey     = attribute.Key("claimq.reclaimed")
	outcomeKey       = attribute.Key("claimq.outcome")
	reasonKey        = attribute.Key("claimq.reason")

	addedKey      = attribute.Key("claimq.enqueue.added")
	duplicateKey  = attribute.Key("claimq.enqueue.duplicate")
	refusedKey    = attribute.Key("claimq.enqueue.refused")
	fullKey       = attribute.Key("claimq.enqueue.full")
	indefiniteKey = attribute.Key("claimq.enqueue.indefinite")
	unsentKey     = attribute.Key("claimq.enqueue.unsent")

	// leaseLost is an event: the context of the handler ended because the
	// lease was lost. It is noted when the handler returns.
	leaseLost = "claimq.lease_lost"
)

// tracer is what the parts of the package have in common.
type tracer struct {
	trace.Tracer
	propagator propagation.TextMapPropagator
	texts      bool
}

func (c Config) tracer() tracer {
	if c.TracerProvider == nil {
		c.TracerProvider = noop.NewTracerProvider()
	}
	if c.Propagator == nil {
		c.Propagator = propagation.TraceContext{}
	}
	return tracer{
		Tracer:     c.TracerProvider.Tracer("github.com/claimq/claimq/tracing", trace.WithSchemaURL(semconv.SchemaURL)),
		propagator: c.Propagator,
		texts:      !c.OmitErrorText,
	}
}
