package ahead

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/claimq/claimq/internal/fleet"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/queue"
)

var (
	seed   = flag.Uint64("ahead.seed", 1, "chooses the faults")
	faults = flag.Int("ahead.faults", 40, "how many workers are killed, frozen or drained")
)

func TestMain(m *testing.M) {
	if place := os.Getenv(placeVariable); place != "" {
		if err := work(place); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(redistest.Main(m))
}

const (
	workers = 3
	// backlog is how many tasks wait, so that reads bring as many as are asked for.
	backlog = 3000
	// settleTime is how long after its run a task of a live worker is surely settled.
	settleTime = time.Second
)

// run is one run of a handler, as its worker wrote it down.
type run struct {
	at      time.Time
	worker  *worker
	attempt int
	fence   uint64
}

// worker is one process.
type worker struct {
	cmd   *exec.Cmd
	alive io.Closer
	ready chan struct{} // closed with its first run
	ended chan struct{} // closed when its last run is read
	// What befell it: from when to when; zero: it goes on.
	kind     string
	from, to time.Time
}

type rig struct {
	t     *testing.T
	place string

	mu   sync.Mutex
	runs map[string][]run
}

func (r *rig) start() *worker {
	r.t.Helper()
	w := &worker{cmd: exec.Command(os.Args[0]), ready: make(chan struct{}), ended: make(chan struct{})}
	w.cmd.Env = append(os.Environ(), placeVariable+"="+r.place)
	w.cmd.Stderr = os.Stderr
	var err error
	if w.alive, err = w.cmd.StdinPipe(); err != nil {
		r.t.Fatal(err)
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	go func() {
		defer close(w.ended)
		first := sync.OnceFunc(func() { close(w.ready) })
		for lines := bufio.NewScanner(out); lines.Scan(); first() {
			var at int64
			var id string
			one := run{worker: w}
			if _, err := fmt.Sscan(lines.Text(), &at, &one.attempt, &one.fence, &id); err != nil {
				r.t.Errorf("a worker says %q", lines.Text())
				continue
			}
			one.at = time.UnixMicro(at)
			r.mu.Lock()
			r.runs[id] = append(r.runs[id], one)
			r.mu.Unlock()
		}
		first()
		_ = w.cmd.Wait()
	}()
	return w
}

// count is how many tasks have run.
func (r *rig) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.runs)
}

func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	if !fleet.Within(time.Minute, 20*time.Millisecond, ok) {
		r.t.Fatalf("not within a minute: %s", what)
	}
}

