// Package pgschema brings the tables of one package in PostgreSQL to the form
// that the program uses: numbered files of SQL, applied in order, once each, by
// whichever of many processes comes first.
package pgschema

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Set is the tables of one package. In its files {{schema}} stands for the
// schema, whose name has been checked by the caller: it is put in as it is.
type Set struct {
	// Name tells the sets of a schema apart: the table <Name>_migrations says
	// what was applied.
	Name string
	// Files are sql/<number>_<name>.sql, numbered from 1 on.
	Files fs.FS
}

// migration is one file.
type migration struct {
	version int
	name    string
	text    string
}

// all returns the files in the order of their numbers.
func (s Set) all() ([]migration, error) {
	names, err := fs.Glob(s.Files, "sql/*.sql") // sorted
	if err != nil {
		return nil, err
	}
	var all []migration
	for i, name := range names {
		text, err := fs.ReadFile(s.Files, name)
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

const (
	sqlSchemaExists = `select exists (select from pg_catalog.pg_namespace where nspname = $1)`
	sqlCreateSchema = `create schema {{schema}}`
	sqlCreateLog    = `create table if not exists {{schema}}.{{set}}_migrations (
    version    integer primary key,
    name       text not null,
    applied_at timestamptz not null default now()
)`
	sqlVersion = `select coalesce(max(version), 0) from {{schema}}.{{set}}_migrations`
	sqlApplied = `insert into {{schema}}.{{set}}_migrations (version, name) values ($1, $2)`
)

func (s Set) sql(text, schema string) string {
	return strings.NewReplacer("{{schema}}", schema, "{{set}}", s.Name).Replace(text)
}

// Beginner is a pool or a connection.
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Migrate makes the schema where it is missing and applies what has not been
// applied. It returns the names of what it applied; none when there was nothing
// to do. All of it is applied, or none.
//
// Any number of processes may call it at once: one works, the others wait for
// it and then find nothing to do. Tables that are newer than this program are
// left as they are.
func (s Set) Migrate(ctx context.Context, db Beginner, schema string) (applied []string, err error) {
	all, err := s.all()
	if err != nil {
		return nil, err
	}
	for range 2 {
		// Another set's tables may be made in the same schema at the same
		// time: the second to make the schema is refused, and finds it then.
		if applied, err = s.migrate(ctx, db, schema, all); !exists(err) {
			break
		}
	}
	return applied, err
}

func (s Set) migrate(ctx context.Context, db Beginner, schema string, all []migration) (applied []string, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock($1)", s.Lock(schema)); err != nil {
			return err
		}
		version, err := s.prepare(ctx, tx, schema)
		if err != nil {
			return err
		}
		for _, m := range all[min(version, len(all)):] {
			if _, err := tx.Exec(ctx, s.sql(m.text, schema)); err != nil {
				return fmt.Errorf("migration %s: %w", m.name, err)
			}
			if _, err := tx.Exec(ctx, s.sql(sqlApplied, schema), m.version, m.name); err != nil {
				return err
			}
			applied = append(applied, m.name)
		}
		return nil
	})
	return applied, err
}

// prepare makes what holds the tables and returns the version that they have.
func (s Set) prepare(ctx context.Context, tx pgx.Tx, schema string) (version int, err error) {
	var exists bool
	// Asked first: whoever may not make schemas can be given one.
	if err := tx.QueryRow(ctx, sqlSchemaExists, schema).Scan(&exists); err != nil {
		return 0, err
	}
	if !exists {
		if _, err := tx.Exec(ctx, s.sql(sqlCreateSchema, schema)); err != nil {
			return 0, err
		}
	}
	if _, err := tx.Exec(ctx, s.sql(sqlCreateLog, schema)); err != nil {
		return 0, err
	}
	return version, tx.QueryRow(ctx, s.sql(sqlVersion, schema)).Scan(&version)
}

// Lock is the number of the advisory lock that Migrate takes.
func (s Set) Lock(schema string) int64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "claimq migrate %q %q", s.Name, schema)
	return int64(h.Sum64())
}

// SQL returns what Migrate would run on a database without these tables.
func (s Set) SQL(schema string) (string, error) {
	all, err := s.all()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "create schema if not exists %s;\n%s;\n", schema, s.sql(sqlCreateLog, schema))
	for _, m := range all {
		fmt.Fprintf(&b, "\n%s\ninsert into %s.%s_migrations (version, name) values (%d, '%s');\n",
			strings.TrimSpace(s.sql(m.text, schema)), schema, s.Name, m.version, m.name)
	}
	return b.String(), nil
}

// Querier is a pool or a connection.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Versions returns the version that the tables have and the one that this
// program needs. The error is the server's; Missing tells whether there are no
// tables.
func (s Set) Versions(ctx context.Context, db Querier, schema string) (has, needs int, err error) {
	all, err := s.all()
	if err != nil {
		return 0, 0, err
	}
	err = db.QueryRow(ctx, s.sql(sqlVersion, schema)).Scan(&has)
	return has, len(all), err
}

// Missing reports whether an error says that tables, or columns of theirs, are
// not there.
func Missing(err error) bool {
	const undefinedTable, undefinedColumn, invalidSchemaName = "42P01", "42703", "3F000"
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (e.Code == undefinedTable || e.Code == undefinedColumn || e.Code == invalidSchemaName)
}

// exists reports whether the server refused to make what is there.
func exists(err error) bool {
	const duplicateSchema, uniqueViolation = "42P06", "23505"
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (e.Code == duplicateSchema || e.Code == uniqueViolation)
}
