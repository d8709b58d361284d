package queue_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/queue"
)

// costRig is a queue for measuring, and tasks for it that never repeat.
type costRig struct {
	q    *queue.Queue
	next int
}

func newCostRig(tb testing.TB) *costRig {
	tb.Helper()
	q, err := queue.New(queue.Config{Name: "q", Client: redistest.Shared(tb).Client(), Prefix: redistest.Prefix(tb)})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { q.Close() })
	if err := q.Ensure(bg); err != nil {
		tb.Fatal(err)
	}
	return &costRig{q: q}
}

func (r *costRig) tasks(n int) []queue.Task {
	ts := make([]queue.Task, n)
	for i := range ts {
		r.next++
		ts[i] = queue.Task{ID: queue.TaskID(fmt.Sprintf("01890a5d-ac96-774b-bcce-b302%08d", r.next)), Kind: "webhook.push", Payload: []byte(strings.Repeat("x", 256))}
	}
	return ts
}

func (r *costRig) enqueue(tb testing.TB, ts []queue.Task) {
	for _, got := range r.q.Enqueue(bg, r.q.NewToken(), ts) {
		if !got.Added {
			tb.Fatalf("%+v", got)
		}
	}
}

func (r *costRig) read(tb testing.TB, n int) []queue.Entry {
	es, err := queue.Read(bg, queue.ReadRequest{Queues: []*queue.Queue{r.q}, Consumer: "w", Max: n})
	if err != nil || len(es) != n {
		tb.Fatalf("%d entries of %d, %v", len(es), n, err)
	}
	return es
}

func (r *costRig) begin(tb testing.TB, es []queue.Entry) []queue.Delivery {
	b, err := r.q.Begin(bg, queue.BeginRequest{Token: r.q.NewToken(), Consumer: "w", Entries: es, Start: len(es)})
	if err != nil || len(b.Deliveries) != len(es) {
		tb.Fatalf("%+v, %v", b, err)
	}
	return b.Deliveries
}

func (r *costRig) complete(tb testing.TB, s []queue.Settlement) {
	for _, got := range r.q.Complete(bg, s) {
		if got.Outcome != queue.Completed {
			tb.Fatalf("%+v", got)
		}
	}
}

func completions(ds []queue.Delivery) []queue.Settlement {
	s := make([]queue.Settlement, len(ds))
	for i, d := range ds {
		s[i] = queue.Settlement{Lease: d.Lease, EndsGrant: i == len(ds)-1}
	}
	return s
}

// benchmark runs one step of the life of n tasks, and the others aside.
func benchmark(b *testing.B, step string) {
	for _, n := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("batch=%d", n), func(b *testing.B) {
			r := newCostRig(b)
			b.ReportAllocs()
			timed := func(s string, f func()) {
				if s == step {
					b.StartTimer()
					defer b.StopTimer()
				}
				f()
			}
			b.StopTimer()
			for range b.N {
				ts := r.tasks(n)
				var es []queue.Entry
				var ds []queue.Delivery
				timed("enqueue", func() { r.enqueue(b, ts) })
				timed("read", func() { es = r.read(b, n) })
				timed("begin", func() { ds = r.begin(b, es) })
				s := completions(ds)
				timed("complete", func() { r.complete(b, s) })
			}
		})
	}
}

func BenchmarkEnqueue(b *testing.B)  { benchmark(b, "enqueue") }
func BenchmarkRead(b *testing.B)     { benchmark(b, "read") }
func BenchmarkBegin(b *testing.B)    { benchmark(b, "begin") }
func BenchmarkComplete(b *testing.B) { benchmark(b, "complete") }

