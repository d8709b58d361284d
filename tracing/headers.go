package tracing

import (
	"context"
	"maps"
	"slices"
	"unicode/utf8"

	"go.opentelemetry.io/otel/propagation"

	"github.com/claimq/claimq/queue"
)

// traceParent is the header without which tracestate means nothing.
const traceParent = "traceparent"

// maxNameBytes is the longest name of a header that Enqueue takes.
const maxNameBytes = 64

// carry returns the tasks with the trace context of ctx in their headers. The
// caller's tasks stay as they are.
func (t tracer) carry(ctx context.Context, tasks []queue.Task) []queue.Task {
	headers := propagation.MapCarrier{}
	t.propagator.Inject(ctx, headers)
	if len(headers) == 0 {
		return tasks
	}
	out := slices.Clone(tasks)
	for i := range out {
		out[i].Headers = t.join(out[i].Headers, headers)
	}
	return out
}

// join adds what fits of the trace context. A task that has any of the
// propagator's headers keeps them and gets no other: a mixture of two contexts
// is none.
func (t tracer) join(own map[string]string, headers propagation.MapCarrier) map[string]string {
	for _, name := range t.propagator.Fields() {
		if _, set := own[name]; set {
			return own
		}
	}
	out := make(map[string]string, len(own)+len(headers))
	maps.Copy(out, own)
	names := slices.Sorted(maps.Keys(headers))
	if slices.Contains(names, traceParent) {
		names = append([]string{traceParent}, names...) // it has the first call on the room there is
	}
	for _, name := range names {
		if _, set := out[name]; !set && fits(out, name, headers[name]) {
			out[name] = headers[name]
		}
	}
	return out
}

// fits reports whether Enqueue takes one more header.
func fits(headers map[string]string, name, value string) bool {
	if name == "" || len(name) > maxNameBytes || len(headers) >= queue.MaxHeaders {
		return false
	}
	for i := range len(name) {
		if name[i] <= ' ' || name[i] > '~' {
			return false
		}
	}
	return len(name)+len(value) <= queue.MaxHeaderBytes && utf8.ValidString(value)
}
