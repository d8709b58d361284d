package e2e

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/internal/fleet"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/queue"
)

var bg = context.Background()

// lease is short, so that recoveries are; the shortest that a loaded machine
// of two cores keeps without losing any.
const lease = 2 * time.Second

// rig is a queue on a server, a receiver and the workers between them.
type rig struct {
	t   *testing.T
	rdb *redis.Client
	url string
	q   *queue.Queue
	p   *producer.Producer
	rec *fleet.Receiver

	mu      sync.Mutex
	workers []*fleet.Worker
}

func newRig(t *testing.T, cfg queue.Config) *rig {
	t.Helper()
	srv := redistest.Shared(t)
	r := &rig{t: t, rdb: srv.Client(), url: srv.URL(), rec: fleet.NewReceiver(t)}
	cfg.Name, cfg.Client, cfg.Prefix, cfg.Lease = "jobs", r.rdb, redistest.Prefix(t), lease
	var err error
	if r.q, err = queue.New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.q.Close() })
	if r.p, err = producer.New(r.q, producer.Config{}); err != nil {
		t.Fatal(err)
	}
	return r
}

// start runs `worker run`; env overrides the defaults of the rig.
func (r *rig) start(env ...string) *fleet.Worker {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	name := fmt.Sprintf("w%d", len(r.workers)+1)
	c := r.q.Config()
	w := fleet.Start(r.t, workerPath, name, append([]string{
		"REDIS_URL=" + r.url, "REDIS_KEY_PREFIX=" + c.Prefix, "QUEUES=" + c.Name, "QUEUE_LEASE=" + lease.String(),
		"QUEUE_PARTITIONS=" + strconv.Itoa(c.Partitions), "QUEUE_MAX_INTERRUPTIONS=" + strconv.Itoa(c.MaxInterruptions),
		"QUEUE_RETENTION=" + c.Retention.String(), "WORKER_CONCURRENCY=4", "WORKER_BLOCK=500ms", "WORKER_RETRY_BASE=100ms",
		"PUSH_URLS=*=" + r.rec.URL(name), "OPS_ADDR=off", "LOG_FORMAT=json",
	}, env...))
	r.workers = append(r.workers, w)
	return w
}

// says waits until the worker has logged a message.
func (r *rig) says(w *fleet.Worker, message string) {
	r.t.Helper()
	r.eventually(w.Name+" says "+message, func() bool { return w.Log.Says(message) })
}

func (r *rig) byName(name string) *fleet.Worker {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.workers, func(w *fleet.Worker) bool { return w.Name == name })
	return r.workers[i]
}

// terminate asks for a drain and gives the exit code.
func terminate(t *testing.T, w *fleet.Worker, within time.Duration) int {
	t.Helper()
	code, err := w.Terminate(within)
	if err != nil {
		t.Fatal(err)
	}
	return code
}

func (r *rig) enqueue(ids ...string) []queue.Receipt {
	r.t.Helper()
	tasks := make([]queue.Task, len(ids))
	for i, id := range ids {
		tasks[i] = queue.Task{ID: queue.TaskID(id), Kind: "job", Payload: []byte(`{"id":"` + id + `"}`), ContentType: "application/json"}
	}
	receipts, err := r.p.EnqueueMany(bg, tasks)
	if err != nil {
		r.t.Fatal(err)
	}
	return receipts
}

// eventually waits until ok, and fails after a generous time with what was
// expected.
func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	r.within(60*time.Second, what, ok)
}

func (r *rig) within(limit time.Duration, what string, ok func() bool) {
	r.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	over := time.NewTimer(limit)
	defer over.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-over.C:
			r.t.Fatalf("not within %v: %s; stats %+v", limit, what, r.stats())
		}
	}
}

func (r *rig) stats() queue.PartitionStats {
	s, err := r.q.Stats(bg)
	if err != nil {
		r.t.Fatal(err)
	}
	return s.PartitionStats
}

func (r *rig) place(id string) queue.Place {
	info, err := r.q.Inspect(bg, queue.TaskID(id))
	if err != nil && info.Place != queue.Unknown {
		r.t.Fatal(err)
	}
	return info.Place
}

// finished waits until nothing is left to do.
func (r *rig) finished() {
	r.t.Helper()
	r.eventually("everything finished", func() bool { return r.stats().Unfinished() == 0 })
}
