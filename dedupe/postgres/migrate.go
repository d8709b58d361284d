package postgres

import (
	"context"
	"embed"
	"fmt"

	"github.com/claimq/claimq/internal/pgschema"
)

//go:embed sql/*.sql
var migrations embed.FS

// tables is what this package has in the database.
func tables() pgschema.Set { return pgschema.Set{Name: "dedupe", Files: migrations} }

// Migrate makes the schema and brings its tables to the form that this program
// uses. It returns the names of the migrations that it applied; none when there
// was nothing to do. All of them are applied, or none.
//
// Any number of processes may call it at once: one works, the others wait for
// it and then find nothing to do. Tables that are newer than this program are
// left as they are; a newer form is one that older programs can use too.
func (s *Store) Migrate(ctx context.Context) (applied []string, err error) {
	applied, err = tables().Migrate(ctx, s.pool, s.cfg.Schema)
	if err != nil {
		return nil, fmt.Errorf("migrating schema %s: %w", s.cfg.Schema, err)
	}
	return applied, nil
}

// Check reports whether the tables have the form that this program needs, or a
// newer one: nil, ErrSchema, or an error of the server's.
func (s *Store) Check(ctx context.Context) error {
	has, needs, err := tables().Versions(ctx, s.pool, s.cfg.Schema)
	switch {
	case pgschema.Missing(err):
		return fmt.Errorf("%w (schema %s)", ErrSchema, s.cfg.Schema)
	case err != nil:
		return said(causeOf(ctx, err), false)
	case has < needs:
		return fmt.Errorf("%w (schema %s has version %d, this program needs %d)", ErrSchema, s.cfg.Schema, has, needs)
	}
	return nil
}
