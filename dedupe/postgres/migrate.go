package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

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
		number, _, _ := strings.Cut(path.Base(name), "_")
		if v, err := strconv.Atoi(number); err != nil || v != i+1 {
			return nil, fmt.Errorf("%s: its number is not %d", name, i+1)
		}
		all = append(all, migration{i + 1, strings.TrimSuffix(path.Base(name), ".sql"), string(text)})
	}
	return all, nil
}

const (
	sqlSchemaExists = `select exists (select from pg_catalog.pg_namespace where nspname = $1)`
	sqlCreateSchema = `create schema {{schema}}`
	sqlCreateLog    = `
create table if not exists {{schema}}.dedupe_migrations (
    version    integer primary key,
    name       text not null,
    applied_at timestamptz not null default now()
)`
	sqlVersion = `select coalesce(max(version), 0) from {{schema}}.dedupe_migrations`
	sqlApplied = `insert into {{schema}}.dedupe_migrations (version, name) values ($1, $2)`
)

// Migrate makes the schema and brings its tables to the form that this program
// uses. It returns the names of the migrations that it applied; none when there
// was nothing to do. All of them are applied, or none.
//
// Any number of processes may call it at once: one works, the others wait for
// it and then find nothing to do. Tables that are newer than this program are
// left as they are; a newer form is one that older programs can use too.
func (s *Store) Migrate(ctx context.Context) (applied []string, err error) {
	all, err := allMigrations()
	if err != nil {
		return nil, err
	}
	for range 2 {
		// Another package's tables may be made in the same schema at the same
		// time: the second to make the schema is refused, and finds it then.
		if applied, err = s.migrate(ctx, all); !exists(err) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("migrating schema %s: %w", s.cfg.Schema, err)
	}
	return applied, nil
}

func (s *Store) migrate(ctx context.Context, all []migration) (applied []string, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock($1)", lockNumber("migrate", s.cfg.Schema)); err != nil {
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
func (s *Store) prepare(ctx context.Context, tx pgx.Tx) (version int, err error) {
	var exists bool
	// Asked first: whoever may not make schemas can be given one.
	if err := tx.QueryRow(ctx, sqlSchemaExists, s.cfg.Schema).Scan(&exists); err != nil {
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

// Check reports whether the tables have the form that this program needs, or a
// newer one: nil, ErrSchema, or an error of the server's.
func (s *Store) Check(ctx context.Context) error {
	all, err := allMigrations()
	if err != nil {
		return err
	}
	var version int
	err = s.pool.QueryRow(ctx, s.sql(sqlVersion)).Scan(&version)
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && (e.Code == undefinedTable || e.Code == invalidSchemaName) {
		return fmt.Errorf("%w (schema %s)", ErrSchema, s.cfg.Schema)
	}
	if err != nil {
		return said(causeOf(ctx, err), false)
	}
	if version < len(all) {
		return fmt.Errorf("%w (schema %s has version %d, this program needs %d)", ErrSchema, s.cfg.Schema, version, len(all))
	}
	return nil
}
