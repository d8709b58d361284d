package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

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
	rec *receiver

	mu      sync.Mutex
	workers []*worker
}

func newRig(t *testing.T, cfg queue.Config) *rig {
	t.Helper()
	srv := redistest.Shared(t)
	r := &rig{t: t, rdb: srv.Client(), url: srv.URL(), rec: newReceiver(t)}
	cfg.Name, cfg.Client, cfg.Prefix, cfg.Lease = "jobs", r.rdb, redistest.Prefix(t), lease
	var err error
	if r.q, err = queue.New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.q.Close() })
	if r.p, err = producer.New(r.q, producer.Config{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.stopAll)
	return r
}

// worker is one worker process.
type worker struct {
	name   string
	cmd    *exec.Cmd
	exited chan struct{}
	log    *logText

	mu     sync.Mutex
	killed time.Time
}

// start runs `worker run`; env overrides the defaults of the rig.
func (r *rig) start(env ...string) *worker {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	w := &worker{name: fmt.Sprintf("w%d", len(r.workers)+1), exited: make(chan struct{}), log: &logText{}}
	w.cmd = exec.Command(workerPath, "run")
	c := r.q.Config()
	w.cmd.Env = append([]string{
		"REDIS_URL=" + r.url, "REDIS_KEY_PREFIX=" + c.Prefix, "QUEUES=" + c.Name, "QUEUE_LEASE=" + lease.String(),
		"QUEUE_PARTITIONS=" + strconv.Itoa(c.Partitions), "QUEUE_MAX_INTERRUPTIONS=" + strconv.Itoa(c.MaxInterruptions),
		"QUEUE_RETENTION=" + c.Retention.String(), "WORKER_CONCURRENCY=4", "WORKER_BLOCK=500ms", "WORKER_RETRY_BASE=100ms",
		"PUSH_URLS=*=" + r.rec.url(w.name), "OPS_ADDR=off", "LOG_FORMAT=json",
	}, env...)
	w.cmd.Stderr, w.cmd.Stdout = w.log, w.log
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := w.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	go func() {
		_ = w.cmd.Wait() // how it ended is asked of ProcessState
		close(w.exited)
	}()
	r.workers = append(r.workers, w)
	return w
}

// logText keeps what a worker logs.
type logText struct {
	mu   sync.Mutex
	text []byte
}

func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, b...)
	return len(b), nil
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

// says waits until the worker has logged a message.
func (r *rig) says(w *worker, message string) {
	r.t.Helper()
	r.eventually(w.name+" says "+message, func() bool { return strings.Contains(w.log.String(), `"msg":"`+message) })
}

func (r *rig) byName(name string) *worker {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.workers, func(w *worker) bool { return w.name == name })
	return r.workers[i]
}

// diedAt is when kill was called; zero: it was not.
func (w *worker) diedAt() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.killed
}

// kill ends a worker as a crash would.
func (w *worker) kill() {
	w.mu.Lock()
	w.killed = time.Now()
	w.mu.Unlock()
	_ = w.cmd.Process.Kill() // an error: it has ended already
	<-w.exited
}

func (w *worker) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := w.cmd.Process.Signal(sig); err != nil {
		t.Fatalf("%s: %v: %v\n%s", w.name, sig, err, w.log)
	}
}

// freeze stops the process for as long as it takes until thaw.
func (w *worker) freeze(t *testing.T) {
	w.signal(t, syscall.SIGSTOP)
}

// terminate asks for a drain and gives the exit code.
func (w *worker) terminate(t *testing.T, within time.Duration) int {
	t.Helper()
	w.signal(t, syscall.SIGTERM)
	select {
	case <-w.exited:
	case <-time.After(within):
		t.Fatalf("%s did not stop within %v\n%s", w.name, within, w.log)
	}
	return w.cmd.ProcessState.ExitCode()
}

func (r *rig) stopAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.workers {
		_ = w.cmd.Process.Kill()
		<-w.exited
		if r.t.Failed() {
			r.t.Logf("%s:\n%s", w.name, tail(w.log.String(), 30))
		}
	}
}

func tail(s string, lines int) string {
	all := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
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
