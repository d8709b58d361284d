package postgres_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/claimq/claimq/dedupe/postgres"
	"github.com/claimq/claimq/internal/pgtest"
	"github.com/claimq/claimq/queue"
)

// documented returns the block of SQL in the documentation that begins with
// these words.
func documented(t *testing.T, begins string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/postgres.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(page), "```sql\n"+begins)
	block, _, ended := strings.Cut(block, "```")
	if !found || !ended {
		t.Fatalf("docs/postgres.md has no block that begins with %q", begins)
	}
	return begins + block
}

// TestStaleHolderChangesNoRow: the statements of the documentation, as they
// stand there. A holder that was replaced changes no row, whichever table it
// writes to and whenever it wakes up.
func TestStaleHolderChangesNoRow(t *testing.T) {
	pool := pgtest.Shared(t).Pool(t)
	must(t, pool, "create table invoices (number text primary key, paid_at timestamptz, charge_id text, fence bigint not null default 0)")
	must(t, pool, "create table shipments (order_id text primary key, carrier text, fence bigint not null)")
	must(t, pool, "insert into invoices (number) values ('4821')")
	first := lease("invoice-4821", 7)
	second := after(first)
	for what, write := range map[string]func(l queue.Lease, by string) error{
		"invoices": func(l queue.Lease, by string) error {
			tag, err := pool.Exec(t.Context(), documented(t, "UPDATE invoices"), by, int64(l.Fence), "4821")
			return errors.Join(err, postgres.Changed(tag, l))
		},
		"shipments": func(l queue.Lease, by string) error {
			tag, err := pool.Exec(t.Context(), documented(t, "INSERT INTO shipments"), "4821", by, int64(l.Fence))
			return errors.Join(err, postgres.Changed(tag, l))
		},
	} {
		column := map[string]string{"invoices": "charge_id", "shipments": "carrier"}[what]
		for _, step := range []struct {
			l    queue.Lease
			by   string
			want string // what the row says afterwards
			err  error
		}{
			{first, "first", "first", nil},
			{first, "first again", "first again", nil},
			{second, "second", "second", nil},
			{first, "late", "second", postgres.ErrFenced},
			{second, "second again", "second again", nil},
		} {
			if err := write(step.l, step.by); !errors.Is(err, step.err) || (step.err == nil) != (err == nil) {
				t.Errorf("%s: %s: %v", what, step.by, err)
			}
			var by string
			if err := pool.QueryRow(t.Context(), "select "+column+" from "+what).Scan(&by); err != nil || by != step.want {
				t.Errorf("%s: after %s the row says %q, %v", what, step.by, by, err)
			}
		}
	}
}
