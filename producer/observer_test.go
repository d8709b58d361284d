package producer_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/queue"
)

// observer keeps what it is told.
type observer []producer.Enqueued

func (o *observer) Enqueued(e producer.Enqueued) { *o = append(*o, e) }

// TestObserverIsToldOfCalls: once for each call, however many batches and
// repeats it took, with each task's ID and last answer, and the time of all.
func TestObserverIsToldOfCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen observer
		answers := &recorder{reply: func(send int, task queue.Task) error {
			if task.Kind == "bad" {
				return queue.ErrInvalidTask
			}
			if send == 0 {
				return fmt.Errorf("%w: lost", queue.ErrIndefinite)
			}
			return nil
		}}
		p := unconnected(t, producer.Config{Observer: &seen, Batch: 2}, answers)
		many := append(tasks("a", "b", "c"), queue.Task{Kind: "bad"})
		began := time.Now()
		receipts, err := p.EnqueueMany(t.Context(), many)
		took := time.Since(began)
		if err == nil || len(seen) != 1 {
			t.Fatalf("%v; %d events", err, len(seen))
		}
		e := seen[0]
		if e.Queue != "q" || e.Duration != took || took == 0 || len(e.Tasks) != 4 || len(e.Receipts) != 4 {
			t.Errorf("%+v, took %v", e, took)
		}
		for i, r := range receipts {
			if e.Receipts[i] != r || e.Tasks[i].ID != r.ID || r.ID == "" || e.Tasks[i].Kind != many[i].Kind {
				t.Errorf("task %d: %+v, %+v; receipt %+v", i, e.Tasks[i], e.Receipts[i], r)
			}
		}
		if _, err := p.Enqueue(t.Context(), queue.Task{ID: "d", Kind: "k"}); err != nil || len(seen) != 2 || seen[1].Tasks[0].ID != "d" || !seen[1].Receipts[0].Added {
			t.Errorf("%v; %+v", err, seen)
		}
	})
}
