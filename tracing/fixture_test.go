package tracing_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/queue"
	"github.com/claimq/claimq/tracing"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// patience is how long a test waits for something that should have happened
// long before.
const patience = 20 * time.Second

// rig is a queue of the test's own and the spans that were ended.
type rig struct {
	t      *testing.T
	client *redis.Client
	q      *queue.Queue
	inner  *producer.Producer
	spans  *tracetest.InMemoryExporter
	cfg    tracing.Config
}

func newRig(t *testing.T, edit ...func(*queue.Config)) *rig {
	t.Helper()
	r := &rig{t: t, client: redistest.Shared(t).Client()}
	qc := queue.Config{Name: "invoices", Prefix: redistest.Prefix(t), Client: r.client}
	for _, f := range edit {
		f(&qc)
	}
	var err error
	if r.q, err = queue.New(qc); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.q.Close() })
	if err := r.q.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r.inner, err = producer.New(r.q, producer.Config{MaxRetries: -1}); err != nil {
		t.Fatal(err)
	}
	r.spans, r.cfg = recording()
	return r
}

// recording returns a Config whose spans the exporter keeps.
func recording() (*tracetest.InMemoryExporter, tracing.Config) {
	spans := tracetest.NewInMemoryExporter()
	return spans, tracing.Config{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))}
}

func (r *rig) producer() *tracing.Producer { return tracing.NewProducer(r.q, r.inner, r.cfg) }

// work runs a traced worker until n attempts have ended, and until it has
// stopped.
func (r *rig) work(n int, h consumer.HandlerFunc) {
	r.t.Helper()
	ended := make(chan struct{}, n)
	var mux consumer.Mux
	mux.Use(func(next consumer.Handler) consumer.Handler {
		return consumer.HandlerFunc(func(ctx context.Context, d consumer.Delivery) ([]byte, error) {
			defer func() { ended <- struct{}{} }()
			return next.HandleTask(ctx, d)
		})
	})
	mux.Use(tracing.Middleware(r.cfg))
	consumer.Handle(&mux, "typed", func(context.Context, queue.Lease, struct{ Number int }) error { return nil })
	mux.Default(h)
	w, err := consumer.New(r.q, consumer.Config{
		Handler: &mux, Block: 50 * time.Millisecond, HousekeepingEvery: 50 * time.Millisecond,
		RetryBase: time.Millisecond, RetryMax: time.Millisecond,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	for range n {
		select {
		case <-ended:
		case <-ctx.Done():
			r.t.Error("not in time: an attempt")
		}
	}
	cancel()
	if err := <-done; err != nil {
		r.t.Error(err)
	}
}

// named returns the ended spans of this name, in the order of their ends.
func named(spans *tracetest.InMemoryExporter, name string) tracetest.SpanStubs {
	return slices.DeleteFunc(spans.GetSpans(), func(s tracetest.SpanStub) bool { return s.Name != name })
}

// only returns the one span of this name.
func only(t *testing.T, spans *tracetest.InMemoryExporter, name string) tracetest.SpanStub {
	t.Helper()
	found := named(spans, name)
	if len(found) != 1 {
		t.Fatalf("%d spans %q of %d, want one", len(found), name, len(spans.GetSpans()))
	}
	return found[0]
}

// attr is the value of an attribute as text; "" where there is none.
func attr(set []attribute.KeyValue, key string) string {
	for _, kv := range set {
		if string(kv.Key) == key {
			return kv.Value.String()
		}
	}
	return ""
}

// has checks attributes, given as "key=value". A value of "" is one that is
// not there.
func has(t *testing.T, s tracetest.SpanStub, want ...string) {
	t.Helper()
	for _, w := range want {
		key, value, _ := strings.Cut(w, "=")
		if got := attr(s.Attributes, key); got != value {
			t.Errorf("span %q: %s is %q, want %q", s.Name, key, got, value)
		}
	}
}

func status(t *testing.T, s tracetest.SpanStub, code codes.Code, text string) {
	t.Helper()
	if s.Status.Code != code || !strings.Contains(s.Status.Description, text) {
		t.Errorf("span %q: status %v %q, want %v with %q", s.Name, s.Status.Code, s.Status.Description, code, text)
	}
}

var errPlain = errors.New("connection reset")
