package metrics_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/metrics"
	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/queue"
)

// TestEventsAllocateNothing: what is counted for each task costs lookups and
// atomic additions, for kinds with a label of their own and for the others.
func TestEventsAllocateNothing(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	queues := offline(t, "a", "b")
	o, p := metrics.New(reg, queues...), metrics.NewProducer(reg, queues...)
	for i := range metrics.MaxKinds {
		o.Kinds("kind-" + string(rune('A'+i)))
		p.Kinds("kind-" + string(rune('A'+i)))
	}
	tasks := []queue.Task{{Kind: "kind-A", Payload: make([]byte, 100)}, {Kind: "unheard-of"}}
	receipts := []queue.Receipt{{Added: true}, {Duplicate: true}}
	unsampled := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	for _, kind := range []string{"kind-A", "unheard-of"} {
		for name, event := range map[string]func(){
			"delivered": func() { o.Delivered("b", consumer.SourceNew, 3) },
			"started": func() {
				o.Started(consumer.Started{Queue: "b", Kind: kind, Wait: 3 * time.Second, TraceParent: unsampled})
			},
			"completed": func() {
				o.Ended(consumer.Ended{
					Queue: "b", Kind: kind, Outcome: queue.Completed, Ran: true, Attempt: 1, Lease: 15 * time.Second,
					Duration: 20 * time.Millisecond, SinceEnqueue: 700 * time.Second, TraceParent: unsampled,
				})
			},
			"dead": func() {
				o.Ended(consumer.Ended{
					Queue: "b", Kind: kind, Outcome: queue.DeadLettered, DeadReason: queue.DeadFailures, Reason: consumer.FailedError,
					Ran: true, Attempt: 12, Lease: 15 * time.Second, Duration: 90 * time.Second,
				})
			},
			"renewed":    func() { o.Renewed(consumer.Renewed{Queue: "b", Grants: 2, Failed: 1}) },
			"lost":       func() { o.LeaseLost(consumer.LeaseLost{Queue: "b", Kind: kind, How: consumer.LossExpired}) },
			"duplicates": func() { o.Duplicates("b", 1) },
			"enqueued": func() {
				p.Enqueued(producer.Enqueued{Queue: "b", Tasks: tasks, Receipts: receipts, Duration: time.Millisecond})
			},
		} {
			event() // the first may make what the others use
			if n := testing.AllocsPerRun(1000, event); n != 0 {
				t.Errorf("%s, kind %s: %v allocations", name, kind, n)
			}
		}
	}
}
