package queue_test

import (
	"errors"
	"testing"

	"github.com/claimq/claimq/queue"
)

// TestReadNamedPartitions: only those are read, and what is asked for is
// divided among them.
func TestReadNamedPartitions(t *testing.T) {
	r := newRig(t, func(c *queue.Config) { c.Partitions = 4 })
	r.add(tasksNamed(numbered("t", 400)...)...) // about 100 for each
	read := func(n int, partitions ...int) map[int]int {
		t.Helper()
		es, err := queue.Read(bg, queue.ReadRequest{Queues: []*queue.Queue{r.q}, Partitions: partitions, Consumer: "w", Max: n})
		if err != nil {
			t.Fatal(err)
		}
		got := map[int]int{}
		for _, e := range es {
			got[e.Partition]++
		}
		return got
	}
	if got := read(20, 2); len(got) != 1 || got[2] != 20 {
		t.Errorf("20 of partition 2 are %v", got)
	}
	if got := read(20, 3, 1); len(got) != 2 || got[1] != 10 || got[3] != 10 {
		t.Errorf("20 of partitions 3 and 1 are %v", got)
	}
	if got := read(20); len(got) != 4 || got[0] != 5 {
		t.Errorf("20 of all partitions are %v", got)
	}
	other := newRig(t)
	for _, bad := range []queue.ReadRequest{
		{Queues: []*queue.Queue{r.q}, Partitions: []int{4}},
		{Queues: []*queue.Queue{r.q}, Partitions: []int{-1}},
		{Queues: []*queue.Queue{r.q, other.q}, Partitions: []int{0}},
	} {
		bad.Consumer, bad.Max = "w", 1
		if _, err := queue.Read(bg, bad); !errors.Is(err, queue.ErrInvalidConfig) {
			t.Errorf("partitions %v of %d queues: %v", bad.Partitions, len(bad.Queues), err)
		}
	}
}
