package metrics_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/metrics"
	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/queue"
)

// want compares series with what they should be.
func want(t *testing.T, reg prometheus.Gatherer, series map[string]float64) {
	t.Helper()
	got := values(t, reg)
	for name, v := range series {
		if have, ok := got[name]; !ok || have != v {
			t.Errorf("%s is %v, there %v; want %v", name, have, ok, v)
		}
	}
}

// TestProducerIsCounted: each task of a call is counted once, by what became of
// it on a real server.
func TestProducerIsCounted(t *testing.T) {
	srv := redistest.Start(t)
	q, err := queue.New(queue.Config{Name: "a", Client: srv.Client(func(o *redis.Options) { o.MaxRetries = -1 }), MaxBacklog: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	reg := prometheus.NewPedanticRegistry()
	p, err := producer.New(q, producer.Config{Observer: metrics.NewProducer(reg, q), MaxRetries: -1, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	_, _ = p.EnqueueMany(ctx, []queue.Task{
		{ID: "1", Kind: "mail", Payload: make([]byte, 100)}, {ID: "2", Kind: "mail"}, {ID: "1", Kind: "mail"}, {ID: "bad", Kind: ""},
	})
	if _, err := p.Enqueue(ctx, queue.Task{ID: "3", Kind: "report"}); err != nil {
		t.Fatal(err)
	}
	_, _ = p.EnqueueMany(ctx, []queue.Task{{ID: "4", Kind: "report"}, {ID: "5", Kind: "report"}})
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	_, _ = p.Enqueue(canceled, queue.Task{ID: "6", Kind: "report"})
	srv.Kill()
	_, _ = p.Enqueue(ctx, queue.Task{ID: "7", Kind: "report"})
	want(t, reg, map[string]float64{
		"claimq_enqueued_total{kind=mail,queue=a}":                  2,
		"claimq_enqueued_total{kind=report,queue=a}":                1,
		"claimq_enqueue_duplicates_total{kind=mail,queue=a}":        1,
		"claimq_enqueue_duplicates_total{kind=report,queue=a}":      0,
		"claimq_enqueue_failures_total{queue=a,reason=invalid}":     1,
		"claimq_enqueue_failures_total{queue=a,reason=full}":        2,
		"claimq_enqueue_failures_total{queue=a,reason=canceled}":    1,
		"claimq_enqueue_failures_total{queue=a,reason=indefinite}":  0,
		"claimq_enqueue_failures_total{queue=a,reason=other}":       0,
		"claimq_enqueue_failures_total{queue=a,reason=unavailable}": 1,
	})
	if n := observations(t, reg, "claimq_enqueue_duration_seconds"); n != 5 {
		t.Errorf("%d calls timed, want 5", n)
	}
	if n := observations(t, reg, "claimq_enqueue_payload_bytes"); n != 3 {
		t.Errorf("%d payloads measured, want 3: of the accepted tasks", n)
	}
}

// A lost reply is a task of unknown fate, whatever the error says besides.
func TestProducerFailures(t *testing.T) {
	for _, c := range []struct {
		err    error
		reason string
	}{
		{fmt.Errorf("%w: %w", queue.ErrIndefinite, context.Canceled), "indefinite"},
		{fmt.Errorf("%w: %w", queue.ErrIndefinite, queue.ErrUnavailable), "indefinite"},
		{fmt.Errorf("%w: not sent: %w", queue.ErrUnavailable, context.DeadlineExceeded), "unavailable"},
		{fmt.Errorf("%w: not sent: %w", queue.ErrUnavailable, context.Canceled), "canceled"},
		{queue.ErrMismatch, "other"},
	} {
		reg := prometheus.NewPedanticRegistry()
		metrics.NewProducer(reg, offline(t, "a")...).Enqueued(producer.Enqueued{
			Queue: "a", Tasks: []queue.Task{{Kind: "k"}}, Receipts: []queue.Receipt{{Err: c.err}},
		})
		want(t, reg, map[string]float64{"claimq_enqueue_failures_total{queue=a,reason=" + c.reason + "}": 1})
	}
}

// observations is how many values a histogram has been told.
func observations(t *testing.T, g prometheus.Gatherer, name string) (n uint64) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				n += m.GetHistogram().GetSampleCount()
			}
		}
	}
	return n
}
