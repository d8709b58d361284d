package queue_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/queue"
)

// rig is a queue on a real server and what a test needs to look behind it.
type rig struct {
	t      *testing.T
	q      *queue.Queue
	c      *redis.Client
	prefix string
}

// newRig makes a queue on the shared server.
func newRig(t *testing.T, edit ...func(*queue.Config)) *rig {
	t.Helper()
	return rigOn(t, redistest.Shared(t).Client(), edit...)
}

func rigOn(t *testing.T, c *redis.Client, edit ...func(*queue.Config)) *rig {
	t.Helper()
	cfg := queue.Config{Name: "q", Client: c, Prefix: redistest.Prefix(t)}
	for _, f := range edit {
		f(&cfg)
	}
	return &rig{t: t, q: newQueue(t, cfg), c: c, prefix: cfg.Prefix}
}

func (r *rig) key(p int, what string) string {
	return fmt.Sprintf("%s:{q.%d}:%s", r.prefix, p, what)
}

func tasksNamed(ids ...string) []queue.Task {
	var tasks []queue.Task
	for _, id := range ids {
		tasks = append(tasks, queue.Task{ID: queue.TaskID(id), Kind: "k", Payload: []byte("p")})
	}
	return tasks
}

// numbered gives n IDs.
func numbered(prefix string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = prefix + strconv.Itoa(i)
	}
	return ids
}

// add enqueues tasks that must be added.
func (r *rig) add(tasks ...queue.Task) {
	r.t.Helper()
	for _, got := range r.q.Enqueue(bg, r.q.NewToken(), tasks) {
		if !got.Added || got.Err != nil {
			r.t.Fatalf("enqueue: %+v", got)
		}
	}
}

func (r *rig) read(worker string, n int) []queue.Entry {
	r.t.Helper()
	es, err := queue.Read(bg, queue.ReadRequest{Queues: []*queue.Queue{r.q}, Consumer: worker, Max: n})
	if err != nil {
		r.t.Fatalf("read: %v", err)
	}
	return es
}

func (r *rig) begin(es []queue.Entry, start int) queue.Batch {
	r.t.Helper()
	b, err := r.q.Begin(bg, queue.BeginRequest{Token: r.q.NewToken(), Entries: es, Start: start})
	if err != nil {
		r.t.Fatalf("begin: %v", err)
	}
	return b
}

// take reads and starts tasks; want of them must come.
func (r *rig) take(worker string, want int) []queue.Delivery {
	r.t.Helper()
	var ds []queue.Delivery
	for turn, empty := 0, 0; len(ds) < want; turn++ {
		es, err := queue.Read(bg, queue.ReadRequest{Queues: []*queue.Queue{r.q}, Consumer: worker, Max: want - len(ds), Turn: turn})
		if err != nil {
			r.t.Fatalf("read: %v", err)
		}
		if len(es) > 0 {
			empty = 0
		} else if empty++; empty > r.q.Partitions() {
			r.t.Fatalf("%d of %d tasks came", len(ds), want)
		}
		ds = append(ds, r.begin(es, len(es)).Deliveries...)
	}
	return ds
}

func (r *rig) reclaim(p int, worker string, n int) queue.Reclaimed {
	r.t.Helper()
	got, err := r.q.Reclaim(bg, queue.ReclaimRequest{Partition: p, Consumer: worker, Max: n})
	if err != nil {
		r.t.Fatalf("reclaim: %v", err)
	}
	return got
}

func (r *rig) inspect(id string) queue.TaskInfo {
	r.t.Helper()
	info, err := r.q.Inspect(bg, queue.TaskID(id))
	if err != nil && !errors.Is(err, queue.ErrNotFound) {
		r.t.Fatalf("inspect: %v", err)
	}
	return info
}

func settlements(ds []queue.Delivery, edit ...func(*queue.Settlement)) []queue.Settlement {
	var out []queue.Settlement
	for _, d := range ds {
		s := queue.Settlement{Lease: d.Lease}
		for _, f := range edit {
			f(&s)
		}
		out = append(out, s)
	}
	return out
}

// must fails the test unless every settlement ended as wanted.
func (r *rig) must(want queue.Outcome, got []queue.Settled) {
	r.t.Helper()
	for _, s := range got {
		if s.Outcome != want || s.Err != nil {
			r.t.Fatalf("settled %+v, want %s", s, want)
		}
	}
}

// advance lets time pass for everything that the server stored.
func (r *rig) advance(d time.Duration) {
	r.t.Helper()
	for p := range r.q.Partitions() {
		r.advancePartition(p, d)
	}
}

func (r *rig) advancePartition(p int, d time.Duration) {
	pipe := r.c.Pipeline()
	for _, what := range []string{"leases", "due", "consumers"} {
		for _, m := range r.c.ZRange(bg, r.key(p, what), 0, -1).Val() {
			pipe.ZIncrBy(bg, r.key(p, what), float64(-d.Milliseconds()), m)
		}
	}
	for name, value := range r.c.HGetAll(bg, r.key(p, "conf")).Val() {
		if strings.HasSuffix(name, "_ms") && name != "lease_ms" {
			pipe.HSet(bg, r.key(p, "conf"), name, int64(atoi(value))-d.Milliseconds())
		}
	}
	for _, row := range r.pending(p) {
		pipe.Do(bg, "XCLAIM", r.key(p, "stream"), queue.Group, row.Consumer, "0", row.ID,
			"IDLE", (row.Idle + d).Milliseconds(), "RETRYCOUNT", row.RetryCount, "JUSTID")
	}
	if pipe.Len() == 0 {
		return
	}
	if _, err := pipe.Exec(bg); err != nil {
		r.t.Fatalf("advance: %v", err)
	}
}

func (r *rig) pending(p int) []redis.XPendingExt {
	return r.c.XPendingExt(bg, &redis.XPendingExtArgs{Stream: r.key(p, "stream"), Group: queue.Group, Start: "-", End: "+", Count: 1 << 20}).Val()
}

// places counts the entries of a partition by task ID and place.
func (r *rig) places(p int) map[string]map[string]int {
	out := map[string]map[string]int{}
	rows := map[string]bool{}
	for _, row := range r.pending(p) {
		rows[row.ID] = true
	}
	for _, what := range []string{"stream", "scheduled", "dead"} {
		for _, e := range r.c.XRange(bg, r.key(p, what), "-", "+").Val() {
			id, place := fmt.Sprint(e.Values["id"]), what
			if what == "stream" {
				place = "waiting"
				if rows[e.ID] {
					place = "pending"
				}
			}
			if out[id] == nil {
				out[id] = map[string]int{}
			}
			out[id][place]++
		}
	}
	return out
}

// onlyAt fails the test unless the task is once in that place and nowhere else.
func (r *rig) onlyAt(id string, want string) {
	r.t.Helper()
	found := map[string]int{}
	for p := range r.q.Partitions() {
		for place, n := range r.places(p)[id] {
			found[place] += n
		}
	}
	if want == "" && len(found) == 0 {
		return
	}
	if len(found) != 1 || found[want] != 1 {
		r.t.Errorf("%s is at %v, want once at %q", id, found, want)
	}
}

// xadd is a plain XADD of name, value, name, value …
func xadd(stream string, fields ...string) *redis.XAddArgs {
	return &redis.XAddArgs{Stream: stream, Values: fields}
}
