package outbox_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/claimq/claimq/producer/outbox"
	"github.com/claimq/claimq/queue"
)

// TestI5TaskInTransaction: a task comes about with what its transaction writes
// or not at all, with pgx and with database/sql. (I5)
func TestI5TaskInTransaction(t *testing.T) {
	r := newRig(t, queue.Config{})
	r.exec("create table invoices (number int)")
	db, err := sql.Open("pgx", r.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	relay := r.relay(outbox.RelayConfig{})
	for n, commit := range []bool{false, true} {
		number := 4821 + n
		tx, err := r.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "insert into invoices values ($1)", number); err != nil {
			t.Fatal(err)
		}
		if err := r.box.Add(t.Context(), tx, tasks("pgx-"+string(rune('0'+n)))...); err != nil {
			t.Fatal(err)
		}
		if round, err := relay.Once(t.Context()); err != nil || round.Taken != 0 {
			t.Errorf("before the end of the transaction: %+v", round)
		}
		end := tx.Rollback
		if commit {
			end = tx.Commit
		}
		if err := end(t.Context()); err != nil {
			t.Fatal(err)
		}

		std, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.box.AddSQL(t.Context(), std, tasks("sql-"+string(rune('0'+n)))...); err != nil {
			t.Fatal(err)
		}
		endSQL := std.Rollback
		if commit {
			endSQL = std.Commit
		}
		if err := endSQL(); err != nil {
			t.Fatal(err)
		}
		round, err := relay.Once(t.Context())
		if want := map[bool]int{false: 0, true: 2}[commit]; err != nil || round.Added != want {
			t.Errorf("commit %v: %+v", commit, round)
		}
	}
	r.holds("pgx-1", "sql-1")
	r.stands(0, 2, 0)
	var numbers []int
	if err := r.pool.QueryRow(t.Context(), "select array_agg(number) from invoices").Scan(&numbers); err != nil || len(numbers) != 1 {
		t.Errorf("invoices %v, %v", numbers, err)
	}
}

// TestTaskArrivesAsItWasWritten, every field of it.
func TestTaskArrivesAsItWasWritten(t *testing.T) {
	r := newRig(t, queue.Config{})
	db, err := sql.Open("pgx", r.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	due := time.Now().Add(time.Hour).Truncate(time.Millisecond).UTC()
	in := []queue.Task{
		{ID: "plain", Kind: "k"},
		{ID: "all", Kind: "invoice.send", Payload: []byte("\x00\xff binary"), ContentType: "application/json",
			Headers: map[string]string{"traceparent": "00-ab", "odd": "\x00 \"ü\" {}"}, Deadline: due.Add(time.Hour)},
		{ID: "due", Kind: "k", Due: due},
		{ID: "delayed", Kind: "k", Delay: 2 * time.Hour},
	}
	r.add(in...)
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range in {
		in[i].ID += "-sql"
	}
	if err := errors.Join(r.box.AddSQL(t.Context(), tx, in...), tx.Commit()); err != nil {
		t.Fatal(err)
	}
	r.exec("update claimq.outbox set created_at = created_at - interval '30 minutes' where task_id like 'delayed%'")
	if round, err := r.relay(outbox.RelayConfig{}).Once(t.Context()); err != nil || round.Added != 8 {
		t.Fatalf("%+v", round)
	}
	for _, suffix := range []string{"", "-sql"} {
		for _, want := range in {
			want.ID = queue.TaskID(strings.TrimSuffix(string(want.ID), "-sql") + suffix)
			info, err := r.q.Inspect(t.Context(), want.ID)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case !want.Due.IsZero() && !info.Due.Equal(want.Due):
				t.Errorf("%s is due at %v, want %v", want.ID, info.Due, want.Due)
			case want.Delay > 0:
				// Of the two hours, half of one had passed in the outbox.
				if left := time.Until(info.Due); left > 90*time.Minute || left < 85*time.Minute {
					t.Errorf("%s is due in %v", want.ID, left)
				}
			}
			got := *info.Task
			got.EnqueuedAt, want.Due, want.Delay = time.Time{}, time.Time{}, 0
			if want.Payload == nil {
				want.Payload = []byte{}
			}
			got.Deadline, want.Deadline = got.Deadline.UTC(), want.Deadline.UTC()
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-written +arrived):\n%s", want.ID, diff)
			}
		}
	}
}

