package outbox_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/claimq/claimq/internal/faultredis"
	"github.com/claimq/claimq/internal/pgtest"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/producer/outbox"
	"github.com/claimq/claimq/queue"
)

// TestOrder: one relay sends rows as they were written, whatever the order in
// which their transactions were begun, and misses none that commits late with a
// low number.
func TestOrder(t *testing.T) {
	r := newRig(t, queue.Config{})
	late, err := r.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.box.Add(t.Context(), late, tasks("late")...); err != nil {
		t.Fatal(err)
	}
	r.add(tasks("c", "a", "b")...)
	r.add(tasks("z", "y")...)
	relay := r.relay(outbox.RelayConfig{Batch: 2})
	for range 3 {
		if _, err := relay.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r.holds("c", "a", "b", "z", "y")
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if round, err := relay.Once(t.Context()); err != nil || round.Added != 1 {
		t.Errorf("%+v", round)
	}
	r.holds("c", "a", "b", "z", "y", "late")
}

// TestSeveralRelays share the rows: each is sent once, by one of them.
func TestSeveralRelays(t *testing.T) {
	r := newRig(t, queue.Config{Partitions: 2})
	const n = 600
	r.add(numbered(0, n)...)
	var seen log
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 3 {
		relay := r.relay(outbox.RelayConfig{Batch: 20, Poll: 20 * time.Millisecond, Observer: &seen})
		wg.Go(func() {
			if err := relay.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	r.eventually("everything is sent", func() bool { return r.rows("outbox") == 0 })
	cancel()
	wg.Wait()
	ids := r.stream()
	slices.Sort(ids)
	if len(ids) != n || len(slices.Compact(ids)) != n {
		t.Errorf("%d entries", len(ids))
	}
	for _, round := range seen.all() {
		if round.Duplicate > 0 || round.Err != nil {
			t.Errorf("%+v", round)
		}
	}
	r.stands(0, n, 0)
}

// errCrash ends a batch where a process could have died.
var errCrash = errors.New("crash")

// TestCrashAtEveryPoint of a batch: the next relay finishes what was begun, and
// nothing is lost or added twice.
func TestCrashAtEveryPoint(t *testing.T) {
	for point, duplicates := range map[string]int{"taken": 0, "sent": 3, "settled": 3, "committed": -1} {
		t.Run(point, func(t *testing.T) {
			r := newRig(t, queue.Config{})
			r.add(tasks("a", "b", "c")...)
			relay := r.relay(outbox.RelayConfig{})
			relay.At(func(p string) {
				if p == point {
					panic(errCrash)
				}
			})
			func() {
				defer func() {
					if recover() != errCrash {
						t.Errorf("point %s was not reached", point)
					}
				}()
				_, _ = relay.Once(t.Context())
			}()
			round, err := r.relay(outbox.RelayConfig{}).Once(t.Context())
			want := outbox.Round{Queue: "q", Taken: 3, Added: 3 - duplicates, Duplicate: duplicates}
			if duplicates < 0 {
				want = outbox.Round{Queue: "q"}
			}
			if err != nil || round.Taken != want.Taken || round.Added != want.Added || round.Duplicate != want.Duplicate {
				t.Errorf("the next relay: %+v, want %+v", round, want)
			}
			r.holds("a", "b", "c")
			r.stands(0, 3, 0)
		})
	}
}

// TestEachFailureAddsOnce: a send that was not applied, and one that was and
// whose answer was lost, leave the rows, and end in one task each.
func TestEachFailureAddsOnce(t *testing.T) {
	for name, c := range map[string]struct {
		fault     func(faultredis.Match) faultredis.Fault
		duplicate int
		why       error
	}{
		"not applied": {faultredis.FailBefore, 0, queue.ErrIndefinite},
		"reply lost":  {faultredis.LoseReply, 3, queue.ErrIndefinite},
		"refused": {func(m faultredis.Match) faultredis.Fault {
			return faultredis.ReplyError(m, "OOM command not allowed when used memory > 'maxmemory'")
		}, 0, queue.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, queue.Config{})
			r.add(tasks("a", "b", "c")...)
			relay := r.relay(outbox.RelayConfig{Producer: impatient})
			r.hook.Inject(c.fault(faultredis.Command("evalsha")).Once())
			round, err := relay.Once(t.Context())
			if !errors.Is(err, c.why) || round.Taken != 3 || round.Left != 3 {
				t.Errorf("%+v", round)
			}
			r.stands(3, 0, 0)
			round, err = relay.Once(t.Context())
			if err != nil || round.Added != 3-c.duplicate || round.Duplicate != c.duplicate {
				t.Errorf("again: %+v", round)
			}
			r.holds("a", "b", "c")
			r.stands(0, 3, 0)
		})
	}
}

// TestCommitIsNotAnswered: the commit arrives or not, and the relay does not
// hear of it. Either way the row is in the queue once.
func TestCommitIsNotAnswered(t *testing.T) {
	for name, c := range map[string]struct {
		lose      func(*faultredis.Proxy)
		left      int
		duplicate int
	}{
		"lost on the way":       {(*faultredis.Proxy).BlackholeRequests, 2, 2},
		"applied, answer lost":  {(*faultredis.Proxy).BlackholeReplies, 0, 0},
		"the connection breaks": {(*faultredis.Proxy).Cut, 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, queue.Config{})
			proxy := faultredis.NewProxy(t, pgtest.Shared(t).Addr())
			pool := pgtest.Connect(t, strings.Replace(r.dsn, pgtest.Shared(t).Addr(), proxy.Addr(), 1))
			r.add(tasks("a", "b")...)
			relay := r.relayOver(pool, outbox.RelayConfig{Timeout: outbox.MinTimeout})
			relay.At(func(point string) {
				if point == "settled" {
					c.lose(proxy)
				}
			})
			round, err := relay.Once(t.Context())
			if err == nil || round.Added != 2 {
				t.Errorf("%+v", round)
			}
			proxy.Cut()
			proxy.Heal()
			relay.At(nil)
			r.eventually("the server has seen that the connection is gone", func() bool {
				return r.rows("outbox") == c.left && r.locked() == 0
			})
			round, err = relay.Once(t.Context())
			if err != nil || round.Taken != c.left || round.Added != 0 || round.Duplicate != c.duplicate {
				t.Errorf("again: %+v", round)
			}
			r.holds("a", "b")
			r.stands(0, 2, 0)
		})
	}
}

