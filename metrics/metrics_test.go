package metrics_test

import (
	"errors"
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
		"claimq_leases_lost_total{how=server,queue=a}",
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
	o.LeaseLost(consumer.LeaseLost{Queue: "a", How: consumer.LossExpired})
	o.Refused(consumer.Refused{Queue: "a"})
	o.Swept(consumer.Swept{Queue: "a", Count: 4})
	o.Lost(consumer.Lost{Queue: "a", Tasks: make([]queue.Copy, 5)})
	o.Swept(consumer.Swept{Queue: "a", Delays: []time.Duration{time.Second, 0}, Err: errors.New("no answer")})
	if _, ok := values(t, reg)["claimq_last_reclaim_sweep_timestamp_seconds{queue=b}"]; ok {
		t.Error("a queue that was never swept has a time of its last sweep")
	}
	o.Buried("a", 2)
	o.Ended(consumer.Ended{Queue: "a", Kind: "k", Outcome: queue.DeadLettered, DeadReason: queue.DeadDeadline, Attempt: 3})
	o.Ended(consumer.Ended{Queue: "a", Kind: "k", Outcome: queue.Released, Reason: consumer.FailedNoHandler, Attempt: 1})
	o.Renewed(consumer.Renewed{Queue: "a", Grants: 5, Failed: 2, Lost: 1})
	o.Promoted("a", 6)
	o.ConsumersRemoved("a", 7)
	o.Delivered("b", consumer.SourceNew, 1) // a queue that New was not told of
	got := values(t, reg)
	for name, want := range map[string]float64{
		"claimq_deliveries_total{queue=b,source=new}":                1,
		"claimq_reclaim_sweeps_total{queue=a}":                       2,
		"claimq_reclaim_sweep_failures_total{queue=a}":               1,
		"claimq_dead_lettered_total{queue=a,reason=undecodable}":     2,
		"claimq_dead_lettered_total{queue=a,reason=deadline}":        1,
		"claimq_failures_total{queue=a,reason=no_handler}":           1,
		"claimq_lease_renewals_total{queue=a}":                       5,
		"claimq_lease_renewal_failures_total{queue=a}":               2,
		"claimq_promoted_tasks_total{queue=a}":                       6,
		"claimq_consumers_removed_total{queue=a}":                    7,
		"claimq_deliveries_total{queue=a,source=reclaimed}":          3,
		"claimq_deliveries_total{queue=a,source=new}":                0,
		"claimq_duplicates_suppressed_total{queue=a}":                2,
		"claimq_processed_total{kind=k,outcome=retried,queue=a}":     1,
		"claimq_processed_total{kind=k,outcome=completed,queue=a}":   1,
		"claimq_processed_total{kind=k,outcome=lost,queue=a}":        0,
		"claimq_failures_total{queue=a,reason=timeout}":              1,
		"claimq_leases_lost_total{how=expired,queue=a}":              1,
		"claimq_leases_lost_total{how=server,queue=a}":               0,
		"claimq_refused_settles_total{queue=a}":                      1,
		"claimq_reclaimed_entries_total{queue=a}":                    4,
		"claimq_missing_entries_total{queue=a}":                      5,
		"claimq_processed_total{kind=other,outcome=retried,queue=a}": 0,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v, there %v; want %v", name, v, ok, want)
		}
	}
	for name, n := range map[string]uint64{
		"claimq_reclaim_delay_seconds":          1, // 0: not known
		"claimq_reclaim_sweep_duration_seconds": 2,
		"claimq_delivery_attempts":              2, // completed, dead
		"claimq_process_duration_seconds":       0, // none ran
	} {
		if got := observations(t, reg, name); got != n {
			t.Errorf("%s was told %d values, want %d", name, got, n)
		}
	}
}

// Kinds come from whoever enqueues, so their number must not become the number
// of series.
func TestKindsAreBounded(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	o := metrics.New(reg, offline(t, "a", "b")...)
	for i := range 100_000 {
		o.Ended(consumer.Ended{Queue: []string{"a", "b"}[i%2], Kind: fmt.Sprintf("kind-%d", i), Outcome: queue.Completed, TaskID: queue.TaskID(fmt.Sprint(i))})
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
