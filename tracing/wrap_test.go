package tracing_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/queue"
	"github.com/claimq/claimq/tracing"
)

const traceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// kept is an Enqueuer that keeps what it is given.
type kept struct{ tasks []queue.Task }

func (k *kept) Enqueue(_ context.Context, t queue.Task) (queue.Receipt, error) {
	k.tasks = append(k.tasks, t)
	return queue.Receipt{ID: t.ID, Added: true}, nil
}

func (k *kept) EnqueueMany(ctx context.Context, tasks []queue.Task) (receipts []queue.Receipt, err error) {
	for _, t := range tasks {
		r, _ := k.Enqueue(ctx, t)
		receipts = append(receipts, r)
	}
	return receipts, nil
}

// remote returns a context with a span of another process.
func remote(t *testing.T, state string) context.Context {
	t.Helper()
	ctx := propagation.TraceContext{}.Extract(t.Context(), propagation.MapCarrier{"traceparent": traceParent, "tracestate": state})
	if !trace.SpanContextFromContext(ctx).IsValid() {
		t.Fatal("no span in the context")
	}
	return ctx
}

func filled(n int) map[string]string {
	h := map[string]string{}
	for i := range n {
		h[fmt.Sprint("h", i)] = "v"
	}
	return h
}

// TestHeaders: what fits is added, what is there stays, and the queue takes
// every task that it would take without a trace.
func TestHeaders(t *testing.T) {
	r := newRig(t)
	long := strings.Repeat("a", 250)
	var states []string
	for i := range 17 {
		states = append(states, fmt.Sprintf("v%d=%s", i, long))
	}
	for name, c := range map[string]struct {
		own   map[string]string
		state string
		added string
	}{
		"none of its own":        {nil, "v=1", "traceparent tracestate"},
		"no state":               {filled(1), "", "traceparent"},
		"room for both":          {filled(22), "v=1", "traceparent tracestate"},
		"room for one":           {filled(23), "v=1", "traceparent"},
		"full":                   {filled(24), "v=1", ""},
		"too many":               {filled(25), "v=1", ""},
		"a state too long":       {nil, strings.Join(states, ","), "traceparent"},
		"a context of its own":   {map[string]string{"traceparent": "mine"}, "v=1", ""},
		"a state without parent": {map[string]string{"tracestate": "mine=1"}, "v=1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			before := maps.Clone(c.own)
			to := &kept{}
			task := queue.Task{ID: queue.TaskID(strings.ReplaceAll(name, " ", "-")), Kind: "k", Headers: c.own}
			ctx := remote(t, c.state)
			if _, err := tracing.NewProducer(r.q, to, r.cfg).Enqueue(ctx, task); err != nil {
				t.Fatal(err)
			}
			got := to.tasks[0].Headers
			var added []string
			for _, n := range []string{"traceparent", "tracestate"} {
				if _, own := before[n]; !own && got[n] != "" {
					added = append(added, n)
				}
			}
			if strings.Join(added, " ") != c.added || len(got) != len(before)+len(added) {
				t.Errorf("added %q to %d headers, want %q", added, len(before), c.added)
			}
			for n, v := range before {
				if got[n] != v {
					t.Errorf("header %q has become %q", n, got[n])
				}
			}
			if !maps.Equal(c.own, before) {
				t.Error("the caller's map was written to")
			}
			_, err := r.inner.Enqueue(t.Context(), to.tasks[0])
			if (err == nil) != (len(before) <= queue.MaxHeaders) {
				t.Errorf("the queue says %v", err)
			}
		})
	}
}

// TestZeroConfig makes no spans, not even with the global provider, and passes
// on the context that it finds.
func TestZeroConfig(t *testing.T) {
	spans, global := recording()
	before := otel.GetTracerProvider()
	otel.SetTracerProvider(global.TracerProvider)
	t.Cleanup(func() { otel.SetTracerProvider(before) })
	r := newRig(t)

	to := &kept{}
	if _, err := tracing.NewProducer(r.q, to, tracing.Config{}).EnqueueMany(remote(t, "v=1"), []queue.Task{{ID: "t", Kind: "k"}}); err != nil {
		t.Fatal(err)
	}
	task := to.tasks[0]
	if task.Headers["traceparent"] != traceParent || task.Headers["tracestate"] != "v=1" {
		t.Errorf("headers %v", task.Headers)
	}
	var inside trace.SpanContext
	h := tracing.Middleware(tracing.Config{})(consumer.HandlerFunc(func(ctx context.Context, _ consumer.Delivery) ([]byte, error) {
		inside = trace.SpanContextFromContext(ctx)
		return nil, nil
	}))
	_, _ = h.HandleTask(t.Context(), consumer.Delivery{Task: task})
	if got := "00-" + inside.TraceID().String() + "-" + inside.SpanID().String() + "-01"; got != traceParent {
		t.Errorf("the handler has the context %s", got)
	}
	if n := len(spans.GetSpans()); n != 0 {
		t.Errorf("%d spans of the global provider", n)
	}
	// Without a context there is nothing to pass on.
	_, _ = tracing.NewProducer(r.q, to, tracing.Config{}).Enqueue(t.Context(), queue.Task{ID: "u", Kind: "k"})
	if h := to.tasks[1].Headers; h != nil {
		t.Errorf("headers %v out of nothing", h)
	}
}

