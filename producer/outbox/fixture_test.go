package outbox_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/internal/faultredis"
	"github.com/claimq/claimq/internal/pgtest"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/producer/outbox"
	"github.com/claimq/claimq/queue"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// patience is how long a test waits for what should have happened long before.
const patience = 60 * time.Second

// rig is an outbox, the queue that it is for, and what is between them.
type rig struct {
	t    *testing.T
	dsn  string
	pool *pgxpool.Pool
	rdb  *redis.Client
	hook *faultredis.Hook
	q    *queue.Queue
	box  *outbox.Outbox
}

func newRig(t *testing.T, qc queue.Config) *rig {
	t.Helper()
	return newRigOn(t, redistest.Shared(t), qc)
}

func newRigOn(t *testing.T, srv *redistest.Server, qc queue.Config) *rig {
	t.Helper()
	r := &rig{t: t, dsn: pgtest.Shared(t).DSN(t), rdb: srv.Client()}
	r.pool = pgtest.Connect(t, r.dsn)
	if _, err := outbox.Migrate(t.Context(), r.pool, ""); err != nil {
		t.Fatal(err)
	}
	qc.Name, qc.Prefix, qc.Client = "q", redistest.Prefix(t), r.rdb
	var err error
	if r.q, err = queue.New(qc); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.q.Close() })
	if err := r.q.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The server learns the script before faults are put in its way.
	if got := r.q.Enqueue(t.Context(), r.q.NewToken(), []queue.Task{{ID: "warm-up", Kind: "k"}}); got[0].Err != nil {
		t.Fatal(got[0].Err)
	}
	if moved := r.q.Delete(t.Context(), []queue.TaskID{"warm-up"}); moved[0].Err != nil {
		t.Fatal(moved[0].Err)
	}
	r.hook = faultredis.New(r.rdb)
	if r.box, err = outbox.New(outbox.Config{Queue: "q"}); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) relay(cfg outbox.RelayConfig) *outbox.Relay {
	r.t.Helper()
	return r.relayOver(r.pool, cfg)
}

func (r *rig) relayOver(pool *pgxpool.Pool, cfg outbox.RelayConfig) *outbox.Relay {
	r.t.Helper()
	relay, err := outbox.NewRelay(pool, r.q, cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	return relay
}

// add writes tasks in one transaction.
func (r *rig) add(tasks ...queue.Task) {
	r.t.Helper()
	err := pgx.BeginFunc(r.t.Context(), r.pool, func(tx pgx.Tx) error { return r.box.Add(r.t.Context(), tx, tasks...) })
	if err != nil {
		r.t.Fatal(err)
	}
}

func tasks(ids ...string) []queue.Task {
	list := make([]queue.Task, len(ids))
	for i, id := range ids {
		list[i] = queue.Task{ID: queue.TaskID(id), Kind: "k", Payload: []byte(id)}
	}
	return list
}

func numbered(from, to int) []queue.Task {
	var ids []string
	for n := from; n < to; n++ {
		ids = append(ids, fmt.Sprintf("t-%d", n))
	}
	return tasks(ids...)
}

// rows counts those of a table.
func (r *rig) rows(table string) (n int) {
	r.t.Helper()
	if err := r.pool.QueryRow(r.t.Context(), "select count(*) from claimq."+table).Scan(&n); err != nil {
		r.t.Fatal(err)
	}
	return n
}

func (r *rig) exec(sql string, args ...any) {
	r.t.Helper()
	if _, err := r.pool.Exec(r.t.Context(), sql, args...); err != nil {
		r.t.Fatal(err)
	}
}

// stands wants so many rows in the outbox, among the sent and set aside.
func (r *rig) stands(unsent, sent, refused int) {
	r.t.Helper()
	if u, s, f := r.rows("outbox"), r.rows("outbox_sent"), r.rows("outbox_refused"); u != unsent || s != sent || f != refused {
		r.t.Errorf("%d rows unsent, %d sent, %d refused; want %d, %d, %d", u, s, f, unsent, sent, refused)
	}
}

// stream lists the IDs of the entries of the queue, in order: a task that came
// twice is there twice.
func (r *rig) stream() []string {
	r.t.Helper()
	var ids []string
	for p := range r.q.Partitions() {
		entries, err := r.rdb.XRange(r.t.Context(), r.q.StreamKey(p), "-", "+").Result()
		if err != nil {
			r.t.Fatal(err)
		}
		for _, e := range entries {
			ids = append(ids, e.Values["id"].(string))
		}
	}
	return ids
}

// holds wants exactly these tasks in the queue, each once, in this order.
func (r *rig) holds(ids ...string) {
	r.t.Helper()
	if got := r.stream(); !slices.Equal(got, ids) {
		r.t.Errorf("the queue holds %q, want %q", got, ids)
	}
}

// started runs a relay in the background until the returned function is called.
func (r *rig) started(relay *outbox.Relay) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				r.t.Errorf("Run: %v", err)
			}
		})
	}
	r.t.Cleanup(stop)
	return stop
}

func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-limit.C:
			r.t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// work runs tasks until n are done, and counts the runs of each.
func (r *rig) work(n int) map[queue.TaskID]int {
	r.t.Helper()
	runs := map[queue.TaskID]int{}
	var mu sync.Mutex
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	w, err := consumer.New(r.q, consumer.Config{Handler: consumer.HandlerFunc(func(_ context.Context, d consumer.Delivery) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		if runs[d.Task.ID]++; len(runs) >= n {
			cancel()
		}
		return nil, nil
	})})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := w.Run(ctx); err != nil {
		r.t.Fatal(err)
	}
	return runs
}

// log keeps the rounds that had something to tell.
type log struct {
	mu     sync.Mutex
	rounds []outbox.Round
}

func (l *log) Relayed(r outbox.Round) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Taken > 0 || r.Err != nil {
		l.rounds = append(l.rounds, r)
	}
}

func (l *log) all() []outbox.Round {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.rounds)
}

// impatient is how tasks are sent where a test wants to see each failure.
var impatient = producer.Config{MaxRetries: -1}

// told passes rounds on while there is room.
type told chan outbox.Round

func (c told) Relayed(r outbox.Round) {
	select {
	case c <- r:
	default:
	}
}

func connectWith(t *testing.T, conf *pgxpool.Config) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.NewWithConfig(context.Background(), conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}
