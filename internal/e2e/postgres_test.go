package e2e

import (
	"os/exec"
	"testing"

	"github.com/claimq/claimq/internal/pgtest"
	"github.com/claimq/claimq/queue"
)

// TestStepsOutliveRedis: a worker that keeps its steps in PostgreSQL sends no
// task a second time, though Redis has forgotten everything.
func TestStepsOutliveRedis(t *testing.T) {
	r := newRig(t, queue.Config{})
	database := "POSTGRES_URL=" + pgtest.Shared(t).DSN(t)
	migrate := exec.Command(workerPath, "migrate")
	migrate.Env = []string{database}
	if out, err := migrate.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r.start(database)
	ids := []string{"a", "b", "c"}
	r.enqueue(ids...)
	r.finished()
	keys, err := r.rdb.Keys(bg, r.q.Config().Prefix+":*").Result()
	if err != nil || len(keys) == 0 {
		t.Fatalf("%q, %v", keys, err)
	}
	if err := r.rdb.Del(bg, keys...).Err(); err != nil {
		t.Fatal(err)
	}
	for _, receipt := range r.enqueue(append(ids, "d")...) {
		if receipt.Err != nil || !receipt.Added {
			t.Errorf("after Redis forgot: %+v", receipt)
		}
	}
	r.eventually("the new task was sent", func() bool { return len(r.rec.Of("d")) == 1 })
	r.finished()
	for _, id := range ids {
		if n := len(r.rec.Of(id)); n != 1 {
			t.Errorf("%s was sent %d times", id, n)
		}
		if info, err := r.q.Inspect(bg, queue.TaskID(id)); err != nil || string(info.Result) == "" {
			t.Errorf("%s: result %q, %v: the one on record should be kept anew", id, info.Result, err)
		}
	}
}
