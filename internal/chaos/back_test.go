package chaos

import (
	"testing"
	"time"

	"github.com/claimq/claimq/queue"
)

// A worker has read a task and dies before it begins it, and then the server's
// clock goes back by an hour: the task was delivered, and its worker last heard
// of, at moments that are still to come. It is not to wait for them.
func TestReadBeforeTheClockGoesBack(t *testing.T) {
	r := newRig(t)
	for _, s := range r.slots {
		s.worker.Kill()
	}
	if receipts := r.q.Enqueue(bg, r.q.NewToken(), []queue.Task{{ID: queue.TaskID(id(0)), Kind: "job"}}); receipts[0].Err != nil {
		t.Fatal(receipts[0].Err)
	}
	const dead = "read-and-died"
	for _, turn := range r.q.Turn(bg, queue.TurnRequest{Consumer: dead}) {
		if turn.Err != nil {
			t.Fatal(turn.Err)
		}
	}
	entries, err := queue.Read(bg, queue.ReadRequest{Queues: []*queue.Queue{r.q}, Consumer: dead, Max: 4})
	if err != nil || len(entries) != 1 {
		t.Fatalf("read %d entries, %v", len(entries), err)
	}
	r.setClock(-oneHour)
	began := time.Now()
	r.start(r.slots[0])
	if !r.within(4*bound, func() bool { return r.rec.Count() > 0 }) {
		t.Fatalf("not taken over within %v", 4*bound)
	}
	if took := time.Since(began); took > bound {
		t.Errorf("taken over after %v, want at most %v", took, bound)
	}
}
