package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/queue"
)

// seconds is a histogram of runs that took whole seconds.
func seconds(runs ...int) (h queue.Histogram) {
	for _, s := range runs {
		h.Observe(time.Duration(s) * time.Second)
	}
	return h
}

func TestTimesByKind(t *testing.T) {
	var x times
	if got := x.take(); len(got) != 0 {
		t.Errorf("taken before the first run: %v", got)
	}
	for _, s := range []int{1, 3, 3} {
		x.observe("a", time.Duration(s)*time.Second)
	}
	x.observe("b", time.Second)
	if got := x.take(); !maps.Equal(got, map[string]queue.Histogram{"a": seconds(1, 3, 3), "b": seconds(1)}) {
		t.Errorf("taken %v", got)
	}
	if got := x.take(); len(got) != 0 {
		t.Errorf("taken twice: %v", got)
	}
}

func TestTimesAreBounded(t *testing.T) {
	var x times
	for i := range 3 * queue.MaxTimedKinds {
		x.observe(fmt.Sprint("k", i), time.Second)
	}
	got := x.take()
	if other := got[queue.OtherKinds]; len(got) != queue.MaxTimedKinds+1 || other.Runs() != 2*queue.MaxTimedKinds {
		t.Errorf("%d kinds, %d runs of others", len(got), other.Runs())
	}
	x.take() // without a run between the two: they make room
	x.observe("new", time.Second)
	if got := x.take(); !maps.Equal(got, map[string]queue.Histogram{"new": seconds(1)}) {
		t.Errorf("taken %v", got)
	}
}

func TestTimesCostNoAllocation(t *testing.T) {
	var x times
	kinds := []string{"a", "b", "c"}
	n := 0
	observe := func() { x.observe(kinds[n%3], time.Duration(n)*time.Millisecond); n++ }
	for range 3 {
		observe()
	}
	if a := testing.AllocsPerRun(1000, observe); a != 0 {
		t.Errorf("%v allocations for each run", a)
	}
}

// answering stands in for a server that has one queue: it gives out what is
// sent to tasks and takes every outcome.
type answering struct {
	server
	tasks chan queue.Task
	add   func(context.Context) error

	mu    sync.Mutex
	added []map[string]queue.Histogram
}

func (a *answering) adds() []map[string]queue.Histogram {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.added)
}

func (a *answering) Ensure(context.Context) error                         { return nil }
func (a *answering) NewToken() queue.Token                                { return "AAAAAAAAAAAAAA" }
func (a *answering) Turn(context.Context, queue.TurnRequest) []queue.Turn { return nil }

func (a *answering) AddTimes(ctx context.Context, times map[string]queue.Histogram) error {
	if err := a.add(ctx); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.added = append(a.added, times)
	return nil
}

func (a *answering) Begin(_ context.Context, r queue.BeginRequest) (b queue.Batch, err error) {
	for i, e := range r.Entries {
		l := queue.Lease{TaskID: queue.TaskID(e.ID), EntryID: e.ID, Attempt: 1, TrustedUntil: time.Now().Add(time.Hour),
			Grant: queue.Grant{Token: queue.Token(e.ID), Length: time.Hour}}
		b.Deliveries = append(b.Deliveries, queue.Delivery{Lease: l, Started: i < r.Start, Task: queue.Task{ID: l.TaskID, Kind: e.Fields[0]}})
	}
	return b, nil
}

func (a *answering) Start(_ context.Context, leases []queue.Lease) []error {
	return make([]error, len(leases))
}

func (a *answering) settle(in []queue.Settlement, o queue.Outcome) (out []queue.Settled) {
	for _, s := range in {
		out = append(out, queue.Settled{TaskID: s.Lease.TaskID, Outcome: o})
	}
	return out
}

func (a *answering) Complete(_ context.Context, in []queue.Settlement) []queue.Settled {
	return a.settle(in, queue.Completed)
}

func (a *answering) Retry(_ context.Context, in []queue.Settlement) []queue.Settled {
	return a.settle(in, queue.Retried)
}

// read gives a task, or nothing after a while.
func (a *answering) read(ctx context.Context, r queue.ReadRequest) ([]queue.Entry, error) {
	block := time.NewTimer(r.Block)
	defer block.Stop()
	select {
	case task := <-a.tasks:
		return []queue.Entry{{Queue: r.Queues[0], ID: queue.EntryID(task.ID), Fields: []string{task.Kind}}}, nil
	case <-block.C:
	case <-ctx.Done():
	}
	return nil, nil
}

