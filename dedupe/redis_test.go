package dedupe_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/dedupe"
	"github.com/claimq/claimq/internal/faultredis"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/queue"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// bench is a queue with one task at a time on a real server.
type bench struct {
	t      *testing.T
	q      *queue.Queue
	client *redis.Client
	ledger dedupe.Ledger
}

func newBench(t *testing.T, lease time.Duration) *bench {
	t.Helper()
	client := redistest.Shared(t).Client()
	q, err := queue.New(queue.Config{Name: "billing", Prefix: redistest.Prefix(t), Client: client, Lease: lease})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	if err := q.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &bench{t: t, q: q, client: client, ledger: dedupe.NewRedisLedger(q)}
}

func (b *bench) add(id queue.TaskID) {
	b.t.Helper()
	r := b.q.Enqueue(b.t.Context(), b.q.NewToken(), []queue.Task{{ID: id, Kind: "invoice.send"}})[0]
	if r.Err != nil || !r.Added {
		b.t.Fatalf("%+v", r)
	}
}

// take leases the one task there is, as soon as nobody else holds it.
func (b *bench) take() queue.Lease {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		entries, err := queue.Read(ctx, queue.ReadRequest{Queues: []*queue.Queue{b.q}, Consumer: "c", Max: 1})
		if err == nil && len(entries) == 0 {
			var r queue.Reclaimed
			r, err = b.q.Reclaim(ctx, queue.ReclaimRequest{Consumer: "c", Max: 1})
			entries = r.Entries
		}
		if err != nil {
			b.t.Fatal(err)
		}
		if len(entries) > 0 {
			batch, err := b.q.Begin(ctx, queue.BeginRequest{Token: b.q.NewToken(), Entries: entries, Start: 1})
			if err != nil {
				b.t.Fatal(err)
			}
			if len(batch.Deliveries) == 1 {
				return batch.Deliveries[0].Lease
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			b.t.Fatal("the task did not come back")
		}
	}
}

// side is the other side of a step. It may remember keys or not.
type side struct {
	remembers bool
	effects   int
	byKey     map[dedupe.Key]string
}

func (s *side) charge(key dedupe.Key) string {
	if id, known := s.byKey[key]; known && s.remembers {
		return id
	}
	s.effects++
	id := fmt.Sprintf("ch_%d", s.effects)
	s.byKey[key] = id
	return id
}

func (s *side) check(_ context.Context, key dedupe.Key) (string, bool, error) {
	id, known := s.byKey[key]
	return id, known, nil
}

// crashLedger ends the handler at a point, as a killed process would.
type crashLedger struct {
	dedupe.Ledger
	at string
}

func (c crashLedger) crash(point string) {
	if c.at == point {
		panic(point)
	}
}

func (c crashLedger) Intend(ctx context.Context, l queue.Lease, step string, key dedupe.Key, call queue.Token) (queue.Step, error) {
	c.crash("before intent")
	s, err := c.Ledger.Intend(ctx, l, step, key, call)
	c.crash("after intent")
	return s, err
}

func (c crashLedger) Record(ctx context.Context, l queue.Lease, step string, state queue.StepState, result []byte) (queue.Step, error) {
	c.crash("after call")
	s, err := c.Ledger.Record(ctx, l, step, state, result)
	c.crash("after record")
	return s, err
}

// TestCrashAtEveryPoint: the effect of a task whose worker died at any moment
// is there, never missing; and there once, if the other side remembers keys or
// can be asked. (F1)
func TestCrashAtEveryPoint(t *testing.T) {
	for _, at := range []string{"before intent", "after intent", "before effect", "after effect", "after call", "after record"} {
		for _, other := range []struct {
			name             string
			remembers, asked bool
		}{{"remembers keys", true, false}, {"is asked", false, true}, {"knows nothing", false, false}} {
			t.Run(at+"/"+other.name, func(t *testing.T) {
				t.Parallel()
				b := newBench(t, 600*time.Millisecond)
				b.add("invoice-1")
				s := &side{remembers: other.remembers, byKey: map[dedupe.Key]string{}}
				run := func(l queue.Lease, at string) (id string, err error) {
					defer func() { _ = recover() }()
					ledger := crashLedger{b.ledger, at}
					call := func(_ context.Context, key dedupe.Key) (string, error) {
						ledger.crash("before effect")
						id := s.charge(key)
						ledger.crash("after effect")
						return id, nil
					}
					if other.asked {
						return dedupe.StepChecked(t.Context(), ledger, l, "charge", call, s.check)
					}
					return dedupe.Step(t.Context(), ledger, l, "charge", call)
				}
				_, _ = run(b.take(), at)
				l := b.take() // once the lease of the first has ended
				id, err := run(l, "")
				if err != nil || id == "" {
					t.Fatalf("second run: %q, %v", id, err)
				}
				again, err := run(l, "")
				if err != nil || again != id {
					t.Errorf("third run: %q, %v, want %q", again, err, id)
				}
				most := 1
				if !other.remembers && !other.asked {
					most = 2 // at least once, as documented
				}
				if s.effects < 1 || s.effects > most {
					t.Errorf("%d effects, want 1 to %d", s.effects, most)
				}
			})
		}
	}
}

