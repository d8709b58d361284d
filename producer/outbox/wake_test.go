package outbox_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/claimq/claimq/producer/outbox"
	"github.com/claimq/claimq/queue"
)

const never = 24 * time.Hour

// idle waits until a relay has looked and found nothing: it waits now, or has
// begun to listen and will.
func idle(rounds told) {
	for (<-rounds).Taken > 0 {
	}
}

// TestCommitWakesARelay that would not look for a day.
func TestCommitWakesARelay(t *testing.T) {
	r := newRig(t, queue.Config{})
	rounds := make(told, 1000)
	stop := r.started(r.relay(outbox.RelayConfig{Poll: never, Observer: rounds}))
	for n, id := range []string{"a", "b", "c"} {
		idle(rounds)
		r.add(tasks(id)...)
		r.eventually(id+" is sent", func() bool { return r.rows("outbox_sent") == n+1 })
	}
	stop()
	r.holds("a", "b", "c")
}

// TestWithoutWaking: relays that are not woken, by who writes or by choice,
// find the rows when they look.
func TestWithoutWaking(t *testing.T) {
	r := newRig(t, queue.Config{})
	quiet, err := outbox.New(outbox.Config{Queue: "q", Quiet: true})
	if err != nil {
		t.Fatal(err)
	}
	for n, cfg := range []outbox.RelayConfig{{}, {PollOnly: true}} {
		cfg.Poll = 20 * time.Millisecond
		stop := r.started(r.relay(cfg))
		err := pgx.BeginFunc(t.Context(), r.pool, func(tx pgx.Tx) error {
			return quiet.Add(t.Context(), tx, numbered(n, n+1)...)
		})
		if err != nil {
			t.Fatal(err)
		}
		r.eventually("the row is sent", func() bool { return r.rows("outbox_sent") == n+1 })
		stop()
	}
	r.holds("t-0", "t-1")
	// Nobody was woken for these: a relay that waits for it waits for ever.
	rounds := make(told, 1000)
	r.started(r.relay(outbox.RelayConfig{Poll: never, Observer: rounds}))
	idle(rounds)
	err = pgx.BeginFunc(t.Context(), r.pool, func(tx pgx.Tx) error { return quiet.Add(t.Context(), tx, tasks("quiet")...) })
	if err != nil {
		t.Fatal(err)
	}
	r.stands(1, 2, 0)
	r.add(tasks("loud")...)
	r.eventually("both are sent", func() bool { return r.rows("outbox") == 0 })
	r.holds("t-0", "t-1", "quiet", "loud")
}

// TestWaitingKeepsTheConnection: a wait that runs out costs no new one, and one
// that was lost is replaced.
func TestWaitingKeepsTheConnection(t *testing.T) {
	r := newRig(t, queue.Config{})
	pid := func() (pid int) {
		r.eventually("the relay is there", func() bool {
			return r.pool.QueryRow(t.Context(), `select pid from pg_stat_activity
				where datname = current_database() and pid <> pg_backend_pid() and application_name = 'relay'`).Scan(&pid) == nil
		})
		return pid
	}
	rounds := make(told, 1000)
	conf := r.pool.Config()
	conf.ConnConfig.RuntimeParams["application_name"] = "relay"
	pool := connectWith(t, conf)
	r.started(r.relayOver(pool, outbox.RelayConfig{Poll: 5 * time.Millisecond, Observer: rounds}))
	first := pid()
	for range 20 {
		if round := <-rounds; round.Err != nil {
			t.Errorf("%+v", round)
		}
	}
	if now := pid(); now != first {
		t.Error("another connection after waits that ran out")
	}
	r.exec("select pg_terminate_backend($1)", first)
	r.add(tasks("a")...)
	r.eventually("the row is sent", func() bool { return r.rows("outbox") == 0 })
	if now := pid(); now == first {
		t.Error("the connection is still the one that was ended")
	}
}