// locked counts the batches that are on their way, as the server sees it.
func (r *rig) locked() (n int) {
	r.t.Helper()
	err := r.pool.QueryRow(r.t.Context(), `select count(*) from pg_locks l join pg_database d on d.oid = l.database
		where l.locktype = 'advisory' and d.datname = current_database() and l.granted`).Scan(&n)
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// TestFrozenRelay: one that stops with rows in hand has them until its Timeout
// only, and does no harm when it goes on.
func TestFrozenRelay(t *testing.T) {
	r := newRig(t, queue.Config{})
	r.add(tasks("a", "b")...)
	frozen := r.relay(outbox.RelayConfig{Timeout: outbox.MinTimeout})
	reached, goOn := make(chan struct{}), make(chan struct{})
	thaw := sync.OnceFunc(func() { close(goOn) })
	defer thaw()
	frozen.At(func(point string) {
		if point == "taken" {
			close(reached)
			<-goOn
		}
	})
	ended := make(chan error, 1)
	go func() {
		_, err := frozen.Once(context.WithoutCancel(t.Context()))
		ended <- err
	}()
	<-reached
	other := r.relay(outbox.RelayConfig{})
	if round, err := other.Once(t.Context()); err != nil || round.Taken != 0 {
		t.Errorf("while the rows are taken: %+v", round)
	}
	r.eventually("the rows are free again", func() bool {
		round, err := other.Once(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return round.Added == 2
	})
	thaw()
	if err := <-ended; err == nil {
		t.Error("the frozen relay noticed nothing")
	}
	r.holds("a", "b")
	r.stands(0, 2, 0)
}

// TestRefusedIsSetAside: what can never be a task is out of the way of the
// others, with its reason, and can be sent once the reason is gone.
func TestRefusedIsSetAside(t *testing.T) {
	r := newRig(t, queue.Config{MaxPayload: 100})
	r.add(append(tasks("a"), queue.Task{ID: "large", Kind: "k", Payload: make([]byte, 101)})...)
	r.exec(`insert into claimq.outbox (queue, task_id, kind, headers) values ('q', 'headers', 'k', '{"a": 1}')`)
	r.add(tasks("b")...)
	relay := r.relay(outbox.RelayConfig{Batch: 2})
	for _, want := range []outbox.Round{{Taken: 2, Added: 1, Refused: 1}, {Taken: 2, Added: 1, Refused: 1}, {}} {
		if round, err := relay.Once(t.Context()); err != nil || round.Taken != want.Taken || round.Added != want.Added || round.Refused != want.Refused {
			t.Errorf("%+v, want %+v", round, want)
		}
	}
	r.holds("a", "b")
	r.stands(0, 2, 2)
	rows, err := r.pool.Query(t.Context(), "select task_id || ': ' || error from claimq.outbox_refused order by id")
	if err != nil {
		t.Fatal(err)
	}
	why, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(why) != 2 || !strings.Contains(why[0], "large: invalid task: Payload: at most 100 bytes, got 101") ||
		!strings.Contains(why[1], "headers: invalid task: headers: the values are strings") {
		t.Errorf("%q, %v", why, err)
	}
	if stats, err := outbox.ReadStats(t.Context(), r.pool, ""); err != nil || len(stats) != 1 || stats[0].Refused != 2 {
		t.Errorf("%+v, %v", stats, err)
	}

	r.exec(`update claimq.outbox_refused set headers = '{"a": "1"}' where task_id = 'headers'`)
	if n, err := outbox.RetryRefused(t.Context(), r.pool, "", "q"); err != nil || n != 2 {
		t.Errorf("%d, %v", n, err)
	}
	if round, err := relay.Once(t.Context()); err != nil || round.Added != 1 || round.Refused != 1 {
		t.Errorf("%+v", round)
	}
	r.holds("a", "b", "headers")
	r.stands(0, 3, 1)
}

// TestQueueFull: what does not fit stays, and follows when there is room.
func TestQueueFull(t *testing.T) {
	r := newRig(t, queue.Config{MaxBacklog: 3})
	r.add(tasks("a", "b", "c", "d", "e")...)
	relay := r.relay(outbox.RelayConfig{})
	round, err := relay.Once(t.Context())
	if !errors.Is(err, queue.ErrQueueFull) || round.Added != 3 || round.Left != 2 {
		t.Errorf("%+v", round)
	}
	r.holds("a", "b", "c")
	r.stands(2, 3, 0)
	r.started(relay)
	for id, n := range r.work(5) {
		if n != 1 {
			t.Errorf("%s ran %d times", id, n)
		}
	}
	r.eventually("the rest is sent", func() bool { return r.rows("outbox") == 0 })
	r.stands(0, 5, 0)
}

// TestServersGoAndComeBack: neither Redis nor the database being away ends a
// relay or loses a row.
func TestServersGoAndComeBack(t *testing.T) {
	srv := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	r := newRigOn(t, srv, queue.Config{})
	var seen log
	r.started(r.relay(outbox.RelayConfig{Poll: 20 * time.Millisecond, Producer: impatient, Observer: &seen}))
	r.add(tasks("a")...)
	r.eventually("the first is sent", func() bool { return r.rows("outbox") == 0 })
	srv.Kill()
	r.add(tasks("b")...)
	failures := func() int {
		n := 0
		for _, round := range seen.all() {
			if round.Err != nil {
				n++
			}
		}
		return n
	}
	r.eventually("Redis is missed", func() bool { return failures() > 0 })
	srv.Restart()
	r.eventually("the second is sent", func() bool { return r.rows("outbox") == 0 })

	before := failures()
	r.exec(`select pg_terminate_backend(pid) from pg_stat_activity
		where datname = current_database() and pid <> pg_backend_pid() and query like '%claimq_outbox%'`)
	r.add(tasks("c")...)
	r.eventually("the third is sent", func() bool { return r.rows("outbox") == 0 })
	t.Logf("%d failures with Redis, %d with the database", before, failures()-before)
	r.holds("a", "b", "c")
}

// TestRunEndsWhenWaitingMendsNothing: with tables that are missing, and with a
// queue that was made otherwise.
func TestRunEndsWhenWaitingMendsNothing(t *testing.T) {
	r := newRig(t, queue.Config{})
	other, err := queue.New(queue.Config{Name: "q", Prefix: r.q.Config().Prefix, Client: r.rdb, Partitions: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	r.add(tasks("a")...)
	relay, err := outbox.NewRelay(r.pool, other, outbox.RelayConfig{Producer: producer.Config{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := relay.Run(t.Context()); !errors.Is(err, queue.ErrMismatch) {
		t.Errorf("another queue: %v", err)
	}
	r.stands(1, 0, 0)
	empty := pgtest.Shared(t).Pool(t)
	if err := r.relayOver(empty, outbox.RelayConfig{}).Run(t.Context()); !errors.Is(err, outbox.ErrSchema) {
		t.Errorf("no tables: %v", err)
	}
	r.exec("drop table claimq.outbox_refused, claimq.outbox cascade")
	if err := r.relay(outbox.RelayConfig{}).Run(t.Context()); !errors.Is(err, outbox.ErrSchema) {
		t.Errorf("tables dropped: %v", err)
	}
}

// TestStopFinishesTheBatch that is on its way, and nothing more.
func TestStopFinishesTheBatch(t *testing.T) {
	r := newRig(t, queue.Config{})
	r.add(tasks("a", "b", "c")...)
	relay := r.relay(outbox.RelayConfig{Batch: 2})
	ctx, stop := context.WithCancel(t.Context())
	relay.At(func(point string) {
		if point == "taken" {
			stop()
		}
	})
	if err := relay.Run(ctx); err != nil {
		t.Error(err)
	}
	r.holds("a", "b")
	r.stands(1, 2, 0)
}

// TestStats: the backlog and its age, also of a queue that nobody relays.
func TestStats(t *testing.T) {
	r := newRig(t, queue.Config{})
	if stats, err := outbox.ReadStats(t.Context(), r.pool, ""); err != nil || len(stats) != 0 {
		t.Errorf("empty: %+v, %v", stats, err)
	}
	r.add(tasks("a", "b", "c")...)
	r.exec("update claimq.outbox set created_at = created_at - interval '90 seconds' where task_id = 'a'")
	r.exec("insert into claimq.outbox (queue, task_id, kind) values ('misspelt', 'a', 'k')")
	stats, err := outbox.ReadStats(t.Context(), r.pool, "")
	if err != nil || len(stats) != 2 || stats[0].Queue != "misspelt" || stats[0].Unsent != 1 || stats[0].Lag > patience ||
		stats[1].Queue != "q" || stats[1].Unsent != 3 || stats[1].Lag < 90*time.Second || stats[1].Lag > 90*time.Second+patience {
		t.Errorf("%+v, %v", stats, err)
	}
	if _, err := r.relay(outbox.RelayConfig{}).Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	stats, err = outbox.ReadStats(t.Context(), r.pool, "")
	if err != nil || len(stats) != 1 || stats[0].Queue != "misspelt" {
		t.Errorf("afterwards: %+v, %v", stats, err)
	}
	if _, err := outbox.ReadStats(t.Context(), r.pool, "elsewhere"); !errors.Is(err, outbox.ErrSchema) {
		t.Errorf("no tables: %v", err)
	}
}

// TestPauses grow from failure to failure, up to a limit, and differ.
func TestPauses(t *testing.T) {
	for failed, longest := range map[int]time.Duration{
		0: 100 * time.Millisecond, 1: 200 * time.Millisecond, 5: 3200 * time.Millisecond, 7: 10 * time.Second, 1000: 10 * time.Second,
	} {
		seen := map[time.Duration]bool{}
		for range 100 {
			d := outbox.PauseAfter(failed)
			seen[d] = true
			if d < longest/2 || d > longest {
				t.Errorf("after %d failures: %v", failed, d)
			}
		}
		if len(seen) < 50 {
			t.Errorf("after %d failures: %d different pauses", failed, len(seen))
		}
	}
}
