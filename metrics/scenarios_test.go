package metrics_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/metrics"
	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/queue"
)

// L1: a backlog that cannot be read is absent, not 0, and the success series
// says so; that of another queue is reported all the same. What waits and what
// is pending are apart, and a length is called neither.
func TestL1UnknownIsAbsent(t *testing.T) {
	srv := redistest.Start(t)
	known, err := queue.New(queue.Config{Name: "known", Client: redistest.Shared(t).Client(), Prefix: redistest.Prefix(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { known.Close() })
	away, err := queue.New(queue.Config{Name: "away", Client: srv.Client(func(o *redis.Options) { o.DialerRetries = 1 })})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { away.Close() })
	for _, q := range []*queue.Queue{known, away} {
		for _, r := range q.Enqueue(t.Context(), q.NewToken(), []queue.Task{{ID: "a", Kind: "k"}, {ID: "b", Kind: "k"}, {ID: "c", Kind: "k"}}) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		if es, err := queue.Read(t.Context(), queue.ReadRequest{Queues: []*queue.Queue{q}, Consumer: "w", Max: 3}); err != nil || len(es) != 3 {
			t.Fatal(es, err)
		}
	}
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(metrics.NewState(known, away))
	srv.Kill()
	got := values(t, reg)
	for name, want := range map[string]float64{
		"claimq_waiting_entries{queue=known}": 0, "claimq_pending_entries{queue=known}": 3,
		"claimq_collector_success{queue=known}": 1, "claimq_collector_success{queue=away}": 0,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v, there %v; want %v", name, v, ok, want)
		}
	}
	for name := range got {
		ours := strings.HasPrefix(name, "claimq_collector_") || strings.HasPrefix(name, "claimq_queue_lease_seconds")
		if strings.Contains(name, "queue=away") && !ours {
			t.Errorf("%s is reported, and nobody knows it", name)
		}
	}
}

// L3: task IDs, kinds, consumer names and error texts, a hundred thousand of
// each, do not become series.
func TestL3SeriesAreBounded(t *testing.T) {
	const many = 100_000
	reg := prometheus.NewPedanticRegistry()
	queues := offline(t, "a")
	o, p := metrics.New(reg, queues...), metrics.NewProducer(reg, queues...)
	before := len(values(t, reg))
	for i := range many {
		err := fmt.Errorf("task t-%d of worker w-%d failed: connection %d is gone", i, i, i)
		o.Ended(consumer.Ended{Queue: "a", Kind: fmt.Sprint("kind-", i), TaskID: queue.TaskID(fmt.Sprint("t-", i)), Outcome: queue.Retried, Reason: consumer.FailedError})
		o.LeaseLost(consumer.LeaseLost{Queue: "a", TaskID: queue.TaskID(fmt.Sprint("t-", i))})
		o.Refused(consumer.Refused{Queue: "a", TaskID: queue.TaskID(fmt.Sprint("t-", i))})
		o.ServerError(consumer.ServerError{Loop: "fetch", Err: errors.Join(err)})
		o.Delivered("a", consumer.SourceNew, 1)
		o.Swept(consumer.Swept{Queue: "a", Count: 1, Err: err})
		o.Started(consumer.Started{Queue: "a", Kind: fmt.Sprint("started-", i), TaskID: queue.TaskID(fmt.Sprint("t-", i))})
		p.Enqueued(producer.Enqueued{
			Queue: "a", Tasks: []queue.Task{{Kind: fmt.Sprint("sent-", i)}, {Kind: "k"}, {Kind: "k"}},
			Receipts: []queue.Receipt{{Added: true}, {Duplicate: true}, {Err: err}},
		})
	}
	o.Watch(func() consumer.Status {
		return consumer.Status{Consumer: "w-1-0123456789abcdef", Loops: []consumer.LoopStatus{{Name: "fetch", LastError: "t-1 is gone"}}}
	})
	got := values(t, reg)
	// Of a kind: five outcomes and two histograms, and what a producer adds and
	// does not add again.
	const forKind = 5 + 2 + 2
	if n := len(got) - before; n > metrics.MaxKinds*forKind+20 {
		t.Errorf("%d series more than before %d tasks", n, many)
	}
	for name := range got {
		for _, part := range []string{"t-", "w-", "gone", "failed:"} {
			if strings.Contains(name, "="+part) || strings.Contains(name, "gone") {
				t.Errorf("%s is a series", name)
			}
		}
	}
}
