package outbox_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/claimq/claimq/internal/faultredis"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/producer/outbox"
	"github.com/claimq/claimq/queue"
)

// TestResendWhatRedisForgot: a server that comes back empty gets what was
// unfinished again; one that has forgotten nothing takes nothing.
func TestResendWhatRedisForgot(t *testing.T) {
	srv := redistest.Start(t)
	r := newRigOn(t, srv, queue.Config{})
	relay := r.relay(outbox.RelayConfig{Batch: 3})
	r.add(tasks("done-1", "done-2")...)
	if _, err := relay.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.work(2)
	r.add(tasks("a", "b", "c", "d", "e")...)
	for range 2 {
		if _, err := relay.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// Rows of transactions that committed late were sent after ones with greater
	// numbers.
	r.exec("update claimq.outbox_sent set id = 1000 - id")
	sum, err := relay.Resend(t.Context(), time.Hour)
	if want := (producer.Summary{Duplicate: 7}); err != nil || sum != want {
		t.Errorf("nothing forgotten: %+v, %v", sum, err)
	}
	r.holds("a", "b", "c", "d", "e")

	r.exec("update claimq.outbox_sent set sent_at = sent_at - interval '10 minutes' where task_id like 'done%'")
	srv.Kill()
	srv.Restart()
	r.add(tasks("f")...)
	if round, err := relay.Once(t.Context()); err != nil || round.Added != 1 {
		t.Errorf("%+v", round)
	}
	sum, err = relay.Resend(t.Context(), 5*time.Minute)
	if want := (producer.Summary{Added: 5, Duplicate: 1}); err != nil || sum != want {
		t.Errorf("all forgotten: %+v, %v", sum, err)
	}
	r.holds("f", "a", "b", "c", "d", "e")
	r.stands(0, 8, 0)
}

// TestResendWaitsForBatches that are on their way: their rows are neither in
// the outbox nor among the sent ones for who looks too early.
func TestResendWaitsForBatches(t *testing.T) {
	r := newRig(t, queue.Config{})
	r.add(tasks("a")...)
	slow := r.relay(outbox.RelayConfig{})
	reached, goOn := make(chan struct{}), make(chan struct{})
	proceed := sync.OnceFunc(func() { close(goOn) })
	defer proceed()
	slow.At(func(point string) {
		if point == "settled" {
			close(reached)
			<-goOn
		}
	})
	sent := make(chan error, 1)
	go func() {
		_, err := slow.Once(context.WithoutCancel(t.Context()))
		sent <- err
	}()
	<-reached
	if moved := r.q.Delete(t.Context(), []queue.TaskID{"a"}); moved[0].Err != nil { // as if forgotten
		t.Fatal(moved[0].Err)
	}
	type answer struct {
		sum producer.Summary
		err error
	}
	resent := make(chan answer, 1)
	go func() {
		sum, err := r.relay(outbox.RelayConfig{}).Resend(context.WithoutCancel(t.Context()), time.Hour)
		resent <- answer{sum, err}
	}()
	waiting := func() (n int) {
		err := r.pool.QueryRow(t.Context(), "select count(*) from pg_locks where locktype = 'advisory' and not granted").Scan(&n)
		if err != nil {
			t.Error(err)
		}
		return n
	}
	r.eventually("the resend waits", func() bool { return waiting() == 1 || len(resent) == 1 })
	proceed()
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if a := <-resent; a.err != nil || a.sum != (producer.Summary{Added: 1}) {
		t.Errorf("%+v", a)
	}
	r.holds("a")
}

// TestResendStopsAtFailures and says how far it came; a second call does the
// rest.
func TestResendStopsAtFailures(t *testing.T) {
	r := newRig(t, queue.Config{})
	relay := r.relay(outbox.RelayConfig{Batch: 2, Producer: impatient})
	r.add(numbered(0, 6)...)
	for range 3 {
		if _, err := relay.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r.hook.Inject(faultredis.FailBefore(faultredis.After(1, faultredis.Command("evalsha"))).Once())
	sum, err := relay.Resend(t.Context(), time.Hour)
	if _, ok := errors.AsType[*producer.Error](err); !ok || !errors.Is(err, queue.ErrIndefinite) || sum != (producer.Summary{Duplicate: 2, Indefinite: 2}) {
		t.Errorf("%+v, %v", sum, err)
	}
	if sum, err = relay.Resend(t.Context(), time.Hour); err != nil || sum != (producer.Summary{Duplicate: 6}) {
		t.Errorf("%+v, %v", sum, err)
	}
}

// TestResendWindow: no wider than finished IDs are remembered.
func TestResendWindow(t *testing.T) {
	r := newRig(t, queue.Config{Retention: time.Hour})
	relay := r.relay(outbox.RelayConfig{})
	for _, window := range []time.Duration{0, -1, time.Hour} {
		if _, err := relay.Resend(t.Context(), window); !errors.Is(err, queue.ErrInvalidConfig) {
			t.Errorf("%v: %v", window, err)
		}
	}
	if _, err := relay.Resend(t.Context(), time.Hour-outbox.DefaultTimeout); err != nil {
		t.Error(err)
	}
}

// TestSentRowsAreKeptForAWhile, or not at all.
func TestSentRowsAreKeptForAWhile(t *testing.T) {
	r := newRig(t, queue.Config{})
	r.add(tasks("a", "b")...)
	if _, err := r.relay(outbox.RelayConfig{}).Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.exec("update claimq.outbox_sent set sent_at = sent_at - interval '59 minutes'")
	r.exec("update claimq.outbox_sent set sent_at = sent_at - interval '2 minutes' where task_id = 'a'")
	r.exec(`insert into claimq.outbox_sent (id, queue, task_id, kind, payload, content_type, delay_ms, created_at, sent_at)
		select n, 'q', 'old-' || n, 'k', '', '', 0, now(), now() - interval '2 hours' from generate_series(1000, 3500) n`)
	stop := r.started(r.relay(outbox.RelayConfig{}))
	r.eventually("the old ones are gone", func() bool { return r.rows("outbox_sent") == 1 })
	stop()

	r.add(tasks("c")...)
	if round, err := r.relay(outbox.RelayConfig{Keep: -1}).Once(t.Context()); err != nil || round.Added != 1 {
		t.Errorf("%+v", round)
	}
	r.stands(0, 1, 0)
	if ids := r.stream(); !slices.Equal(ids, []string{"a", "b", "c"}) {
		t.Errorf("%q", ids)
	}
}