// TestInvalidTaskIsRefusedBeforeItIsWritten: the transaction can go on.
func TestInvalidTaskIsRefusedBeforeItIsWritten(t *testing.T) {
	r := newRig(t, queue.Config{})
	err := pgx.BeginFunc(t.Context(), r.pool, func(tx pgx.Tx) error {
		for field, bad := range map[string]queue.Task{
			"ID":          {ID: "a b", Kind: "k"},
			"Kind":        {ID: "a"},
			"Payload":     {ID: "a", Kind: "k", Payload: make([]byte, queue.DefaultMaxPayload+1)},
			"ContentType": {ID: "a", Kind: "k", ContentType: "\x00"},
			"Headers":     {ID: "a", Kind: "k", Headers: map[string]string{"a b": ""}},
			"Delay":       {ID: "a", Kind: "k", Delay: -1},
			"Due":         {ID: "a", Kind: "k", Delay: 1, Due: time.Now()},
		} {
			err := r.box.Add(t.Context(), tx, append(tasks("first"), bad)...)
			fe, ok := errors.AsType[*queue.FieldError](err)
			if !ok || fe.Field != field || !errors.Is(err, queue.ErrInvalidTask) || !strings.Contains(err.Error(), "task 2 of 2") {
				t.Errorf("%s: %v", field, err)
			}
		}
		return r.box.Add(t.Context(), tx, tasks("good")...)
	})
	if err != nil {
		t.Fatal(err)
	}
	if round, err := r.relay(outbox.RelayConfig{}).Once(t.Context()); err != nil || round.Added != 1 {
		t.Errorf("%+v", round)
	}
	r.holds("good")
}

// TestManyTasksInOneTransaction: more than one statement takes, in their order,
// also those without an ID.
func TestManyTasksInOneTransaction(t *testing.T) {
	r := newRig(t, queue.Config{})
	in := numbered(0, 1203)
	in[700].ID = ""
	for i := 100; i < 140; i++ {
		in[i].Payload = make([]byte, 200<<10) // more than one statement holds
	}
	r.add(in...)
	relay := r.relay(outbox.RelayConfig{Batch: 1000})
	for range 2 {
		if _, err := relay.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	got := r.stream()
	if len(got) != len(in) {
		t.Fatalf("%d tasks arrived", len(got))
	}
	for i, task := range in {
		if got[i] != string(task.ID) && (i != 700 || len(got[i]) != 36) {
			t.Fatalf("task %d is %s", i, got[i])
		}
	}
	if err := r.box.Add(t.Context(), nil); err != nil {
		t.Errorf("no tasks: %v", err)
	}
}

// TestRowsByHand: any program may insert rows, and the tables refuse what no
// queue takes.
func TestRowsByHand(t *testing.T) {
	r := newRig(t, queue.Config{})
	r.exec(`insert into claimq.outbox (queue, task_id, kind, payload, headers) values ('q', 'by-hand', 'k', 'text', '{"a": "b"}')`)
	for _, bad := range []string{
		`insert into claimq.outbox (queue, task_id, kind) values ('q q', 'a', 'k')`,
		`insert into claimq.outbox (queue, task_id, kind) values ('q', 'a b', 'k')`,
		`insert into claimq.outbox (queue, task_id, kind) values ('q', 'ä', 'k')`,
		`insert into claimq.outbox (queue, task_id, kind) values ('q', repeat('a', 201), 'k')`,
		`insert into claimq.outbox (queue, task_id, kind) values ('q', 'a', '')`,
		`insert into claimq.outbox (queue, task_id, kind, headers) values ('q', 'a', 'k', '[]')`,
		`insert into claimq.outbox (queue, task_id, kind, due) values ('q', 'a', 'k', 'infinity')`,
		`insert into claimq.outbox (queue, task_id, kind, deadline) values ('q', 'a', 'k', '-infinity')`,
		`insert into claimq.outbox (queue, task_id, kind, delay_ms, due) values ('q', 'a', 'k', 1, now())`,
		`insert into claimq.outbox (queue, task_id, kind, delay_ms) values ('q', 'a', 'k', -1)`,
		`insert into claimq.outbox (id, queue, task_id, kind) values (1, 'q', 'a', 'k')`,
	} {
		if _, err := r.pool.Exec(t.Context(), bad); err == nil {
			t.Errorf("accepted: %s", bad)
		}
	}
	if round, err := r.relay(outbox.RelayConfig{}).Once(t.Context()); err != nil || round.Added != 1 {
		t.Errorf("%+v", round)
	}
	info, err := r.q.Inspect(t.Context(), "by-hand")
	if err != nil || string(info.Task.Payload) != "text" || info.Task.Headers["a"] != "b" {
		t.Errorf("%+v, %v", info.Task, err)
	}
}

func TestConfigProblemsAreReportedTogether(t *testing.T) {
	_, err := outbox.New(outbox.Config{Schema: "a; drop", MaxPayload: -1})
	for _, field := range []string{"Schema", "Queue", "MaxPayload"} {
		if !errors.Is(err, queue.ErrInvalidConfig) || !strings.Contains(err.Error(), field+":") {
			t.Errorf("%s is not in %v", field, err)
		}
	}
	_, err = outbox.NewRelay(nil, nil, outbox.RelayConfig{Schema: "X", Batch: 1001, Poll: -1, Timeout: 1})
	for _, field := range []string{"Schema", "pool", "queue", "Batch", "Poll", "Timeout"} {
		if !errors.Is(err, queue.ErrInvalidConfig) || !strings.Contains(err.Error(), field+":") {
			t.Errorf("%s is not in %v", field, err)
		}
	}
}
