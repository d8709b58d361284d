package leasetest

import (
	"math"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/claimq/claimq/lease"
	"github.com/claimq/claimq/queue"
)

// TestModel: histories that must not be, and their like that may.
func TestModel(t *testing.T) {
	strict := Promises{Fenced: true, Expires: true, ErrHeldProves: true}
	type step struct {
		do    string
		token lease.Token
		what  string
		fence queue.Fence
	}
	for _, tt := range []struct {
		name  string
		p     Promises
		ok    bool
		steps []step
	}{
		{"one after the other", strict, true, []step{{"acquire", "A", "granted", 1}, {"acquire", "B", "held", 0}, {"extend", "A", "ok", 0}, {"release", "A", "ok", 0}, {"acquire", "B", "granted", 2}}},
		{"taken over", strict, true, []step{{"acquire", "A", "granted", 1}, {"lapse", "A", "", 0}, {"acquire", "B", "granted", 2}, {"extend", "A", "lost", 0}, {"release", "A", "lost", 0}}},
		{"kept though not trusted", strict, true, []step{{"acquire", "A", "granted", 1}, {"lapse", "A", "", 0}, {"extend", "A", "ok", 0}}},
		{"ended by order", strict, true, []step{{"acquire", "A", "granted", 1}, {"end", "", "", 0}, {"release", "A", "lost", 0}}},
		{"refused without a holder", Promises{}, true, []step{{"acquire", "A", "held", 0}}},

		{"two holders", strict, false, []step{{"acquire", "A", "granted", 1}, {"acquire", "B", "granted", 2}}},
		{"taken over while trusted", strict, false, []step{{"acquire", "A", "granted", 1}, {"acquire", "B", "granted", 2}, {"lapse", "A", "", 0}}},
		{"the fence stays", strict, false, []step{{"acquire", "A", "granted", 2}, {"release", "A", "ok", 0}, {"acquire", "B", "granted", 2}}},
		{"revived", strict, false, []step{{"acquire", "A", "granted", 1}, {"end", "", "", 0}, {"extend", "A", "ok", 0}}},
		{"released by a replaced holder", strict, false, []step{{"acquire", "A", "granted", 1}, {"lapse", "A", "", 0}, {"acquire", "B", "granted", 2}, {"release", "A", "ok", 0}}},
		{"the holder is refused", strict, false, []step{{"acquire", "A", "granted", 1}, {"release", "A", "lost", 0}}},
		{"refused without a holder, which is promised not to be", strict, false, []step{{"acquire", "A", "held", 0}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var ops []porcupine.Operation
			for i, each := range tt.steps {
				o := porcupine.Operation{
					Input:  op{do: each.do, name: "n", token: each.token},
					Output: answer{what: each.what, fence: each.fence},
					Call:   int64(2 * i), Return: int64(2*i + 1),
				}
				if each.do == "lapse" {
					o.Return = math.MaxInt64
				}
				ops = append(ops, o)
			}
			if got := porcupine.CheckOperations(model(tt.p), ops); got != tt.ok {
				t.Errorf("accepted: %v, want %v", got, tt.ok)
			}
		})
	}
}