// timed runs f, in virtual time, beside a worker whose handlers take as long as
// f says by the number of seconds in the ID of their task.
func timed(t *testing.T, add func(context.Context) error, f func(a *answering, w *Worker)) (a *answering, stop time.Duration) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // never connected
	t.Cleanup(func() { client.Close() })
	q, err := queue.New(queue.Config{Name: "q", Client: client, ReadClient: client})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		a = &answering{tasks: make(chan queue.Task, 100), add: add}
		w, err := New(q, Config{Timeout: 30 * time.Second, Handler: HandlerFunc(func(ctx context.Context, d Delivery) ([]byte, error) {
			var s int
			fmt.Sscan(string(d.Task.ID), &s)
			if s < 0 {
				return nil, errors.New("failed")
			}
			end := time.NewTimer(time.Duration(s) * time.Second)
			defer end.Stop()
			select {
			case <-end.C:
				return nil, nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		})})
		if err != nil {
			t.Fatal(err)
		}
		w.sources[0].server, w.read = a, a.read
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		f(a, w)
		cancel()
		began := time.Now()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		stop = time.Since(began)
	})
	return a, stop
}

func accepts(context.Context) error { return nil }

// TestTimesAreAddedEveryMinute: not sooner, all queues' runs of a minute at
// once, failed and cut off ones too; and the last ones when the worker stops.
func TestTimesAreAddedEveryMinute(t *testing.T) {
	a, _ := timed(t, accepts, func(a *answering, _ *Worker) {
		for _, id := range []queue.TaskID{"1", "2", "40", "-1"} {
			a.tasks <- queue.Task{ID: id, Kind: "k"}
		}
		a.tasks <- queue.Task{ID: "3", Kind: "other"}
		time.Sleep(timesEvery - time.Second)
		if got := a.adds(); len(got) != 0 {
			t.Errorf("added before a minute was over: %v", got)
		}
		time.Sleep(3 * time.Second)
		if got := a.adds(); len(got) != 1 {
			t.Errorf("added %d times after a minute", len(got))
		}
		a.tasks <- queue.Task{ID: "2", Kind: "k"}
		time.Sleep(timesEvery - 5*time.Second)
		if got := a.adds(); len(got) != 1 {
			t.Errorf("added %d times, the last less than a minute after the first", len(got))
		}
		time.Sleep(2 * timesEvery) // nothing more ran, so there is nothing more to add
		a.tasks <- queue.Task{ID: "5", Kind: "k"}
		time.Sleep(time.Second)
	})
	want := []map[string]queue.Histogram{{"k": seconds(0, 1, 2, 30), "other": seconds(3)}, {"k": seconds(2)}, {"k": seconds(5)}}
	if got := a.adds(); !slices.EqualFunc(got, want, maps.Equal) {
		t.Errorf("added %v\nwant  %v", got, want)
	}
}

// TestTimesDisturbNothing: a server that refuses them, or does not answer,
// neither makes the worker unready nor keeps it from ending.
func TestTimesDisturbNothing(t *testing.T) {
	for name, add := range map[string]func(context.Context) error{
		"refused":   func(context.Context) error { return queue.ErrUnavailable },
		"no answer": func(ctx context.Context) error { <-ctx.Done(); return queue.ErrIndefinite },
	} {
		t.Run(name, func(t *testing.T) {
			a, stop := timed(t, add, func(a *answering, w *Worker) {
				for range 5 {
					a.tasks <- queue.Task{ID: "1", Kind: "k"}
					time.Sleep(timesEvery)
					if s := w.Status(); !s.Ready || !s.Healthy || len(s.Reasons) > 0 {
						t.Errorf("ready %v, healthy %v: %v", s.Ready, s.Healthy, s.Reasons)
					}
				}
				a.tasks <- queue.Task{ID: "2", Kind: "k"}
				time.Sleep(3 * time.Second)
			})
			if got := a.adds(); len(got) != 0 {
				t.Errorf("added %v", got)
			}
			if limit := DefaultBlock + timesTimeout; stop > limit {
				t.Errorf("the worker took %v to end, want %v at most", stop, limit)
			}
		})
	}
}
