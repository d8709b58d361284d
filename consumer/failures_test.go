package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/dedupe"
	"github.com/claimq/claimq/internal/ops"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/queue"
)

// pair is a primary, a replica that follows it, and a client whose address can
// be pointed to either.
type pair struct {
	t          *testing.T
	old, fresh *redistest.Server
	target     atomic.Pointer[string]
	client     *redis.Client
}

func newPair(t *testing.T) *pair {
	t.Helper()
	t.Parallel()
	p := &pair{t: t, old: redistest.Start(t, "--repl-diskless-sync-delay", "0")}
	host, port, _ := net.SplitHostPort(p.old.Addr())
	p.fresh = redistest.Start(t, "--replicaof", host+" "+port)
	p.point(p.old)
	p.client = p.old.Client(func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, *p.target.Load())
		}
	})
	c := p.fresh.Client()
	eventually(t, "the replica follows", func() bool {
		return strings.Contains(c.Info(context.Background(), "replication").Val(), "master_link_status:up")
	})
	return p
}

func (p *pair) point(s *redistest.Server) {
	addr := s.Addr()
	p.target.Store(&addr)
}

// settled waits until the replica has everything.
func (p *pair) settled() {
	p.t.Helper()
	c := p.old.Client()
	c.Incr(context.Background(), "replicated-up-to-here")
	if n, err := c.Wait(context.Background(), 1, patience).Result(); err != nil || n != 1 {
		p.t.Fatalf("%d replicas: %v", n, err)
	}
}

