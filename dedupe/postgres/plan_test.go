package postgres_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/claimq/claimq/dedupe/postgres"
	"github.com/claimq/claimq/internal/pgtest"
)

// TestPlans: no statement reads a table from end to end, and each touches a
// handful of pages for a row that it concerns, however large the table is.
func TestPlans(t *testing.T) {
	const rows, batch = 100_000, 50
	pool := pgtest.Shared(t).Pool(t)
	s := newStore(t, pool, postgres.Config{})
	must(t, pool, `insert into claimq.tasks select 'billing', 'invoice-' || n, n, now(), 'token', 'ch_1', now() - interval '200 days' + n * interval '1 min' from generate_series(1, $1::int) n`, rows)
	must(t, pool, `insert into claimq.steps select 'billing', 'invoice-' || n, 'charge', 0, 'key', 'done', 1, 1, 'call', '', 'ch_1', now() - interval '200 days' + n * interval '1 min' from generate_series(1, $1::int) n`, rows)
	must(t, pool, "vacuum analyze claimq.tasks, claimq.steps")

	queues, ids, fences, results := make([]string, batch), make([]string, batch), make([]int64, batch), make([][]byte, batch)
	for n := range batch {
		queues[n], ids[n], fences[n] = "billing", fmt.Sprintf("invoice-%d", n*rows/batch*3/2), 1<<50 // a third of them new
	}
	old, id := 90*24*time.Hour, "invoice-500"
	for name, c := range map[string]struct {
		args []any
		rows int // that it concerns
	}{
		"note":         {[]any{queues, ids, fences}, batch},
		"claim":        {[]any{queues, ids, fences, "token"}, batch},
		"refusals":     {[]any{queues, ids}, batch},
		"results":      {[]any{queues, ids, results}, batch},
		"look":         {[]any{"billing", id}, 1},
		"mine":         {[]any{"billing", id, "token"}, 1},
		"hold":         {[]any{"billing", id, 1 << 50}, 1},
		"completed":    {[]any{"billing", ids}, batch},
		"forget":       {[]any{"billing", id, 7}, 1},
		"forget steps": {[]any{"billing", id}, 1},
		"lock step":    {[]any{"billing", id, "charge"}, 1},
		"count steps":  {[]any{"billing", id}, 1},
		"put intent":   {[]any{"billing", id, "mail", 1, "key", 7, "call", ""}, 1},
		"lock task":    {[]any{"billing", id}, 1},
		"put result":   {[]any{"billing", id, "charge", "done", []byte("x")}, 1},
		"step":         {[]any{"billing", id, "charge"}, 1},
		"steps":        {[]any{"billing", id}, 1},
		"sweep tasks":  {[]any{old, time.Time{}, postgres.SweepBatch}, postgres.SweepBatch},
		"sweep steps":  {[]any{old, time.Time{}, postgres.SweepBatch}, postgres.SweepBatch},
	} {
		text, known := s.Statements()[name]
		if !known {
			t.Fatalf("no statement %q", name)
		}
		plan := explain(t, pool, text, c.args)
		if strings.Contains(plan, `"Seq Scan"`) {
			t.Errorf("%s reads a table from end to end:\n%s", name, plan)
		}
		if got, most := pages(t, plan), 12*c.rows+20; got > most {
			t.Errorf("%s touches %d pages for %d rows:\n%s", name, got, c.rows, plan)
		}
	}
}

// explain runs a statement, rolls it back, and returns its plan as JSON.
func explain(t *testing.T, pool *pgxpool.Pool, text string, args []any) (plan string) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if err := tx.QueryRow(t.Context(), "explain (analyze, buffers, format json) "+text, args...).Scan(&plan); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return plan
}

// pages is how many pages a plan touched, in memory or not.
func pages(t *testing.T, plan string) int {
	t.Helper()
	var answer []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	if err := json.Unmarshal([]byte(plan), &answer); err != nil || len(answer) != 1 {
		t.Fatalf("%v\n%s", err, plan)
	}
	return answer[0].Plan.Hit + answer[0].Plan.Read
}