// Quick handlers, workers that are killed, frozen and drained at any moment, and so
// with tasks that wait for their turn: each task runs, nothing becomes a dead
// letter, and each run beyond the first of a task follows from what befell the
// worker of the one before (I1, I2, I6).
func TestQuickHandlersKilled(t *testing.T) {
	srv := redistest.Start(t)
	client := srv.Client()
	prefix := redistest.Prefix(t)
	r := &rig{t: t, place: srv.Addr() + " " + prefix, runs: map[string][]run{}}
	q, err := newQueue(client, prefix)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	if err := q.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, err := producer.New(q, producer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	crew := make([]*worker, workers)
	for i := range crew {
		crew[i] = r.start()
	}
	producing, stop := context.WithCancel(t.Context())
	defer stop()
	tasks := make(chan int, 1)
	go func() { tasks <- r.produce(producing, p) }()

	rnd := rand.New(rand.NewPCG(*seed, 0))
	counts := map[string]int{}
	for range *faults {
		i := rnd.IntN(workers)
		w := crew[i]
		<-w.ready
		<-time.After(time.Duration(50+rnd.IntN(150)) * time.Millisecond)
		w.from = time.Now()
		switch u := rnd.IntN(10); {
		case u < 5:
			w.kind = "kill"
			r.signal(w, syscall.SIGKILL)
		case u < 8:
			w.kind = "freeze"
			r.signal(w, syscall.SIGSTOP)
			<-time.After(time.Duration(100+rnd.IntN(1400)) * time.Millisecond)
			w.to = time.Now()
			r.signal(w, syscall.SIGCONT)
			<-time.After(100 * time.Millisecond) // it goes on with what it has
			r.signal(w, syscall.SIGTERM)         // one fault for each
		default:
			w.kind = "drain"
			r.signal(w, syscall.SIGTERM)
		}
		counts[w.kind]++
		crew[i] = r.start()
	}
	stop()
	n := <-tasks
	r.eventually("nothing is left to do", func() bool {
		s, err := q.Stats(t.Context())
		return err == nil && s.Unfinished() == 0 && r.count() == n
	})
	if s, err := q.Stats(t.Context()); err != nil || s.Dead != 0 {
		t.Errorf("%d dead letters, want none (%v)", s.Dead, err)
	}
	for _, w := range crew {
		w.kind = "drain"
		r.signal(w, syscall.SIGTERM)
		<-w.ended
	}
	waited := r.judge(n)
	t.Logf("%d tasks, %v, %d of them interrupted before their first run", n, counts, waited)
	if waited == 0 {
		t.Error("no task waited for its turn in a worker that died: nothing was tried")
	}
}

func (r *rig) signal(w *worker, s syscall.Signal) {
	r.t.Helper()
	if err := w.cmd.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

// produce keeps a backlog until ctx ends and returns how many tasks it added.
func (r *rig) produce(ctx context.Context, p *producer.Producer) int {
	const batch = 100
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; {
		for n-r.count() < backlog && ctx.Err() == nil {
			some := make([]queue.Task, batch)
			for i := range some {
				some[i] = queue.Task{ID: queue.TaskID(fmt.Sprint("t", n+i)), Kind: "k"}
			}
			if _, err := p.EnqueueMany(context.WithoutCancel(ctx), some); err != nil {
				r.t.Error(err)
				return n
			}
			n += batch
		}
		select {
		case <-ctx.Done():
			return n
		case <-tick.C:
		}
	}
}

// judge looks at all runs, and returns how many tasks were interrupted before
// their first.
func (r *rig) judge(n int) (waited int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	late := map[*worker]int{}
	for i := range n {
		id := fmt.Sprint("t", i)
		runs := r.runs[id]
		if len(runs) == 0 {
			r.t.Errorf("%s never ran", id)
			continue
		}
		slices.SortFunc(runs, func(a, b run) int { return a.at.Compare(b.at) })
		if runs[0].attempt > 1 {
			waited++
		}
		for j := 1; j < len(runs); j++ {
			a, b := runs[j-1], runs[j]
			if sentLate(a, b) {
				if late[b.worker]++; late[b.worker] <= slots {
					continue
				}
			}
			if !explained(a, b) {
				r.t.Errorf("%s: run at %v (attempt %d, fence %d, worker: %s at %v), again %v later (attempt %d, fence %d, worker: %s at %v)",
					id, a.at.Format(time.StampMilli), a.attempt, a.fence, a.worker.kind, a.worker.from.Format(time.StampMilli),
					b.at.Sub(a.at), b.attempt, b.fence, b.worker.kind, b.worker.from.Format(time.StampMilli))
			}
		}
	}
	return waited
}

// explained reports whether b may follow a: a's worker was killed or frozen before
// it can have settled.
func explained(a, b run) bool {
	w := a.worker
	return (w.kind == "kill" || w.kind == "freeze") && !a.at.After(w.from.Add(settleTime/20)) && w.from.Sub(a.at) < settleTime &&
		b.attempt > a.attempt && b.fence > a.fence
}

// sentLate reports whether b is of a worker that was frozen between its last look
// at the lease and the run, and its lower fence tells. That is as many as it has
// slots at most.
func sentLate(a, b run) bool {
	w := b.worker
	return w.kind == "freeze" && b.fence < a.fence && w.from.Before(a.at) && !b.at.Before(w.to) && b.at.Sub(w.to) < lease/4
}
