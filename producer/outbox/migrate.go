package outbox

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"hash/fnv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/claimq/claimq/internal/pgschema"
)

// ErrSchema: the tables are missing, or older than this program. Nothing was
// changed. Run `producer relay -migrate`, or call Migrate.
var ErrSchema = errors.New("tables of the outbox missing or out of date: run producer relay -migrate, or call outbox.Migrate")

//go:embed sql/*.sql
var migrations embed.FS

// tables is what this package has in the database.
func tables() pgschema.Set { return pgschema.Set{Name: "outbox", Files: migrations} }

// Migrate makes the schema (empty: DefaultSchema) where it is missing and
// brings the tables of the outbox to the form that this program uses. It
// returns the names of the migrations that it applied; none when there was
// nothing to do. All of them are applied, or none.
//
// Any number of processes may call it at once: one works, the others wait for
// it and then find nothing to do. Tables that are newer than this program are
// left as they are; a newer form is one that older programs can use too.
func Migrate(ctx context.Context, pool *pgxpool.Pool, schemaName string) (applied []string, err error) {
	s, err := schemaNamed(schemaName)
	if err != nil {
		return nil, err
	}
	applied, err = tables().Migrate(ctx, pool, string(s))
	if err != nil {
		return nil, fmt.Errorf("migrating the outbox in schema %s: %w", s, err)
	}
	return applied, nil
}

// SQL returns what Migrate would run on a database without an outbox, for
// those who change their tables with a tool of their own.
func SQL(schemaName string) (string, error) {
	s, err := schemaNamed(schemaName)
	if err != nil {
		return "", err
	}
	return tables().SQL(string(s))
}

// querier is a pool or a connection.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// check reports whether the tables have the form that this program needs, or a
// newer one: nil, ErrSchema, or an error of the server's.
func (s schema) check(ctx context.Context, db querier) error {
	has, needs, err := tables().Versions(ctx, db, string(s))
	if err != nil {
		return s.said(err)
	}
	if has < needs {
		return fmt.Errorf("%w (schema %s has version %d, this program needs %d)", ErrSchema, s, has, needs)
	}
	return nil
}

// said recognises what the server says of tables that are not there.
func (s schema) said(err error) error {
	if pgschema.Missing(err) {
		return fmt.Errorf("%w (schema %s): %w", ErrSchema, s, err)
	}
	return err
}

// lockNumber names an advisory lock.
func lockNumber(parts ...string) int64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "claimq outbox %q", parts)
	return int64(h.Sum64())
}
