package claimqtest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/claimq/claimq/claimqtest"
	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/dedupe"
	"github.com/claimq/claimq/queue"
)

// PSP is the payment provider as the handler sees it.
type PSP interface {
	Charge(ctx context.Context, cents int, key string) (receipt string, err error)
}

type Invoice struct{ Number, Cents int }

type sender struct {
	ledger dedupe.Ledger
	psp    PSP
}

// sendWithoutKey is wrong: the provider cannot tell a second call from a second
// charge.
func (s sender) sendWithoutKey(ctx context.Context, l queue.Lease, in Invoice) error {
	_, err := dedupe.Step(ctx, s.ledger, l, "charge", func(ctx context.Context, _ dedupe.Key) (string, error) {
		return s.psp.Charge(ctx, in.Cents, "")
	})
	return err
}

// send is right.
func (s sender) send(ctx context.Context, l queue.Lease, in Invoice) error {
	_, err := dedupe.Step(ctx, s.ledger, l, "charge", func(ctx context.Context, key dedupe.Key) (string, error) {
		return s.psp.Charge(ctx, in.Cents, key.String())
	})
	return err
}

// fakePSP is a PSP for one worker.
type fakePSP struct{ *claimqtest.GatewayClient }

func (f fakePSP) Charge(ctx context.Context, _ int, key string) (string, error) {
	return f.Call(ctx, key)
}

// plan runs a handler and counts charges.
func plan(send func(sender, context.Context, queue.Lease, Invoice) error) claimqtest.Plan {
	charges := &claimqtest.Gateway{Label: "charge", HonoursKeys: true}
	return claimqtest.Plan{
		Task:    queue.Task{ID: "invoice-4821-send", Kind: "invoice.send", Payload: []byte(`{"Number":4821,"Cents":1999}`)},
		Effects: []claimqtest.Effect{charges},
		Handler: func(w *claimqtest.Worker) consumer.Handler {
			s := sender{ledger: w.Ledger(), psp: fakePSP{charges.For(w)}}
			var mux consumer.Mux
			consumer.Handle(&mux, "invoice.send", func(ctx context.Context, l queue.Lease, in Invoice) error {
				return send(s, ctx, l, in)
			})
			return &mux
		},
	}
}

func TestSend(t *testing.T) {
	claimqtest.Run(t, plan(sender.send))
}

func ExampleCheck() {
	for _, send := range []func(sender, context.Context, queue.Lease, Invoice) error{sender.sendWithoutKey, sender.send} {
		report, err := claimqtest.Check(plan(send))
		if err != nil {
			fmt.Println(err)
		}
		fmt.Println(report)
	}
	// Output:
	// task invoice-4821-send: 7 points, 43 runs, 7 of them wrong; without a fault: charge 1
	//
	// FAULT                  EFFECT  WANT  GOT  RUNS  WHERE
	// paused past its lease  charge  1     2    2     between the intent of step charge and the call of charge
	// two at once            charge  1     2    3     between the intent of step charge and the call of charge
	// reply lost             charge  1     2    2     at the call of charge
	// killed                 charge  1     2    2     between the call of charge and the result of step charge
	// paused past its lease  charge  1     2    2     between the call of charge and the result of step charge
	// two at once            charge  1     2    2     between the call of charge and the result of step charge
	// server away            charge  1     2    2     at the result of step charge
	//
	// charge is doubled: it was called without a key: hand it the key that dedupe.Step gives to the call
	//
	// task invoice-4821-send: 7 points, 43 runs, 0 of them wrong; without a fault: charge 1
}
