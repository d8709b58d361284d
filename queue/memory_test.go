package queue_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/queue"
)

// TestFinishedIDsAreSmall remembers finished IDs, short and long, for less than
// a hundred bytes each.
func TestFinishedIDsAreSmall(t *testing.T) {
	const n = 20000
	for _, length := range []int{36, 200} {
		t.Run(fmt.Sprint(length, " bytes"), func(t *testing.T) {
			r := newRig(t)
			ids := make([]string, n)
			for i := range ids {
				ids[i] = fmt.Sprintf("%0*d", length, i)
			}
			r.add(tasksNamed(ids...)...)
			for left := n; left > 0; {
				ds := r.take("w", min(left, queue.MaxBatch))
				left -= len(ds)
				r.must(queue.Completed, r.q.Complete(bg, settlements(ds, func(s *queue.Settlement) { s.EndsGrant = true })))
			}
			bytes, marks := int64(0), int64(0)
			for s := 1; s <= 3; s++ {
				key := r.key(0, fmt.Sprint("done", s))
				bytes += r.usage(key)
				marks += max(0, r.c.HLen(bg, key).Val()-1)
			}
			if marks != n {
				t.Fatalf("%d marks for %d tasks", marks, n)
			}
			each := float64(bytes) / n
			t.Logf("%.1f bytes for each finished ID", each)
			if each >= 100 {
				t.Errorf("%.1f bytes for each finished ID, want less than 100", each)
			}
			// Nothing else stays of them.
			for _, what := range []string{"stream", "tasks", "leases", "grants", "counts", "steps", "kept1", "kept2", "kept3"} {
				if used := r.usage(r.key(0, what)); used > 8192 {
					t.Errorf("%s uses %d bytes", what, used)
				}
			}
		})
	}
}

// TestWaitingTaskMemory compares waiting tasks with plain stream entries of the
// same fields.
func TestWaitingTaskMemory(t *testing.T) {
	const n = 20000
	r := newRig(t)
	payload := strings.Repeat("x", 256)
	tasks := make([]queue.Task, n)
	plain := r.prefix + ":plain"
	pipe := r.c.Pipeline()
	for i := range tasks {
		id := fmt.Sprintf("01890a5d-ac96-774b-bcce-%012d", i)
		tasks[i] = queue.Task{ID: queue.TaskID(id), Kind: "invoice.send", Payload: []byte(payload)}
		pipe.XAdd(bg, xadd(plain, "id", id, "kind", "invoice.send", "payload", payload))
	}
	if _, err := pipe.Exec(bg); err != nil {
		t.Fatal(err)
	}
	r.add(tasks...)
	floor := float64(r.usage(plain)) / n
	ours := float64(r.usage(r.key(0, "stream"))+r.usage(r.key(0, "tasks"))) / n
	t.Logf("waiting task %.0f bytes (its record %.0f), plain entry %.0f bytes: %.2f times",
		ours, float64(r.usage(r.key(0, "tasks")))/n, floor, ours/floor)
	// A plain entry of 256 bytes costs about 330: a record may add its ID and
	// what a hash needs, no copy of the task.
	if ours > 2*floor {
		t.Errorf("a waiting task costs %.2f times a plain entry", ours/floor)
	}
	r.c.Del(bg, plain)
}

// usage is what a key takes, counted whole; 0 when it does not exist.
func (r *rig) usage(key string) int64 {
	r.t.Helper()
	n, err := r.c.MemoryUsage(bg, key, 0).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		r.t.Fatal(err)
	}
	return n
}
