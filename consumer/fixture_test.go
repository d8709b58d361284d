package consumer_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/queue"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// patience is how long a test waits for something that should have happened
// long before.
const patience = 20 * time.Second

// newQueue makes a queue of the test's own on the shared server. As such tests
// mostly wait, and share nothing else, they run in parallel.
func newQueue(t *testing.T, edit ...func(*queue.Config)) *queue.Queue {
	t.Helper()
	t.Parallel()
	// A lease that a loaded machine renews in time.
	cfg := queue.Config{Name: "q", Prefix: redistest.Prefix(t), Client: redistest.Shared(t).Client(), Lease: time.Second}
	return openQueue(t, cfg, edit...)
}

func openQueue(t *testing.T, cfg queue.Config, edit ...func(*queue.Config)) *queue.Queue {
	t.Helper()
	for _, f := range edit {
		f(&cfg)
	}
	q, err := queue.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	if err := q.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	return q
}

// again opens the same queue through another client.
func again(t *testing.T, q *queue.Queue, edit func(*queue.Config)) *queue.Queue {
	t.Helper()
	cfg := q.Config()
	cfg.ReadClient = nil
	return openQueue(t, cfg, edit)
}

func enqueue(t *testing.T, q *queue.Queue, tasks ...queue.Task) {
	t.Helper()
	for chunk := range slices.Chunk(tasks, queue.MaxBatch) {
		for _, r := range q.Enqueue(context.Background(), q.NewToken(), chunk) {
			if r.Err != nil || !r.Added {
				t.Fatalf("task %s was not added: %+v", r.ID, r)
			}
		}
	}
}

func numbered(prefix, kind string, n int) []queue.Task {
	tasks := make([]queue.Task, n)
	for i := range tasks {
		tasks[i] = queue.Task{ID: queue.TaskID(fmt.Sprintf("%s%d", prefix, i)), Kind: kind}
	}
	return tasks
}

// running is a worker whose Run goes on in a goroutine.
type running struct {
	*consumer.Worker
	t      *testing.T
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// newWorker makes a worker with waits that suit tests.
func newWorker(t *testing.T, q *queue.Queue, cfg consumer.Config) *consumer.Worker {
	t.Helper()
	if cfg.Block == 0 {
		cfg.Block = 100 * time.Millisecond
	}
	if cfg.HousekeepingEvery == 0 {
		cfg.HousekeepingEvery = 100 * time.Millisecond
	}
	w, err := consumer.New(q, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func start(t *testing.T, w *consumer.Worker) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Worker: w, t: t, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = w.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		w.Abort()
		<-r.done
	})
	return r
}

func run(t *testing.T, q *queue.Queue, cfg consumer.Config) *running {
	t.Helper()
	return start(t, newWorker(t, q, cfg))
}

// stop drains the worker and returns what Run returned.
func (r *running) stop() error {
	r.cancel()
	return r.wait()
}

func (r *running) wait() error {
	r.t.Helper()
	select {
	case <-r.done:
		return r.err
	case <-time.After(patience):
		r.t.Fatal("Run did not return")
		return nil
	}
}

// receive takes one value from c, in time.
func receive[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatalf("not in time: %s", what)
	}
	return v
}

// eventually waits until ok holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not in time: %s", what)
		}
	}
}

// throughout checks that ok holds for d.
func throughout(t *testing.T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	end := time.After(d)
	for {
		if !ok() {
			t.Fatalf("does not hold throughout: %s", what)
		}
		select {
		case <-tick.C:
		case <-end:
			return
		}
	}
}

func placeOf(t *testing.T, q *queue.Queue, id queue.TaskID) queue.Place {
	t.Helper()
	info, err := q.Inspect(context.Background(), id)
	if err != nil {
		return queue.Unknown
	}
	return info.Place
}

