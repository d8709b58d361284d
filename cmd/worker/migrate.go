package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/claimq/claimq/internal/config"
)

const migrateAbout = `Makes the tables for recorded steps and completions in the database that
POSTGRES_URL names, or brings them up to date. Safe to run by many at once, and
again: what is there is left as it is. POSTGRES_SCHEMA names their schema; it is
made where it is missing.

Exit code 0: the tables are as this program needs them; 1: the database is away
or refuses; 2: the settings are wrong.
`

// migrateTimeout bounds the wait for others who migrate at the same time too.
const migrateTimeout = 5 * time.Minute

func migrateVerb(s std, args []string) int {
	fs := flag.NewFlagSet("migrate", flag.ContinueOnError)
	if code, done := parse(s, fs, args, migrateAbout); done {
		return code
	}
	cfg, err := config.LoadWorker(nil)
	if err == nil && !cfg.Postgres.URL.IsSet() {
		err = errors.New("POSTGRES_URL: not set; name the database, for instance postgres://localhost:5432/app")
	}
	if err != nil {
		sayProblems(s, "migrate", err)
		return exitUsage
	}
	ctx, cancel := context.WithTimeout(context.Background(), migrateTimeout)
	defer cancel()
	db, err := openDatabase(ctx, cfg)
	if err != nil {
		sayProblems(s, "migrate", err)
		return exitUsage
	}
	defer db.close()
	applied, err := db.store.Migrate(ctx)
	if err != nil {
		sayProblems(s, "migrate", err)
		return exitFailed
	}
	for _, name := range applied {
		fmt.Fprintf(s.out, "applied %s\n", name)
	}
	fmt.Fprintf(s.out, "migrate: ok, schema %s of %s\n", cfg.Postgres.Schema, cfg.Postgres.URL)
	return exitOK
}
