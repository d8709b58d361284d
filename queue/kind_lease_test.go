package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/queue"
)

// Kinds with lease lengths of their own: one Begin gives each length a grant of
// its own, with its own token and end, and renewals keep the lengths.
func TestLeaseLengthByKind(t *testing.T) {
	q := newQueue(t, queue.Config{
		Name: "q", Client: redistest.Shared(t).Client(), Prefix: redistest.Prefix(t), Partitions: 2,
		Lease: 10 * time.Second, KindLeases: map[string]time.Duration{"long": time.Minute, "short": 5 * time.Second, "same": 10 * time.Second},
	})
	var tasks []queue.Task
	for i := range 40 {
		kind := []string{"long", "short", "same", "other"}[i%4]
		tasks = append(tasks, queue.Task{ID: queue.TaskID(fmt.Sprint("t", i)), Kind: kind})
	}
	for _, r := range q.Enqueue(bg, q.NewToken(), tasks) {
		if !r.Added {
			t.Fatalf("%+v", r)
		}
	}
	var entries []queue.Entry
	for len(entries) < len(tasks) {
		es, err := queue.Read(bg, queue.ReadRequest{Queues: []*queue.Queue{q}, Consumer: "c", Max: 100})
		if err != nil || len(es) == 0 {
			t.Fatal(es, err)
		}
		entries = append(entries, es...)
	}
	b, err := q.Begin(bg, queue.BeginRequest{Token: q.NewToken(), Entries: entries, Start: len(entries)})
	if err != nil || len(b.Deliveries) != len(tasks) {
		t.Fatalf("%d deliveries, %v", len(b.Deliveries), err)
	}
	want := map[string]time.Duration{"long": time.Minute, "short": 5 * time.Second, "same": 10 * time.Second, "other": 10 * time.Second}
	ends := func(when string) {
		t.Helper()
		now := redistest.Shared(t).Client().Time(bg).Val()
		for _, d := range b.Deliveries {
			info, err := q.Inspect(bg, d.Task.ID)
			if err != nil {
				t.Fatal(err)
			}
			left := info.LeaseEnds.Sub(now)
			if w := want[d.Task.Kind]; d.Lease.Grant.Length != w || left > w || left < w-4*time.Second {
				t.Errorf("%s: %s of kind %s: grant of %v, %v left, want %v", when, d.Task.ID, d.Task.Kind, d.Lease.Grant.Length, left, w)
			}
		}
	}
	ends("begun")
	grants := map[queue.Grant]bool{}
	var list []queue.Grant
	for _, d := range b.Deliveries {
		if g := d.Lease.Grant; !grants[g] {
			grants[g] = true
			list = append(list, g)
		}
	}
	if len(list) != 2*3 {
		t.Errorf("%d grants, want one for each length and partition", len(list))
	}
	for _, r := range q.Renew(bg, list) {
		if r.Err != nil {
			t.Errorf("renew: %+v", r)
		}
	}
	ends("renewed")
}
