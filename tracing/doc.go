// Package tracing makes OpenTelemetry spans of what a queue does: one for each
// call that enqueues, one for each attempt, linked to it. It is a module of its
// own, so that a program that does not trace depends on nothing of it.
//
//	cfg := tracing.Config{TracerProvider: provider}
//	p := tracing.NewProducer(q, inner, cfg) // inner is a *producer.Producer
//	mux.Use(tracing.Middleware(cfg))
//
// The context of the producer's span travels in the headers traceparent and
// tracestate of the task (docs/wire-format.md), so that any program may send or
// continue it.
//
// Spans hold names, numbers, IDs and texts of errors, never a payload, a header
// or a result. See Config.OmitErrorText for the texts.
//
// A task is never refused, changed or kept waiting for the sake of a trace: a
// header that does not fit is left out, and one that does not parse is as good
// as none.
//
// The package keeps no state, starts no goroutine, and uses no provider and no
// propagator but those it is given.
package tracing
