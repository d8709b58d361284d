package e2e

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/claimq/claimq/internal/fleet"
	"github.com/claimq/claimq/internal/pgtest"
)

var (
	fleetTasks = flag.Int("fleet.tasks", 3000, "tasks in the test that kills a worker every two seconds")
	workerPath string // of the worker, built for this run
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "claimq-e2e-")
	if err == nil {
		workerPath, err = fleet.Build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := pgtest.Main(m)
	os.RemoveAll(dir)
	os.Exit(code)
}
