package metrics_test

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/claimq/claimq/dedupe"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/metrics"
	"github.com/claimq/claimq/queue"
)

// TestStepsAreCounted: what became of each step, over a real ledger.
func TestStepsAreCounted(t *testing.T) {
	ctx := t.Context()
	q, err := queue.New(queue.Config{Name: "a", Client: redistest.Shared(t).Client(), Prefix: redistest.Prefix(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	for _, r := range q.Enqueue(ctx, q.NewToken(), []queue.Task{{ID: "t", Kind: "k"}}) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	entries, err := queue.Read(ctx, queue.ReadRequest{Queues: []*queue.Queue{q}, Consumer: "w", Max: 1})
	if err != nil {
		t.Fatal(err)
	}
	batch, err := q.Begin(ctx, queue.BeginRequest{Token: q.NewToken(), Entries: entries, Start: 1})
	if err != nil || len(batch.Deliveries) != 1 {
		t.Fatal(batch, err)
	}
	lease := batch.Deliveries[0].Lease
	reg := prometheus.NewPedanticRegistry()
	ledger := metrics.New(reg, q).Ledger(dedupe.NewRedisLedger(q))
	step := func(name string, result string, err error) error {
		_, err = dedupe.Step(ctx, ledger, lease, name, func(context.Context, dedupe.Key) (string, error) { return result, err })
		return err
	}
	down := errors.New("down")
	if err := step("pay", "", down); !errors.Is(err, down) { // first
		t.Fatal(err)
	}
	for range 2 { // again and recorded, then replayed
		if err := step("pay", "receipt", nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := step("mail", "", dedupe.NotSent(down)); !errors.Is(err, down) { // first
		t.Fatal(err)
	}
	if err := step("mail", "sent", nil); err != nil { // first once more: that call did not go out; recorded
		t.Fatal(err)
	}
	if _, err := ledger.Record(ctx, lease, "pay", queue.StepDone, []byte("other")); !errors.Is(err, queue.ErrStepConflict) {
		t.Fatal(err)
	}
	late := lease
	late.Fence--
	if _, err := ledger.Intend(ctx, late, "third", dedupe.KeyFor("a", "t", "third"), ledger.NewCall()); !errors.Is(err, queue.ErrLeaseLost) {
		t.Fatal(err)
	}
	want(t, reg, map[string]float64{
		"claimq_steps_total{outcome=first,queue=a}":    3,
		"claimq_steps_total{outcome=again,queue=a}":    1,
		"claimq_steps_total{outcome=replayed,queue=a}": 1,
		"claimq_steps_total{outcome=recorded,queue=a}": 2,
		"claimq_steps_total{outcome=conflict,queue=a}": 1,
		"claimq_steps_total{outcome=failed,queue=a}":   1,
	})
}
