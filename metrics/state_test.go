package metrics_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/metrics"
	"github.com/claimq/claimq/queue"
)

func TestStateIsReadAtMostOnceInAWhile(t *testing.T) {
	reads, now := 0, time.Unix(1700000000, 0)
	var fail error
	s := metrics.StateOf("a", func(context.Context) (queue.Stats, error) {
		reads++
		return queue.Stats{PartitionStats: queue.PartitionStats{Waiting: int64(reads), Dead: 7}}, fail
	}, func() time.Time { return now })
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(s)

	want := func(waiting float64, known bool, success float64) {
		t.Helper()
		got := values(t, reg)
		if v, ok := got["claimq_waiting_entries{queue=a}"]; ok != known || v != waiting {
			t.Errorf("waiting %v, there %v; want %v, %v", v, ok, waiting, known)
		}
		if v := got["claimq_collector_success{queue=a}"]; v != success {
			t.Errorf("success %v, want %v", v, success)
		}
		if r := s.Reads(); len(r) != 1 || r[0].Queue != "a" || (r[0].Err == nil) != known || r[0].At.IsZero() {
			t.Errorf("reads: %+v", r)
		}
	}
	if r := s.Reads(); len(r) != 1 || !r[0].At.IsZero() || r[0].Err != nil {
		t.Errorf("before the first read: %+v", r)
	}
	want(1, true, 1)
	now = now.Add(metrics.StateAge - 1)
	want(1, true, 1)
	now = now.Add(1)
	want(2, true, 1)
	now, fail = now.Add(metrics.StateAge), context.DeadlineExceeded
	want(0, false, 0)
	want(0, false, 0)
	if reads != 3 {
		t.Errorf("the server was asked %d times", reads)
	}
}

// A read that does not end holds up a scrape for the budget and no longer, is
// not begun again beside itself, and what it would have told is absent.
func TestStateReadThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int64
		release := make(chan struct{})
		s := metrics.StateOf("a", func(ctx context.Context) (queue.Stats, error) {
			if reads.Add(1) == 2 {
				<-release // deaf to its context
				return queue.Stats{}, ctx.Err()
			}
			return queue.Stats{PartitionStats: queue.PartitionStats{Waiting: 5}}, nil
		}, time.Now)
		reg := prometheus.NewPedanticRegistry()
		reg.MustRegister(s)
		scrape := func(success float64, took time.Duration) {
			t.Helper()
			began := time.Now()
			got := values(t, reg)
			if d := time.Since(began); d != took {
				t.Errorf("the scrape took %v, want %v", d, took)
			}
			if v, ok := got["claimq_waiting_entries{queue=a}"]; ok != (success == 1) || ok && v != 5 {
				t.Errorf("waiting %v, there %v", v, ok)
			}
			if v := got["claimq_collector_success{queue=a}"]; v != success {
				t.Errorf("success %v, want %v", v, success)
			}
		}
		scrape(1, 0)
		time.Sleep(metrics.StateAge)
		scrape(0, metrics.StateBudget)
		scrape(0, metrics.StateBudget)
		if n := reads.Load(); n != 2 {
			t.Errorf("%d reads", n)
		}
		if r := s.Reads(); r[0].Err == nil {
			t.Error("an overdue answer counts as an answer")
		}
		close(release)
		synctest.Wait()
		scrape(0, 0) // how it ended, for as long as an answer is used
		time.Sleep(metrics.StateAge)
		scrape(1, 0)
	})
}

// stateOf makes a queue and a registry with its state.
func stateOf(t *testing.T, b redistest.Backend, edit func(*queue.Config)) (*queue.Queue, *prometheus.Registry) {
	t.Helper()
	cfg := queue.Config{Name: "mail", Client: b.Client, Prefix: redistest.Prefix(t)}
	edit(&cfg)
	q, err := queue.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(metrics.NewState(q))
	return q, reg
}

// What a server cannot tell is absent, and the rest is right: on a server whose
// XINFO STREAM is short too.
func TestStateOfARealQueue(t *testing.T) {
	redistest.Both(t, func(t *testing.T, b redistest.Backend) {
		q, reg := stateOf(t, b, func(c *queue.Config) { c.Partitions = 3 })
		tasks := []queue.Task{{ID: "a", Kind: "k"}, {ID: "b", Kind: "k"}, {ID: "c", Kind: "k", Delay: time.Hour}}
		for _, r := range q.Enqueue(t.Context(), q.NewToken(), tasks) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		got := values(t, reg)
		for name, want := range map[string]float64{
			"claimq_waiting_entries{queue=mail}":            2,
			"claimq_pending_entries{queue=mail}":            0,
			"claimq_expired_pending_entries{queue=mail}":    0,
			"claimq_scheduled_tasks{queue=mail}":            1,
			"claimq_dead_entries{queue=mail}":               0,
			"claimq_oldest_pending_age_seconds{queue=mail}": 0,
			"claimq_oldest_overdue_age_seconds{queue=mail}": 0,
			"claimq_consumers{queue=mail,state=active}":     0,
			"claimq_consumers{queue=mail,state=stale}":      0,
			"claimq_queue_lease_seconds{queue=mail}":        15,
			"claimq_collector_success{queue=mail}":          1,
		} {
			if v, ok := got[name]; !ok || v != want {
				t.Errorf("%s is %v, there %v; want %v", name, v, ok, want)
			}
		}
		if v, ok := got["claimq_entries_added_total{queue=mail}"]; ok != b.Real || ok && v != 2 {
			t.Errorf("entries added: %v, there %v", v, ok)
		}
		if v, ok := got["claimq_oldest_waiting_age_seconds{queue=mail}"]; !ok || v < 0 || v > 60 {
			t.Errorf("oldest waiting: %v, there %v", v, ok)
		}
	})
}

// A queue that was made with another number of partitions is not reported: what
// one partition of several holds looks like a small backlog.
func TestStateOfHalfAQueue(t *testing.T) {
	b := redistest.Backend{Client: redistest.Shared(t).Client()}
	prefix := redistest.Prefix(t)
	whole, _ := stateOf(t, b, func(c *queue.Config) { c.Partitions, c.Prefix = 2, prefix })
	if err := whole.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, reg := stateOf(t, b, func(c *queue.Config) { c.Partitions, c.Prefix = 1, prefix })
	got := values(t, reg)
	if v, ok := got["claimq_waiting_entries{queue=mail}"]; ok || got["claimq_collector_success{queue=mail}"] != 0 {
		t.Errorf("waiting %v, success %v", v, got["claimq_collector_success{queue=mail}"])
	}
}

// Metrics that look at queues which nobody has made do not make them.
func TestStateMakesNothing(t *testing.T) {
	c := redistest.Shared(t).Client()
	prefix := redistest.Prefix(t)
	_, reg := stateOf(t, redistest.Backend{Client: c}, func(cfg *queue.Config) { cfg.Prefix, cfg.Partitions = prefix, 2 })
	if got := values(t, reg); got["claimq_collector_success{queue=mail}"] != 1 {
		t.Error(fmt.Sprint(got))
	}
	if keys := c.Keys(t.Context(), prefix+"*").Val(); len(keys) > 0 {
		t.Errorf("made %v", keys)
	}
}