// Allocations for each task of a batch of 100. The bounds are somewhat above
// what is needed, so that one more for each task does not pass.
func TestAllocationsPerTask(t *testing.T) {
	const n, rounds = 100, 20
	r := newCostRig(t)
	var used [4]uint64
	count := func(step int, f func()) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		used[step] += after.Mallocs - before.Mallocs
	}
	for round := range rounds + 1 {
		if round == 1 {
			clear(used[:]) // connections are made and scripts are known
		}
		ts := r.tasks(n)
		var es []queue.Entry
		var ds []queue.Delivery
		count(0, func() { r.enqueue(t, ts) })
		count(1, func() { es = r.read(t, n) })
		count(2, func() { ds = r.begin(t, es) })
		s := completions(ds)
		count(3, func() { r.complete(t, s) })
	}
	limits := []float64{0.4, 0.8, 0.8, 0.6}
	if raceDetector {
		limits[1] += 2 // it makes strings of bytes that are only compared
	}
	for step, limit := range limits {
		name := [...]string{"enqueue", "read", "begin", "complete"}[step]
		got := float64(used[step]) / (n * rounds)
		t.Logf("%s: %.2f allocations for each task", name, got)
		if got > limit {
			t.Errorf("%s: %.2f allocations for each task, want at most %.1f", name, got, limit)
		}
	}
}

// Allocations of one task that is enqueued by itself, 8 of them the client's.
func TestAllocationsOfOne(t *testing.T) {
	r := newCostRig(t)
	ts, next := r.tasks(210), 0
	limit := 13.5
	if raceDetector {
		limit += 2
	}
	got := testing.AllocsPerRun(200, func() {
		r.enqueue(t, ts[next:next+1])
		next++
	})
	if t.Logf("%.1f allocations", got); got > limit {
		t.Errorf("%.1f allocations, want at most %.1f", got, limit)
	}
}

// A handler that writes to its payload, or appends to it, disturbs no
// neighbour, and neither the entries nor the IDs of the batch.
func TestPayloadsAreApart(t *testing.T) {
	r := newRig(t)
	const n = 50
	var tasks []queue.Task
	for i := range n {
		tasks = append(tasks, queue.Task{ID: queue.TaskID(fmt.Sprintf("t%d", i)), Kind: "k", Payload: []byte(fmt.Sprintf("payload %d", i))})
	}
	r.add(tasks...)
	es := r.read("w", n)
	ds := r.begin(es, n).Deliveries
	for i, d := range ds {
		if want := fmt.Sprintf("payload %d", i); string(d.Task.Payload) != want {
			t.Fatalf("payload %q, want %q", d.Task.Payload, want)
		}
		for j := range d.Task.Payload {
			d.Task.Payload[j] = '!'
		}
		_ = append(d.Task.Payload, "and more than there is room for"...)
	}
	for i, d := range ds {
		if string(d.Task.ID) != fmt.Sprintf("t%d", i) || d.Task.Kind != "k" || strings.Trim(string(d.Task.Payload), "!") != "" {
			t.Errorf("%+v", d.Task)
		}
		if f := es[i].Fields; f[len(f)-1] != fmt.Sprintf("payload %d", i) && !strings.Contains(strings.Join(f, " "), fmt.Sprintf("payload %d", i)) {
			t.Errorf("the entry has changed: %q", f)
		}
	}
	r.must(queue.Completed, r.q.Complete(bg, settlements(ds)))
}

// A read that a server refuses because it has become a replica gives up its
// connection, as every other command does: the name it was made for may lead
// to another server by now.
func TestRefusedReadGivesUpItsConnection(t *testing.T) {
	srv := redistest.Start(t)
	c := srv.Client()
	reads := srv.Client(func(o *redis.Options) { o.PoolSize, o.MaxRetries, o.ContextTimeoutEnabled = 1, -1, true })
	r := rigOn(t, c, func(cfg *queue.Config) { cfg.ReadClient = reads })
	r.add(tasksNamed("t")...)
	if es := r.read("w", 1); len(es) != 1 {
		t.Fatalf("%v", es)
	}
	was := reads.ClientID(bg).Val()
	if now := reads.ClientID(bg).Val(); now != was {
		t.Fatalf("connection %d, then %d: not kept at all", was, now)
	}
	if err := c.Do(bg, "REPLICAOF", "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	es, err := queue.Read(context.Background(), queue.ReadRequest{Queues: []*queue.Queue{r.q}, Consumer: "w", Max: 1, Block: queue.MaxBlock})
	if !queue.IsRetryable(err) || !strings.Contains(fmt.Sprint(err), "READONLY") {
		t.Fatalf("%v, %v", es, err)
	}
	if now := reads.ClientID(bg).Val(); now == was {
		t.Errorf("connection %d is still in use", now)
	}
}