func stats(t *testing.T, q *queue.Queue) queue.Stats {
	t.Helper()
	s, err := q.Stats(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func inspect(t *testing.T, q *queue.Queue, id queue.TaskID) queue.TaskInfo {
	t.Helper()
	info, err := q.Inspect(context.Background(), id)
	if err != nil {
		t.Fatalf("inspect %s: %v", id, err)
	}
	return info
}

func eventuallyAt(t *testing.T, q *queue.Queue, id queue.TaskID, p queue.Place) {
	t.Helper()
	eventually(t, fmt.Sprintf("task %s is %s", id, p), func() bool { return placeOf(t, q, id) == p })
}

// unfinished is the number of tasks that are neither done nor dead.
func unfinished(t *testing.T, q *queue.Queue) int64 {
	t.Helper()
	s, err := q.Stats(context.Background())
	if err != nil {
		return -1
	}
	return s.Waiting + s.Pending + s.Scheduled
}

// ledger counts handler runs by task.
type ledger struct {
	mu      sync.Mutex
	starts  map[queue.TaskID]int
	running map[queue.TaskID]int
	most    int // of one task at the same time
	at      map[queue.TaskID][]time.Time
}

func newLedger() *ledger {
	return &ledger{starts: map[queue.TaskID]int{}, running: map[queue.TaskID]int{}, at: map[queue.TaskID][]time.Time{}}
}

// begin notes a start; the result notes its end.
func (l *ledger) begin(id queue.TaskID) (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.starts[id]++
	l.running[id]++
	l.at[id] = append(l.at[id], time.Now())
	l.most = max(l.most, l.running[id])
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.running[id]--
	}
}

func (l *ledger) of(id queue.TaskID) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.starts[id]
}

func (l *ledger) total() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.starts {
		n += k
	}
	return n
}

func (l *ledger) active() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.running {
		n += k
	}
	return n
}

// everyOnce fails the test unless each of the tasks was started exactly once.
func (l *ledger) everyOnce(t *testing.T, tasks []queue.Task) {
	t.Helper()
	for _, task := range tasks {
		if n := l.of(task.ID); n != 1 {
			t.Errorf("task %s was started %d times, want 1", task.ID, n)
		}
	}
}

// recorder is an Observer that keeps what it is told.
type recorder struct {
	consumer.NopObserver
	mu       sync.Mutex
	ended    []consumer.Ended
	lost     []consumer.LeaseLost
	refused  []consumer.Refused
	missing  []queue.Copy
	errors   []consumer.ServerError
	swept    int
	passes   int // in search of ended leases, once this worker lost one or is stuck
	stuck    int
	renewals consumer.Renewed
	dups     int
	promoted int
}

func (r *recorder) with(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *recorder) Ended(e consumer.Ended)         { r.with(func() { r.ended = append(r.ended, e) }) }
func (r *recorder) LeaseLost(e consumer.LeaseLost) { r.with(func() { r.lost = append(r.lost, e) }) }
func (r *recorder) Refused(e consumer.Refused)     { r.with(func() { r.refused = append(r.refused, e) }) }
func (r *recorder) Lost(e consumer.Lost) {
	r.with(func() { r.missing = append(r.missing, e.Tasks...) })
}
func (r *recorder) ServerError(e consumer.ServerError) {
	r.with(func() { r.errors = append(r.errors, e) })
}
func (r *recorder) Swept(e consumer.Swept) {
	r.with(func() {
		r.swept += e.Count
		if len(r.lost) > 0 || r.stuck > 0 {
			r.passes++
		}
	})
}

func (r *recorder) Stuck(n int)                { r.with(func() { r.stuck = n }) }
func (r *recorder) Duplicates(_ string, n int) { r.with(func() { r.dups += n }) }
func (r *recorder) Promoted(_ string, n int)   { r.with(func() { r.promoted += n }) }
func (r *recorder) Renewed(e consumer.Renewed) {
	r.with(func() {
		r.renewals.Grants += e.Grants
		r.renewals.Failed += e.Failed
		r.renewals.Lost += e.Lost
	})
}

// endOf returns the last event of a task that ended.
func (r *recorder) endOf(id queue.TaskID) (e consumer.Ended, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.ended {
		if x.TaskID == id {
			e, ok = x, true
		}
	}
	return e, ok
}

func (r *recorder) counts() (lost, refused int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.lost), len(r.refused)
}
