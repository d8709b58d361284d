package claimqtest

import (
	"cmp"
	"context"
	"fmt"
	"sync"
)

// Gateway is a fake of the other side of a call: a payment provider, a mail
// service. The zero value ignores idempotency keys.
type Gateway struct {
	Label string // its name; default "gateway"
	// HonoursKeys: a call with a key that was seen has no effect, and is
	// answered as the first was.
	HonoursKeys bool

	mu       sync.Mutex
	n        int
	receipts map[string]string // by key
	keyless  int               // calls without a key
}

// Name implements Effect.
func (g *Gateway) Name() string { return cmp.Or(g.Label, "gateway") }

// Reset implements Effect.
func (g *Gateway) Reset(context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n, g.receipts = 0, map[string]string{}
	return nil
}

// Count implements Effect.
func (g *Gateway) Count(context.Context) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.n, nil
}

// GatewayClient is how one worker sees a Gateway.
type GatewayClient struct {
	g *Gateway
	w *Worker
}

// For returns the client of one worker.
func (g *Gateway) For(w *Worker) *GatewayClient { return &GatewayClient{g, w} }

// Call has the effect and returns a receipt. key is the idempotency key, empty
// for none. After an error it may or may not be there.
func (c *GatewayClient) Call(ctx context.Context, key string) (receipt string, err error) {
	err = c.w.Do(ctx, "the call of "+c.g.Name(), func() error {
		receipt = c.g.call(key)
		return nil
	})
	if err != nil {
		return "", err
	}
	return receipt, nil
}

// Find tells whether a call with this key had its effect, for a dedupe.Check.
// A gateway that ignores keys knows them too, as a reference.
func (c *GatewayClient) Find(ctx context.Context, key string) (receipt string, found bool, err error) {
	err = c.w.Do(ctx, "the question to "+c.g.Name(), func() error {
		c.g.mu.Lock()
		defer c.g.mu.Unlock()
		receipt, found = c.g.receipts[key]
		return nil
	})
	if err != nil {
		return "", false, err
	}
	return receipt, found, nil
}

func (g *Gateway) call(key string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	known, ok := g.receipts[key]
	switch {
	case key == "":
		g.keyless++
	case ok && g.HonoursKeys:
		return known
	}
	g.n++
	receipt := fmt.Sprintf("%s-%d", g.Name(), g.n)
	if g.receipts == nil {
		g.receipts = map[string]string{}
	}
	if key != "" {
		g.receipts[key] = receipt
	}
	return receipt
}

func (g *Gateway) begin() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.keyless = 0
}

// advice says how to keep the effect from being there twice.
func (g *Gateway) advice() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.keyless > 0:
		return "it was called without a key: hand it the key that dedupe.Step gives to the call"
	case !g.HonoursKeys:
		return "it ignores keys: use dedupe.StepChecked, and ask it before a second call; a request that is still on its way is not found"
	default:
		return "it was called with different keys: hand it the key that dedupe.Step gives to the call, which is the same at every attempt"
	}
}
