package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/claimq/claimq/internal/redistest"
)

var (
	fleetTasks = flag.Int("fleet.tasks", 3000, "tasks in the test that kills a worker every two seconds")
	workerPath string // of the worker, built for this run
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "claimq-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	workerPath = filepath.Join(dir, "worker")
	if out, err := exec.Command("go", "build", "-o", workerPath, "github.com/claimq/claimq/cmd/worker").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the worker: %v\n%s", err, out)
		os.Exit(1)
	}
	code := redistest.Main(m)
	os.RemoveAll(dir)
	os.Exit(code)
}
