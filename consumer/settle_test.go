package consumer

import (
	"testing"
	"time"

	"github.com/claimq/claimq/queue"
)

// TestG1AloneOnceAllIsSettled: a task that runs alone starts when the server has
// taken the outcomes of those that ran before, or they would be interrupted too
// if it ends the worker.
func TestG1AloneOnceAllIsSettled(t *testing.T) {
	w, it := waiting(t, queue.Task{})
	w.hand.unready(it)
	w.hand.slots.busy = 0
	w.queueOutcome(it, verdict{})
	solo := newItem(w.sources[0], &queue.Delivery{Lease: queue.Lease{
		TaskID: "solo", Interruptions: soloInterruptions, Grant: queue.Grant{Length: time.Second},
	}}, SourceReclaimed)
	w.hand.add(solo)
	w.hand.held = []*item{solo}
	w.hand.slots.held = 1
	now := time.Now()
	if batch, _ := w.pick(now); len(batch) != 0 {
		t.Error("it starts beside an outcome that the server has not taken")
	}
	w.hand.out = nil
	if batch, _ := w.pick(now); len(batch) != 1 || w.hand.solo != solo {
		t.Errorf("%d tasks start when all is settled, want it alone", len(batch))
	}
}