func (p *pair) promote() {
	p.t.Helper()
	if err := p.fresh.Client().Do(context.Background(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
		p.t.Fatal(err)
	}
}

// D1: the primary is demoted under a worker's open connections while a handler
// runs. The worker finds the other server by itself, and the handler keeps its
// lease.
func TestD1PrimaryDemoted(t *testing.T) {
	p := newPair(t)
	q := openQueue(t, queue.Config{Name: "q", Client: p.client, Lease: 3 * time.Second})
	runs := newLedger()
	goOn := make(chan struct{})
	var seen recorder
	w := run(t, q, consumer.Config{Concurrency: 4, Observer: &seen, Handler: consumer.HandlerFunc(func(ctx context.Context, d consumer.Delivery) ([]byte, error) {
		defer runs.begin(d.Task.ID)()
		if d.Task.ID == "long" {
			select {
			case <-goOn:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		return nil, nil
	})})
	enqueue(t, q, queue.Task{ID: "long", Kind: "k"}, queue.Task{ID: "before", Kind: "k"})
	eventually(t, "it runs", func() bool { return runs.of("long") == 1 && placeOf(t, q, "before") == queue.Done })
	p.settled()
	p.promote()
	host, port, _ := net.SplitHostPort(p.fresh.Addr())
	if err := p.old.Client().Do(t.Context(), "REPLICAOF", host, port).Err(); err != nil {
		t.Fatal(err)
	}
	p.point(p.fresh)
	demoted := time.Now()
	var r queue.Receipt
	token := q.NewToken()
	eventually(t, "enqueued", func() bool {
		r = q.Enqueue(context.Background(), token, []queue.Task{{ID: "after", Kind: "k"}})[0]
		return r.Err == nil
	})
	eventuallyAt(t, q, "after", queue.Done)
	eventually(t, "ready", func() bool { return w.Status().Ready })
	if d := time.Since(demoted); d > 5*time.Second {
		t.Errorf("it took %v", d)
	}
	throughout(t, q.Config().Lease, "the long task is held", func() bool { return placeOf(t, q, "long") == queue.Pending })
	close(goOn)
	eventuallyAt(t, q, "long", queue.Done)
	if lost, _ := seen.counts(); lost != 0 || runs.of("long") != 1 || runs.of("after") != 1 {
		t.Errorf("%d leases lost, runs %v", lost, runs.starts)
	}
}

// D4: a replica is promoted that missed the settles of a hundred tasks. They
// are delivered again, the receiver suppresses each by its key, and everything
// is settled.
func TestD4ForgottenSettles(t *testing.T) {
	const n = 100
	p := newPair(t)
	q := openQueue(t, queue.Config{Name: "q", Client: p.client, Lease: 600 * time.Millisecond})
	runs := newLedger()
	var mu sync.Mutex
	effects, suppressed := map[dedupe.Key]int{}, 0
	goOn := make(chan struct{})
	var seen recorder
	run(t, q, consumer.Config{Concurrency: n, Observer: &seen, Handler: consumer.HandlerFunc(func(ctx context.Context, d consumer.Delivery) ([]byte, error) {
		defer runs.begin(d.Task.ID)()
		select {
		case <-goOn:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		mu.Lock()
		defer mu.Unlock()
		if key := dedupe.KeyFor(d.Lease.Queue, d.Task.ID, "charge"); effects[key] > 0 {
			suppressed++
		} else {
			effects[key]++
		}
		return nil, nil
	})})
	tasks := numbered("t", "k", n)
	enqueue(t, q, tasks...)
	eventually(t, "all run", func() bool { return runs.active() == n })
	p.settled()
	p.promote() // and so misses what comes now
	close(goOn)
	eventually(t, "all settled", func() bool { return unfinished(t, q) == 0 })
	first := runs.total()
	p.point(p.fresh)
	p.old.Kill()
	lost := openQueue(t, queue.Config{Name: "q", Client: p.fresh.Client(), Lease: 600 * time.Millisecond})
	if s := stats(t, lost); s.Unfinished() != n {
		t.Fatalf("%d tasks are unfinished there, the test proves nothing", s.Unfinished())
	}
	eventually(t, "all settled again", func() bool { return unfinished(t, lost) == 0 })
	for _, task := range tasks {
		if place := placeOf(t, lost, task.ID); place != queue.Done {
			t.Errorf("%s is %s", task.ID, place)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	again := runs.total() - first
	if len(effects) != n || again > n || again == 0 || suppressed != runs.total()-n {
		t.Errorf("%d effects, %d runs again, %d suppressed", len(effects), again, suppressed)
	}
}

// D6: the password is changed under a running worker. It is not ready then,
// says why, and goes on without a restart once the password is right.
func TestD6PasswordRotated(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "--requirepass", "old")
	known := func(o *redis.Options) { o.Password = "old" }
	admin := srv.Client(known)
	q := openQueue(t, queue.Config{Name: "q", Client: srv.Client(known), Lease: 400 * time.Millisecond})
	var seen recorder
	w := run(t, q, consumer.Config{Observer: &seen, Handler: consumer.HandlerFunc(func(context.Context, consumer.Delivery) ([]byte, error) { return nil, nil })})
	enqueue(t, q, queue.Task{ID: "before", Kind: "k"})
	eventuallyAt(t, q, "before", queue.Done)
	if err := admin.ConfigSet(t.Context(), "requirepass", "new").Err(); err != nil {
		t.Fatal(err)
	}
	if err := admin.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "not ready", func() bool {
		s := w.Status()
		return !s.Ready && s.Healthy && strings.Contains(fmt.Sprint(s.Reasons), "WRONGPASS")
	})
	if r := q.Enqueue(t.Context(), q.NewToken(), []queue.Task{{ID: "refused", Kind: "k"}})[0]; !errors.Is(r.Err, queue.ErrUnavailable) {
		t.Errorf("%+v", r)
	}
	if err := admin.ConfigSet(t.Context(), "requirepass", "old").Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "ready again", func() bool { return w.Status().Ready })
	enqueue(t, q, queue.Task{ID: "after", Kind: "k"})
	eventuallyAt(t, q, "after", queue.Done)
	seen.with(func() {
		if n := len(seen.errors); n == 0 || n > 100 {
			t.Errorf("%d failed calls", n)
		}
	})
}

// garbled is a connection that gives something else in place of a reply, once.
type garbled struct {
	net.Conn
	next *atomic.Pointer[string]
}

func (g garbled) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	if text := g.next.Swap(nil); text != nil && err == nil {
		return copy(p, *text), nil
	}
	return n, err
}

// D6: a reply that is no reply, and a connection that ends in the middle of
// one, end neither the loop nor the program. What was delivered with it comes
// by another way.
func TestD6MalformedReply(t *testing.T) {
	var next atomic.Pointer[string]
	q := newQueue(t, func(c *queue.Config) {
		c.ReadClient = redistest.Shared(t).Client(func(o *redis.Options) {
			o.ReadTimeout = 300 * time.Millisecond
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				var d net.Dialer
				conn, err := d.DialContext(ctx, network, addr)
				return garbled{conn, &next}, err
			}
		})
	})
	runs := newLedger()
	w := run(t, q, consumer.Config{Handler: consumer.HandlerFunc(func(_ context.Context, d consumer.Delivery) ([]byte, error) {
		defer runs.begin(d.Task.ID)()
		return nil, nil
	})})
	eventually(t, "ready", func() bool { return w.Status().Ready })
	var tasks []queue.Task
	for i, text := range []string{
		"no reply at all\r\n", "*1\r\n", "*-7\r\n", "$5\r\nab", "*2\r\n:1\r\n:2\r\n", "%1\r\n+a\r\n:1\r\n", ":7\r\n", "+OK\r\n", "$-1\r\n", "*1\r\n*2\r\n$1\r\nx\r\n*1\r\n*2\r\n+1-1\r\n_\r\n", "\x00\xff\r\n",
	} {
		next.Store(&text)
		task := queue.Task{ID: queue.TaskID(fmt.Sprintf("t%d", i)), Kind: "k"}
		tasks = append(tasks, task)
		enqueue(t, q, task)
		eventually(t, fmt.Sprintf("%q was given", text), func() bool { return next.Load() == nil })
		eventuallyAt(t, q, task.ID, queue.Done)
	}
	runs.everyOnce(t, tasks)
	eventually(t, "ready again", func() bool { return w.Status().Ready })
}

// D6: for three seconds nobody answers at the address. The worker tries again
// with waits that do not grow without end, and is healthy, though not ready.
func TestD6RefusedDials(t *testing.T) {
	q := newQueue(t)
	far, proxy := proxied(t, q)
	runs := newLedger()
	var seen recorder
	w := run(t, far, consumer.Config{Observer: &seen, Handler: consumer.HandlerFunc(func(_ context.Context, d consumer.Delivery) ([]byte, error) {
		defer runs.begin(d.Task.ID)()
		return nil, nil
	})})
	eventually(t, "ready", func() bool { return w.Status().Ready })
	proxy.Refuse()
	proxy.Cut()
	enqueue(t, q, queue.Task{ID: "meanwhile", Kind: "k"})
	eventually(t, "not ready", func() bool { return !w.Status().Ready })
	throughout(t, 3*time.Second, "healthy, not ready", func() bool { s := w.Status(); return s.Healthy && !s.Ready })
	seen.with(func() {
		if n := len(seen.errors); n < 4 || n > 100 {
			t.Errorf("%d failed calls in three seconds", n)
		}
	})
	proxy.Heal()
	healed := time.Now()
	eventuallyAt(t, q, "meanwhile", queue.Done)
	if d := time.Since(healed); d > 10*time.Second {
		t.Errorf("it went on only after %v", d)
	}
	eventually(t, "ready again", func() bool { return w.Status().Ready })
	runs.everyOnce(t, []queue.Task{{ID: "meanwhile"}})
}

// probed is a worker's /readyz as a scheduler sees it.
func probed(t *testing.T, w *consumer.Worker) func() (code int, took time.Duration) {
	t.Helper()
	h := ops.Handler(ops.Config{Ready: func() []ops.Check {
		s := w.Status()
		return []ops.Check{{Name: "ready", OK: s.Ready, Detail: strings.Join(s.Reasons, "; ")}}
	}})
	return func() (int, time.Duration) {
		began := time.Now()
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
		return rec.Code, time.Since(began)
	}
}

// L2: /readyz proves that tasks are consumed: it is bad UnhealthyAfter after
// any loop stopped, whichever it is, and not before; it is good on an idle queue
// for as long as one likes.
func TestL2ReadyProvesConsumption(t *testing.T) {
	const after = 500 * time.Millisecond
	for _, loop := range []string{"fetch", "dispatch", "renew", "watch", "settle", "housekeeping"} {
		t.Run(loop, func(t *testing.T) {
			q := newQueue(t)
			w := newWorker(t, q, consumer.Config{UnhealthyAfter: after, Handler: consumer.HandlerFunc(func(context.Context, consumer.Delivery) ([]byte, error) { return nil, nil })})
			freeze, thaw := make(chan struct{}), make(chan struct{})
			stopped := make(chan struct{})
			var once sync.Once
			w.OnBeat(func(l string) {
				select {
				case <-freeze:
					if l == loop {
						once.Do(func() { close(stopped) })
						<-thaw
					}
				default:
				}
			})
			get := probed(t, w)
			start(t, w)
			t.Cleanup(sync.OnceFunc(func() { close(thaw) }))
			eventually(t, "ready", func() bool { code, _ := get(); return code == http.StatusOK })
			throughout(t, 2*after, "good on an idle queue", func() bool { code, _ := get(); return code == http.StatusOK })
			close(freeze)
			receive(t, "the loop stands still", stopped)
			stood := time.Now()
			var longest time.Duration
			eventually(t, "bad", func() bool {
				code, took := get()
				longest = max(longest, took)
				return code == http.StatusServiceUnavailable
			})
			if d := time.Since(stood); d > after+5*time.Second { // the machine may be busy
				t.Errorf("bad only after %v", d)
			}
			if longest > 2*time.Second {
				t.Errorf("a probe took %v", longest)
			}
		})
	}
}

// L2: the probe answers although the worker hangs with its lock taken.
func TestL2ProbeDoesNotHang(t *testing.T) {
	q := newQueue(t)
	w := newWorker(t, q, consumer.Config{UnhealthyAfter: 500 * time.Millisecond, Handler: consumer.HandlerFunc(func(context.Context, consumer.Delivery) ([]byte, error) { return nil, nil })})
	get := probed(t, w)
	start(t, w)
	eventually(t, "ready", func() bool { code, _ := get(); return code == http.StatusOK })
	release := w.Seize()
	defer release()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		for {
			if code, _ := get(); code != http.StatusOK {
				return
			}
			select {
			case <-t.Context().Done():
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	receive(t, "the probe answers that the worker hangs", answered)
}
