package main

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/claimq/claimq/internal/pgtest"
	"github.com/claimq/claimq/internal/redistest"
)

// suite stops the shared servers when the tests are done.
type suite struct{ m *testing.M }

func (s suite) Run() int { return pgtest.Main(s.m) }

func TestMain(m *testing.M) {
	testscript.Main(suite{m}, map[string]func(){"worker": main})
}

// TestScripts runs the program as its users do; each file says what it shows.
func TestScripts(t *testing.T) {
	server := redistest.Shared(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	evicting := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	err = evicting.Client().Do(t.Context(), "ACL", "SETUSER", "reader", "on", ">pw", "~*", "+@all", "-eval", "-evalsha").Err()
	if err != nil {
		t.Fatal(err)
	}
	database := pgtest.Shared(t).DSN(t)
	// The scripts run in parallel, after this function.
	t.Cleanup(func() { taken.Close() })
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Deadline:            time.Now().Add(5 * time.Minute),
		Setup: func(env *testscript.Env) error {
			env.Setenv("REDIS", server.URL())
			env.Setenv("EVICTING", evicting.URL())
			env.Setenv("FORBIDDEN", strings.Replace(evicting.URL(), "redis://", "redis://reader:pw@", 1))
			env.Setenv("POSTGRES", database)
			env.Setenv("TAKEN", taken.Addr().String())
			env.Setenv("PREFIX", redistest.Prefix(t))
			env.Setenv("GOCOVERDIR", os.Getenv("GOCOVERDIR"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "ran": ran, "lived": lived},
	})
}

// exits runs a program and compares its exit code: exits 2 worker run.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits code program [args...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}
