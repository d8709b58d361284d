package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/dedupe/postgres"
	"github.com/claimq/claimq/internal/faultredis"
	"github.com/claimq/claimq/internal/pgtest"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/queue"
)

func ids(prefix string, n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("%s-%d", prefix, i))
	}
	return list
}

// TestRedisForgets: Redis comes back from an older snapshot, or empty. What was
// finished has no second effect, and what was not runs when it is enqueued
// again.
func TestRedisForgets(t *testing.T) {
	for _, empty := range []bool{false, true} {
		t.Run(fmt.Sprintf("empty=%v", empty), func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			f := newFleet(t, srv.Client())
			before, since, waiting := ids("before", 8), ids("since", 8), ids("waiting", 8)
			stop := f.work(f.q, f.pays())
			f.add(f.q, before...)
			f.finished(f.q)
			stop()
			f.add(f.q, since...)
			if err := srv.Client().Save(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			stop = f.work(f.q, f.pays())
			f.finished(f.q)
			stop()
			f.add(f.q, waiting...)
			srv.Kill()
			if empty {
				if err := os.Remove(filepath.Join(srv.Dir(), "dump.rdb")); err != nil {
					t.Fatal(err)
				}
			}
			srv.Restart()

			q := f.on(srv.Client())
			f.work(q, f.pays())
			redelivered := len(since) // the snapshot has them waiting
			if empty {
				redelivered += len(before)
			}
			f.add(q, slices.Concat(before, since, waiting)...)
			f.finished(q)
			f.once(slices.Concat(before, since, waiting)...)
			if n := f.ends.count(postgres.Done); n != redelivered {
				t.Errorf("%d were found done, want %d", n, redelivered)
			}
		})
	}
}

// TestD4ReplicaMissedTheAcks: a replica is promoted that missed what was
// settled. Every task comes once more, is found done, and settled again.
func TestD4ReplicaMissedTheAcks(t *testing.T) {
	t.Parallel()
	primary, replica := redistest.Start(t), redistest.Start(t)
	f := newFleet(t, primary.Client())
	tasks := ids("T", 50)
	f.add(f.q, tasks...)
	host, port, _ := strings.Cut(primary.Addr(), ":")
	rdb := replica.Client()
	if err := rdb.Do(t.Context(), "REPLICAOF", host, port).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the replica has the tasks", func() bool {
		n, err := rdb.XLen(context.Background(), f.q.StreamKey(0)).Result()
		return err == nil && n == int64(len(tasks))
	})
	if err := rdb.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil { // cut off from here on
		t.Fatal(err)
	}
	stop := f.work(f.q, f.pays())
	f.finished(f.q)
	stop()
	primary.Kill()
	q := f.on(rdb)
	f.work(q, f.pays())
	f.finished(q)
	f.once(tasks...)
	if n := f.ends.count(postgres.Done); n != len(tasks) {
		t.Errorf("%d were found done, want %d", n, len(tasks))
	}
}

// TestD2MemoryFull: the effects of handlers that run while the server is full
// are there once, and the queue drains.
func TestD2MemoryFull(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "--maxmemory", "8mb", "--maxmemory-policy", "noeviction")
	f := newFleet(t, srv.Client())
	tasks := ids("T", 30)
	f.add(f.q, tasks...)
	full := make(chan struct{})
	f.work(f.q, func(ctx context.Context, d consumer.Delivery) ([]byte, error) {
		select {
		case <-full:
		case <-ctx.Done():
		}
		return f.pays()(ctx, d)
	})
	rdb := srv.Client()
	for _, size := range []int{1 << 16, 1 << 8} {
		junk := strings.Repeat("x", size)
		for n := 0; ; n++ {
			if err := rdb.Set(t.Context(), fmt.Sprintf("junk-%d-%d", size, n), junk, 0).Err(); err != nil {
				break
			}
		}
	}
	r := f.q.Enqueue(t.Context(), f.q.NewToken(), []queue.Task{{ID: "late", Kind: "invoice.send", Payload: make([]byte, 1024)}})[0]
	if r.Err == nil {
		t.Error("the server is not full")
	}
	close(full)
	f.finished(f.q)
	f.once(tasks...)
}