// TestLostReplies: each question to the ledger, not applied or applied with
// the reply lost, ends in one call and one result.
func TestLostReplies(t *testing.T) {
	b := newBench(t, time.Minute)
	b.add("warm-up") // so that the server knows the scripts
	l := b.take()
	if _, err := dedupe.Step(t.Context(), b.ledger, l, "charge", func(context.Context, dedupe.Key) (string, error) { return "", nil }); err != nil {
		t.Fatal(err)
	}
	if s := b.q.Complete(t.Context(), []queue.Settlement{{Lease: l}})[0]; s.Err != nil {
		t.Fatal(s.Err)
	}
	hook := faultredis.New(b.client)
	for i, f := range []func(faultredis.Match) faultredis.Fault{faultredis.FailBefore, faultredis.LoseReply} {
		for _, what := range []string{"intent", "result"} {
			id := queue.TaskID(fmt.Sprintf("task-%d-%s", i, what))
			b.add(id)
			l := b.take()
			match := faultredis.Mentions(dedupe.KeyFor("billing", id, "charge").String())
			if what == "result" {
				match = faultredis.Mentions("ch_" + string(id))
			}
			fault := hook.Inject(f(match).Times(2))
			calls := 0
			got, err := dedupe.Step(t.Context(), b.ledger, l, "charge", func(context.Context, dedupe.Key) (string, error) {
				calls++
				return "ch_" + string(id), nil
			})
			if err != nil || got != "ch_"+string(id) || calls != 1 || fault.Fired() != 2 {
				t.Errorf("%s: %q, %v, %d calls, %d faults", id, got, err, calls, fault.Fired())
			}
			fault.Remove()
			steps, err := b.ledger.Steps(t.Context(), id)
			if err != nil || len(steps) != 1 || steps[0].State != queue.StepDone || string(steps[0].Result) != "ch_"+string(id) {
				t.Errorf("%s: %+v, %v", id, steps, err)
			}
			if s := b.q.Complete(t.Context(), []queue.Settlement{{Lease: l}})[0]; s.Err != nil {
				t.Fatal(s.Err)
			}
		}
	}
}

// TestLateHolder: a holder that was replaced may not call, its finished call
// is kept, and a second one that differs is reported. (I4 and its exception)
func TestLateHolder(t *testing.T) {
	b := newBench(t, 600*time.Millisecond)
	b.add("invoice-1")
	first := b.take()
	var second queue.Lease
	id, err := dedupe.Step(t.Context(), b.ledger, first, "charge", func(context.Context, dedupe.Key) (string, error) {
		second = b.take() // replaced during the call
		return "ch_first", nil
	})
	if err != nil || id != "ch_first" {
		t.Fatalf("%q, %v", id, err)
	}
	never := func(context.Context, dedupe.Key) (string, error) { t.Error("called"); return "", nil }
	if id, err := dedupe.Step(t.Context(), b.ledger, second, "charge", never); err != nil || id != "ch_first" {
		t.Errorf("the new holder gets %q, %v", id, err)
	}
	if _, err := dedupe.Step(t.Context(), b.ledger, first, "mail", never); !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("the old holder may start a step: %v", err)
	}
	if _, err := b.ledger.Record(t.Context(), first, "charge", queue.StepDone, []byte("ch_other")); !errors.Is(err, queue.ErrStepConflict) {
		t.Errorf("a different result: %v", err)
	}
}

// TestDeletedTaskStaysDeleted: a result that comes in after the task was
// deleted leaves no record behind. (F4)
func TestDeletedTaskStaysDeleted(t *testing.T) {
	b := newBench(t, time.Minute)
	b.add("invoice-1")
	id, err := dedupe.Step(t.Context(), b.ledger, b.take(), "charge", func(context.Context, dedupe.Key) (string, error) {
		if m := b.q.Delete(t.Context(), []queue.TaskID{"invoice-1"})[0]; m.Err != nil {
			t.Fatal(m.Err)
		}
		return "ch_1", nil
	})
	if !errors.Is(err, queue.ErrLeaseLost) || id != "ch_1" {
		t.Errorf("%q, %v", id, err)
	}
	if _, err := b.ledger.Steps(t.Context(), "invoice-1"); !errors.Is(err, queue.ErrNotFound) {
		t.Errorf("steps of a deleted task: %v", err)
	}
	b.add("invoice-1") // the ID is free again
}