// TestBaggage: another propagator's headers travel too.
func TestBaggage(t *testing.T) {
	r := newRig(t)
	r.cfg.Propagator = propagation.NewCompositeTextMapPropagator(propagation.Baggage{}, propagation.TraceContext{})
	member, _ := baggage.NewMember("tenant", "acme")
	bag, _ := baggage.New(member)
	to := &kept{}
	task := queue.Task{ID: "t", Kind: "k", Headers: filled(22)}
	if _, err := tracing.NewProducer(r.q, to, r.cfg).Enqueue(baggage.ContextWithBaggage(remote(t, "v=1"), bag), task); err != nil {
		t.Fatal(err)
	}
	got := to.tasks[0].Headers
	if got["baggage"] != "tenant=acme" || got["traceparent"] == "" || len(got) != queue.MaxHeaders {
		t.Errorf("with room for two: %v", got)
	}
	task.Headers = filled(23)
	_, _ = tracing.NewProducer(r.q, to, r.cfg).Enqueue(baggage.ContextWithBaggage(remote(t, "v=1"), bag), task)
	if got := to.tasks[1].Headers; got["traceparent"] == "" || len(got) != queue.MaxHeaders {
		t.Errorf("with room for one: %v", got)
	}
	tenant := ""
	h := tracing.Middleware(r.cfg)(consumer.HandlerFunc(func(ctx context.Context, _ consumer.Delivery) ([]byte, error) {
		tenant = baggage.FromContext(ctx).Member("tenant").Value()
		return nil, nil
	}))
	_, _ = h.HandleTask(t.Context(), consumer.Delivery{Task: to.tasks[0]})
	if tenant != "acme" {
		t.Errorf("the handler has the tenant %q", tenant)
	}
}

// TestRunContext: a span that the worker was started in is no parent of the
// attempts.
func TestRunContext(t *testing.T) {
	spans, cfg := recording()
	ctx, started := cfg.TracerProvider.Tracer("main").Start(t.Context(), "start")
	_, _ = tracing.Middleware(cfg)(returns(nil)).HandleTask(ctx, delivery)
	started.End()
	if s := only(t, spans, "process q"); s.Parent.IsValid() || len(s.Links) != 0 || s.SpanContext.TraceID() == started.SpanContext().TraceID() {
		t.Errorf("parent %v, links %v", s.Parent, s.Links)
	}
}

// onlyA routes one kind.
type onlyA struct{ consumer.HandlerFunc }

func (r onlyA) Route(kind string) (consumer.Route, bool) {
	return consumer.Route{Handler: r.HandlerFunc, Timeout: time.Minute}, kind == "a"
}

// TestRouterStaysRouter: a worker would otherwise give it every kind.
func TestRouterStaysRouter(t *testing.T) {
	spans, cfg := recording()
	h := tracing.Middleware(cfg)(onlyA{returns(nil)})
	r, ok := h.(consumer.Router)
	if !ok {
		t.Fatalf("a router has become a %T", h)
	}
	if _, ok := r.Route("b"); ok {
		t.Error("it routes a kind that it does not have")
	}
	route, ok := r.Route("a")
	if !ok || route.Timeout != time.Minute {
		t.Fatalf("%+v, %v", route, ok)
	}
	_, _ = route.Handler.HandleTask(t.Context(), delivery)
	only(t, spans, "process q")
	_, _ = r.HandleTask(t.Context(), delivery)
	if n := len(spans.GetSpans()); n != 2 {
		t.Errorf("%d spans after two attempts", n)
	}
}

// TestMuxStaysMux: New reports what is wrong with its registrations.
func TestMuxStaysMux(t *testing.T) {
	r := newRig(t)
	var mux consumer.Mux
	consumer.HandleTask(&mux, "k", returns(nil))
	h := tracing.Middleware(r.cfg)(&mux)
	if h != consumer.Handler(&mux) {
		t.Fatalf("a mux has become a %T", h)
	}
	if _, err := h.HandleTask(t.Context(), consumer.Delivery{Task: queue.Task{Kind: "k"}, Lease: queue.Lease{Queue: "q"}}); err != nil {
		t.Error(err)
	}
	only(t, r.spans, "process q")
	consumer.HandleTask(&mux, "k", returns(nil))
	for what, bad := range map[string]consumer.Handler{"registered twice": &mux, "nil": (*consumer.Mux)(nil), "of your own": nil} {
		_, err := consumer.New(r.q, consumer.Config{Handler: tracing.Middleware(r.cfg)(bad)})
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("want %q, got %v", what, err)
		}
	}
}