// TestD3Eviction: a server that evicts like a cache forgets leases, done marks
// and tasks. No effect is doubled, and a job that enqueues what is not done
// brings every task to its end.
func TestD3Eviction(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "--maxmemory", "4mb", "--maxmemory-policy", "allkeys-random")
	f := newFleet(t, srv.Client())
	tasks := ids("T", 40)
	f.work(f.q, f.pays())
	f.work(f.on(srv.Client()), f.pays())
	rdb, junk, evicted := srv.Client(), strings.Repeat("x", 1<<10), false
	eventually(t, "all done", func() bool {
		for n := range 6000 { // more than fits: everything is evicted sooner or later
			if err := rdb.Set(context.Background(), fmt.Sprintf("cache-%d", n), junk, 0).Err(); err != nil {
				t.Error(err)
			}
		}
		if n, err := rdb.Exists(context.Background(), f.q.StreamKey(0)).Result(); err == nil && n == 0 {
			evicted = true
		}
		done, err := f.store.Completed(context.Background(), "billing", taskIDs(tasks)...)
		if err != nil {
			t.Fatal(err)
		}
		for i, id := range tasks {
			if _, ok := done[queue.TaskID(id)]; !ok || i%4 == 0 { // some are sent again although they are done
				f.q.Enqueue(context.Background(), f.q.NewToken(), []queue.Task{{ID: queue.TaskID(id), Kind: "invoice.send"}})
			}
		}
		return len(done) == len(tasks) && evicted && f.ends.count(postgres.Done) > 0
	})
	f.once(tasks...)
}

func taskIDs(texts []string) (list []queue.TaskID) {
	for _, t := range texts {
		list = append(list, queue.TaskID(t))
	}
	return list
}

// TestA3LateFinisher: a holder whose lease has ended writes and settles when
// its successor is at work, has finished, or has given up. Its write changes no
// row, whatever it returns, and its outcome is refused.
func TestA3LateFinisher(t *testing.T) {
	successor := map[string]func(*fleet, queue.Lease) queue.Settled{
		"at work": nil,
		"finished": func(f *fleet, l queue.Lease) queue.Settled {
			return f.q.Complete(f.t.Context(), []queue.Settlement{{Lease: l}})[0]
		},
		"gave up": func(f *fleet, l queue.Lease) queue.Settled {
			return f.q.DeadLetter(f.t.Context(), []queue.Settlement{{Lease: l, Reason: queue.DeadRejected}})[0]
		},
	}
	for name, settle := range successor {
		for _, succeeds := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/%v", name, succeeds), func(t *testing.T) {
				t.Parallel()
				f := newFleet(t, redistest.Shared(t).Client())
				must(t, f.pool, "create table invoices (number text primary key, paid_by bigint, fence bigint not null default 0)")
				must(t, f.pool, "insert into invoices (number) values ('T1')")
				pay := func(l queue.Lease) error {
					tag, err := f.pool.Exec(t.Context(), "update invoices set paid_by = $1, fence = $1 where number = $2 and fence <= $1", int64(l.Fence), string(l.TaskID))
					if err != nil {
						t.Fatal(err)
					}
					return postgres.Changed(tag, l)
				}
				f.add(f.q, "T1")
				first := f.take()
				second := f.take() // once the lease of the first has ended
				if err := pay(second); err != nil {
					t.Fatal(err)
				}
				if settle != nil {
					if s := settle(f, second); s.Err != nil || s.Outcome == queue.Lost {
						t.Fatalf("%+v", s)
					}
				}
				if err := pay(first); !errors.Is(err, postgres.ErrFenced) {
					t.Errorf("the late write: %v", err)
				}
				late := []queue.Settlement{{Lease: first, Error: "late"}}
				var got queue.Settled
				if succeeds {
					got = f.q.Complete(t.Context(), late)[0]
				} else {
					got = f.q.Retry(t.Context(), late)[0]
				}
				if got.Outcome != queue.Lost {
					t.Errorf("the late outcome: %+v", got)
				}
				var paidBy int64
				if err := f.pool.QueryRow(t.Context(), "select paid_by from invoices").Scan(&paidBy); err != nil || queue.Fence(paidBy) != second.Fence {
					t.Errorf("paid by %d, want %d, %v", paidBy, second.Fence, err)
				}
			})
		}
	}
}

