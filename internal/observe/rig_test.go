package observe

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/internal/faultredis"
	"github.com/claimq/claimq/internal/fleet"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/metrics"
	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/queue"
)

var bg = context.Background()

const (
	lease      = 1500 * time.Millisecond
	partitions = 2
	slots      = 8 // of each worker
	// soon is within how long what Prometheus says must be what is: after the
	// death of a worker its leases run out and its tasks are taken over first.
	soon = 15 * time.Second
)

var queueNames = []string{"invoices", "mail"}

// member is the place of one worker.
type member struct {
	name, ops string
	proxy     *faultredis.Proxy // nil: nothing is between it and the server
	worker    *fleet.Worker
}

// consumer is the name by which the server knows the worker.
func (m *member) consumer() string {
	for line := range strings.Lines(m.worker.Log.String()) {
		var said struct{ Msg, Consumer string }
		if json.Unmarshal([]byte(line), &said) == nil && said.Msg == "worker started" {
			return said.Consumer
		}
	}
	return ""
}

type rig struct {
	t         *testing.T
	server    *redistest.Server
	rdb       *redis.Client
	queues    []*queue.Queue
	producers []*producer.Producer
	rec       *fleet.Receiver
	holds     holds
	members   []*member
	exporter  *fleet.Worker
	prom      *prom
	began     time.Time
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, began: time.Now(), server: redistest.Start(t), rec: fleet.NewReceiver(t)}
	r.rdb = r.server.Client()
	reg := prometheus.NewRegistry()
	prefix := redistest.Prefix(t)
	for _, name := range queueNames {
		q, err := queue.New(queue.Config{
			Name: name, Client: r.rdb, Prefix: prefix, Partitions: partitions, Lease: lease, MaxFailures: 3,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { q.Close() })
		if err := q.Ensure(bg); err != nil {
			t.Fatal(err)
		}
		r.queues = append(r.queues, q)
	}
	observer := metrics.NewProducer(reg, r.queues...)
	metrics.Build(reg, "test", "")
	for _, q := range r.queues {
		p, err := producer.New(q, producer.Config{Observer: observer})
		if err != nil {
			t.Fatal(err)
		}
		r.producers = append(r.producers, p)
	}
	own := httptest.NewServer(promhttp.HandlerFor(reg, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	t.Cleanup(own.Close)
	targets := []target{{job: "producer", addr: own.Listener.Addr().String()}, {job: "exporter", addr: freeAddr(t)}}

	r.rec.Answers(r.holds.answer)
	env := append(r.settings(prefix), "REDIS_URL="+r.server.URL(), "OPS_ADDR="+targets[1].addr)
	r.exporter = fleet.Run(t, "exporter", env, workerPath, "exporter")
	for _, name := range []string{"a", "b", "far"} {
		m := &member{name: name, ops: freeAddr(t)}
		if name == "far" {
			m.proxy = faultredis.NewProxy(t, r.server.Addr())
		}
		r.members = append(r.members, m)
		targets = append(targets, target{job: "worker", addr: m.ops, slow: m.proxy != nil})
		r.start(m)
	}
	r.prom = startProm(t, targets)
	r.eventually("all processes are scraped", func() bool {
		n, _ := r.prom.now(fmt.Sprintf(`count(up == 1) == %d`, len(targets)))
		return len(n) == 1
	})
	return r
}

// settings are those that all processes share.
func (r *rig) settings(prefix string) []string {
	return []string{
		"REDIS_KEY_PREFIX=" + prefix, "QUEUES=" + strings.Join(queueNames, ","), "QUEUE_LEASE=" + lease.String(),
		fmt.Sprint("QUEUE_PARTITIONS=", partitions), "QUEUE_MAX_FAILURES=3", "LOG_FORMAT=json",
	}
}

// start puts a new worker in a place.
func (r *rig) start(m *member) {
	r.t.Helper()
	url, prefetch := r.server.URL(), 2
	switch {
	case m.proxy != nil:
		url = "redis://" + m.proxy.Addr() + "/0"
	case m == r.members[0]:
		prefetch = 0 // all that it has in hand has started when it is killed
	}
	m.worker = fleet.Start(r.t, workerPath, m.name, append(r.settings(r.queues[0].Config().Prefix),
		"REDIS_URL="+url, "OPS_ADDR="+m.ops, fmt.Sprint("WORKER_CONCURRENCY=", slots), fmt.Sprint("WORKER_PREFETCH=", prefetch), "WORKER_BLOCK=500ms",
		"WORKER_RETRY_BASE=300ms", "WORKER_TIMEOUT=5m", "PUSH_TIMEOUT=5m", "PUSH_URLS=*="+r.rec.URL(m.name),
	))
	r.eventually(m.name+" started", func() bool { return m.worker.Log.Says("worker started") })
	r.eventually(m.name+" has its address", func() bool {
		return strings.Contains(m.worker.Log.String(), `"addr":"`+m.ops+`"`)
	})
}

// eventually waits until ok.
func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	if !r.within(time.Minute, ok) {
		r.t.Fatalf("not within a minute: %s", what)
	}
}

func (r *rig) within(limit time.Duration, ok func() bool) bool {
	return fleet.Within(limit, 50*time.Millisecond, ok)
}

// pause lets things run on for a while.
func (r *rig) pause(d time.Duration) { <-time.After(d) }

// holds are the receiver's answers. It answers tasks called hold-… when it is
// told to, their first attempts and the later ones apart.
type holds struct {
	first, later gate
}

// gate keeps requests waiting while it is shut.
type gate struct {
	shut    atomic.Pointer[chan struct{}] // closed when it opens; nil: open
	waiting atomic.Int64                  // that have come to it since it was shut
}

func (g *gate) close() {
	c := make(chan struct{})
	g.waiting.Store(0)
	g.shut.Store(&c)
}

func (g *gate) open() {
	if c := g.shut.Swap(nil); c != nil {
		close(*c)
	}
}

func (g *gate) wait() <-chan struct{} {
	c := g.shut.Load()
	if c == nil {
		return nil
	}
	g.waiting.Add(1)
	return *c
}

// answer follows the first word of a task's ID.
func (h *holds) answer(q fleet.Request) (int, <-chan struct{}) {
	word, _, _ := strings.Cut(q.Task, "-")
	switch {
	case word == "bad":
		return http.StatusUnprocessableEntity, nil
	case word == "fail", word == "once" && q.Attempt == 1:
		return http.StatusInternalServerError, nil
	case word == "hold" && q.Attempt == 1:
		return http.StatusOK, h.first.wait()
	case word == "hold":
		return http.StatusOK, h.later.wait()
	}
	over := make(chan struct{})
	time.AfterFunc(pace(q.Task), func() { close(over) })
	return http.StatusOK, over
}
