package claimqtest_test

import (
	"context"
	"testing"

	"github.com/claimq/claimq/claimqtest"
	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/dedupe"
	"github.com/claimq/claimq/queue"
)

const kind = "invoice.send"

var task = queue.Task{ID: "invoice-4821-send", Kind: kind}

// handle makes a mux of one handler.
func handle(h func(ctx context.Context, l queue.Lease) error) consumer.Handler {
	var mux consumer.Mux
	consumer.Handle(&mux, kind, func(ctx context.Context, l queue.Lease, _ string) error { return h(ctx, l) })
	return &mux
}

// charge is a call with the key of its step, if it has one.
func charge(g *claimqtest.GatewayClient) dedupe.Call[string] {
	return func(ctx context.Context, key dedupe.Key) (string, error) { return g.Call(ctx, key.String()) }
}

// TestRightWithTheRedisLedger: a recorded step with one key, at a gateway that
// remembers it.
func TestRightWithTheRedisLedger(t *testing.T) {
	charges := &claimqtest.Gateway{Label: "charge", HonoursKeys: true}
	claimqtest.Run(t, claimqtest.Plan{
		Task: task, Effects: []claimqtest.Effect{charges}, RedisForgets: true,
		Handler: func(w *claimqtest.Worker) consumer.Handler {
			return handle(func(ctx context.Context, l queue.Lease) error {
				_, err := dedupe.Step(ctx, w.Ledger(), l, "charge", charge(charges.For(w)))
				return err
			})
		},
	})
}