// TestA5RenewalsDoNotGetThrough: a worker that is cut off from Redis goes on
// writing to the database, and does not even look at its context. The context
// ends before anybody else starts; once its successor has written, it changes
// no row any more, and the effect is there once.
func TestA5RenewalsDoNotGetThrough(t *testing.T) {
	t.Parallel()
	srv := redistest.Shared(t)
	f := newFleet(t, srv.Client())
	must(t, f.pool, "create table progress (task text primary key, step int not null, fence bigint not null)")
	must(t, f.pool, "insert into progress values ('T1', 0, 0)")
	write := func(l queue.Lease) error {
		tag, err := f.pool.Exec(context.Background(), "update progress set step = step + 1, fence = $1 where task = $2 and fence <= $1", int64(l.Fence), string(l.TaskID))
		if err != nil {
			return err
		}
		return postgres.Changed(tag, l)
	}
	proxy := faultredis.NewProxy(t, srv.Addr())
	cutOff := srv.Client(func(o *redis.Options) {
		o.Addr, o.ReadTimeout, o.ContextTimeoutEnabled = proxy.Addr(), 200*time.Millisecond, true
	})

	var lostAt, startedAt atomic.Int64
	taken, refused := make(chan struct{}), make(chan error, 1)
	stubborn := func(ctx context.Context, d consumer.Delivery) ([]byte, error) {
		close(taken)
		context.AfterFunc(ctx, func() { lostAt.Store(time.Now().UnixNano()) })
		for {
			if err := write(d.Lease); err != nil {
				refused <- err
				break
			}
		}
		_, err := postgres.Tx(context.Background(), f.store, d.Lease, effect(d.Lease))
		return nil, err
	}
	f.work(f.on(cutOff), stubborn)
	f.add(f.q, "T1")
	var once sync.Once
	select {
	case <-taken:
	case <-time.After(20 * time.Second):
		t.Fatal("nobody took the task")
	}
	proxy.BlackholeRequests()
	f.work(f.q, func(ctx context.Context, d consumer.Delivery) ([]byte, error) {
		once.Do(func() { startedAt.Store(time.Now().UnixNano()) })
		if err := write(d.Lease); err != nil {
			return nil, err
		}
		return f.pays()(ctx, d)
	})
	f.finished(f.q)
	if err := <-refused; !errors.Is(err, postgres.ErrFenced) {
		t.Errorf("the one that was cut off ended with %v", err)
	}
	if lost, started := lostAt.Load(), startedAt.Load(); lost == 0 || lost > started {
		t.Errorf("its context ended %v after the successor's start", time.Duration(lost-started))
	}
	proxy.Heal()
	f.once("T1")
}

// TestF2CompletionsOutlastRetries: a completion is kept for the retention,
// however late the next attempt comes. Once it is forgotten, one of two copies
// gets through.
func TestF2CompletionsOutlastRetries(t *testing.T) {
	pool := pgtest.Shared(t).Pool(t)
	var e ended
	s := newStore(t, pool, postgres.Config{Retention: time.Hour, Ended: e.add})
	l := lease("T1", 7)
	run := func() {
		if _, err := postgres.Tx(t.Context(), s, l, effect(l)); err != nil {
			t.Error(err)
		}
	}
	run()
	age(t, pool, 59*time.Minute)
	if n, _, err := s.Sweep(t.Context()); err != nil || n != 0 {
		t.Errorf("%d removed too soon, %v", n, err)
	}
	run()
	if n := effects(t, pool, "T1"); n != 1 {
		t.Fatalf("%d effects", n)
	}
	age(t, pool, 2*time.Minute)
	if n, _, err := s.Sweep(t.Context()); err != nil || n != 1 {
		t.Errorf("%d removed, %v", n, err)
	}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(run)
	}
	wg.Wait()
	if n := effects(t, pool, "T1"); n != 2 || e.count(postgres.Committed) != 2 {
		t.Errorf("after the retention: %d effects, %v", n, e.list)
	}
}
