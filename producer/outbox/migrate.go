package outbox

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrSchema: the tables are missing, or older than this program. Nothing was
// changed. Run `producer relay -migrate`, or call Migrate.
var ErrSchema = errors.New("tables of the outbox missing or out of date: run producer relay -migrate, or call outbox.Migrate")

//go:embed sql/*.sql
var migrations embed.FS

// migration is one file: its name begins with its number.
type migration struct {
	version int
	name    string
	text    string
}

// allMigrations returns the files in the order of their numbers, 1 and on.
func allMigrations() ([]migration, error) {
	names, err := fs.Glob(migrations, "sql/*.sql") // sorted
	if err != nil {
		return nil, err
	}
	var all []migration
	for i, name := range names {
		text, err := migrations.ReadFile(name)
		if err != nil {
			return nil, err
		}
		base := strings.TrimSuffix(path.Base(name), ".sql")
		number, _, _ := strings.Cut(base, "_")
		if v, err := strconv.Atoi(number); err != nil || v != i+1 {
			return nil, fmt.Errorf("%s: its number is not %d", name, i+1)
		}
		all = append(all, migration{i + 1, base, string(text)})
	}
	return all, nil
}

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
	all, err := allMigrations()
	if err != nil {
		return nil, err
	}
	for range 2 {
		// Another package's tables may be made in the same schema at the same
		// time: the second to make the schema is refused, and finds it then.
		if applied, err = s.migrate(ctx, pool, all); !exists(err) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("migrating the outbox in schema %s: %w", s, err)
	}
	return applied, nil
}

func (s schema) migrate(ctx context.Context, pool *pgxpool.Pool, all []migration) (applied []string, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock($1)", lockNumber("migrate", string(s))); err != nil {
			return err
		}
		version, err := s.prepare(ctx, tx)
		if err != nil {
			return err
		}
		for _, m := range all[min(version, len(all)):] {
			if _, err := tx.Exec(ctx, s.sql(m.text)); err != nil {
				return fmt.Errorf("migration %s: %w", m.name, err)
			}
			if _, err := tx.Exec(ctx, s.sql(sqlApplied), m.version, m.name); err != nil {
				return err
			}
			applied = append(applied, m.name)
		}
		return nil
	})
	return applied, err
}

// exists reports whether the server refused to make what is there.
func exists(err error) bool {
	const duplicateSchema, uniqueViolation = "42P06", "23505"
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (e.Code == duplicateSchema || e.Code == uniqueViolation)
}

// prepare makes what holds the tables and returns the version that they have.
func (s schema) prepare(ctx context.Context, tx pgx.Tx) (version int, err error) {
	var exists bool
	// Asked first: whoever may not make schemas can be given one.
	if err := tx.QueryRow(ctx, sqlSchemaExists, string(s)).Scan(&exists); err != nil {
		return 0, err
	}
	if !exists {
		if _, err := tx.Exec(ctx, s.sql(sqlCreateSchema)); err != nil {
			return 0, err
		}
	}
	if _, err := tx.Exec(ctx, s.sql(sqlCreateLog)); err != nil {
		return 0, err
	}
	return version, tx.QueryRow(ctx, s.sql(sqlVersion)).Scan(&version)
}

// SQL returns what Migrate would run on a database without an outbox, for
// those who change their tables with a tool of their own.
func SQL(schemaName string) (string, error) {
	s, err := schemaNamed(schemaName)
	if err != nil {
		return "", err
	}
	all, err := allMigrations()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "create schema if not exists %s;\n%s;\n", s, s.sql(sqlCreateLog))
	for _, m := range all {
		fmt.Fprintf(&b, "\n%s\ninsert into %s.outbox_migrations (version, name) values (%d, '%s');\n",
			strings.TrimSpace(s.sql(m.text)), s, m.version, m.name)
	}
	return b.String(), nil
}

// querier is a pool or a connection.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// check reports whether the tables have the form that this program needs, or a
// newer one: nil, ErrSchema, or an error of the server's.
func (s schema) check(ctx context.Context, db querier) error {
	all, err := allMigrations()
	if err != nil {
		return err
	}
	var version int
	if err := db.QueryRow(ctx, s.sql(sqlVersion)).Scan(&version); err != nil {
		return s.said(err)
	}
	if version < len(all) {
		return fmt.Errorf("%w (schema %s has version %d, this program needs %d)", ErrSchema, s, version, len(all))
	}
	return nil
}

// said recognises what the server says of tables that are not there.
func (s schema) said(err error) error {
	const undefinedTable, undefinedColumn, invalidSchemaName = "42P01", "42703", "3F000"
	e, ok := errors.AsType[*pgconn.PgError](err)
	if ok && (e.Code == undefinedTable || e.Code == undefinedColumn || e.Code == invalidSchemaName) {
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
