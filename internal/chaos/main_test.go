package chaos

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/claimq/claimq/internal/fleet"
	"github.com/claimq/claimq/internal/redistest"
)

var (
	duration = flag.Duration("chaos.duration", 0, "how long faults go on; 0: the small run, each kind once")
	seed     = flag.Uint64("chaos.seed", 1, "chooses the schedule of faults")
	rate     = flag.Int("chaos.rate", 260, "tasks enqueued in a second")

	workerPath string // of the worker, built for this run
	clockPath  string // of the library that steps a server's clock
	summary    string // the last line of the run
)

func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "claimq-chaos-")
	if err == nil {
		workerPath, err = fleet.Build(dir)
	}
	if err == nil {
		clockPath, err = buildClock(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := redistest.Main(m)
	os.RemoveAll(dir)
	if summary == "" && code != 0 {
		summary = "chaos: failed: the run did not come to its end"
	}
	if summary != "" {
		fmt.Println(summary)
	}
	os.Exit(code)
}

// buildClock needs the C compiler that the race detector needs too.
func buildClock(dir string) (string, error) {
	path := filepath.Join(dir, "clock.so")
	out, err := exec.Command("cc", "-shared", "-fPIC", "-O2", "-o", path, "testdata/clock.c").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("a C compiler is needed to step a server's clock (apt-get install gcc libc6-dev): %w\n%s", err, out)
	}
	return path, nil
}
