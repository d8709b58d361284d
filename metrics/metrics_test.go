package metrics_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/metrics"
	"github.com/claimq/claimq/queue"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// offline returns queues on a server that nobody can reach.
func offline(t *testing.T, names ...string) []*queue.Queue {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1, DialTimeout: 100 * time.Millisecond,
	})
	t.Cleanup(func() { rdb.Close() })
	var qs []*queue.Queue
	for _, n := range names {
		q, err := queue.New(queue.Config{Name: n, Client: rdb})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { q.Close() })
		qs = append(qs, q)
	}
	return qs
}

// values returns every series as "name{label=value,…}".
func values(t *testing.T, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			v := m.GetCounter().GetValue() + m.GetGauge().GetValue()
			out[fmt.Sprintf("%s{%s}", f.GetName(), strings.Join(labels, ","))] = v
		}
	}
	return out
}

func TestEverySeriesExistsFromTheStart(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	o := metrics.New(reg, offline(t, "a", "b")...)
	o.Kinds("mail.send")
	got := values(t, reg)
	for _, want := range []string{
		"claimq_deliveries_total{queue=a,source=new}",
		"claimq_deliveries_total{queue=b,source=reclaimed}",
		"claimq_processed_total{kind=mail.send,outcome=dead,queue=a}",
		"claimq_processed_total{kind=other,outcome=completed,queue=b}",
		"claimq_failures_total{queue=a,reason=panic}",
		"claimq_leases_lost_total{queue=a}",
		"claimq_refused_settles_total{queue=a}",
		"claimq_reclaimed_entries_total{queue=a}",
		"claimq_duplicates_suppressed_total{queue=a}",
		"claimq_missing_entries_total{queue=b}",
		"claimq_collector_success{queue=a}",
	} {
		if v, ok := got[want]; !ok || v != 0 {
			t.Errorf("%s is %v, there %v; want 0", want, v, ok)
		}
	}
	for name := range got {
		if strings.HasPrefix(name, "claimq_waiting_entries") {
			t.Errorf("%s: what is unknown must be absent", name)
		}
	}
}

func TestEventsAreCounted(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	o := metrics.New(reg, offline(t, "a")...)
	o.Delivered("a", consumer.SourceReclaimed, 3)
	o.Duplicates("a", 2)
	o.Ended(consumer.Ended{Queue: "a", Kind: "k", Outcome: queue.Retried, Reason: consumer.FailedTimeout})
	o.Ended(consumer.Ended{Queue: "a", Kind: "k", Outcome: queue.Completed})
	o.LeaseLost(consumer.LeaseLost{Queue: "a"})
	o.Refused(consumer.Refused{Queue: "a"})
	o.Swept(consumer.Swept{Queue: "a", Count: 4})
	o.Lost(consumer.Lost{Queue: "a", Tasks: make([]queue.Copy, 5)})
	beat := time.Unix(1700000000, 0)
	o.Watch(func() consumer.Status {
		return consumer.Status{Slots: 8, Busy: 3, Loops: []consumer.LoopStatus{{Name: "fetch", Beat: beat}, {Name: "renew"}}}
	})
	got := values(t, reg)
	for name, want := range map[string]float64{
		"claimq_deliveries_total{queue=a,source=reclaimed}":          3,
		"claimq_deliveries_total{queue=a,source=new}":                0,
		"claimq_duplicates_suppressed_total{queue=a}":                2,
		"claimq_processed_total{kind=k,outcome=retried,queue=a}":     1,
		"claimq_processed_total{kind=k,outcome=completed,queue=a}":   1,
		"claimq_processed_total{kind=k,outcome=lost,queue=a}":        0,
		"claimq_failures_total{queue=a,reason=timeout}":              1,
		"claimq_leases_lost_total{queue=a}":                          1,
		"claimq_refused_settles_total{queue=a}":                      1,
		"claimq_reclaimed_entries_total{queue=a}":                    4,
		"claimq_missing_entries_total{queue=a}":                      5,
		"claimq_worker_slots{}":                                      8,
		"claimq_worker_busy_slots{}":                                 3,
		"claimq_loop_heartbeat_timestamp_seconds{loop=fetch}":        1700000000,
		"claimq_processed_total{kind=other,outcome=retried,queue=a}": 0,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v, there %v; want %v", name, v, ok, want)
		}
	}
	if _, ok := got["claimq_loop_heartbeat_timestamp_seconds{loop=renew}"]; ok {
		t.Error("a loop that never moved has a heartbeat")
	}
}

// Kinds come from whoever enqueues, so their number must not become the number
// of series.
func TestKindsAreBounded(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	o := metrics.New(reg, offline(t, "a")...)
	for i := range 100_000 {
		o.Ended(consumer.Ended{Queue: "a", Kind: fmt.Sprintf("kind-%d", i), Outcome: queue.Completed, TaskID: queue.TaskID(fmt.Sprint(i))})
	}
	kinds, sum := map[string]bool{}, 0.0
	for name, v := range values(t, reg) {
		if rest, ok := strings.CutPrefix(name, "claimq_processed_total{kind="); ok {
			kind, _, _ := strings.Cut(rest, ",")
			kinds[kind] = true
			sum += v
		}
	}
	if len(kinds) != metrics.MaxKinds+1 || !kinds[metrics.OtherKind] {
		t.Errorf("%d kinds, other among them: %v", len(kinds), kinds[metrics.OtherKind])
	}
	if sum != 100_000 {
		t.Errorf("%v tasks counted", sum)
	}
}

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

func TestStateOfARealQueue(t *testing.T) {
	q, err := queue.New(queue.Config{Name: "mail", Client: redistest.Shared(t).Client(), Prefix: redistest.Prefix(t), Partitions: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(metrics.NewState(q))
	tasks := []queue.Task{{ID: "a", Kind: "k"}, {ID: "b", Kind: "k"}, {ID: "c", Kind: "k", Delay: time.Hour}}
	for _, r := range q.Enqueue(t.Context(), q.NewToken(), tasks) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	got := values(t, reg)
	for name, want := range map[string]float64{
		"claimq_waiting_entries{queue=mail}":   2,
		"claimq_pending_entries{queue=mail}":   0,
		"claimq_scheduled_tasks{queue=mail}":   1,
		"claimq_dead_entries{queue=mail}":      0,
		"claimq_ended_grants{queue=mail}":      0,
		"claimq_consumers{queue=mail}":         0,
		"claimq_collector_success{queue=mail}": 1,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v, there %v; want %v", name, v, ok, want)
		}
	}
}
