package observe

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/claimq/claimq/internal/fleet"
	"github.com/claimq/claimq/internal/redistest"
)

var (
	duration = flag.Duration("observe.duration", 0, "how long the whole run takes, about; 0: the small run")
	pictures = flag.String("observe.pictures", "", "directory to write pictures of the dashboards to")

	workerPath     string // of the worker, built for this run
	prometheusPath string
	summary        string // the last line of the run
)

func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "claimq-observe-")
	if err == nil {
		workerPath, err = fleet.Build(dir)
	}
	if err == nil {
		prometheusPath, err = exec.LookPath("prometheus")
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%v: Prometheus is needed, run 'make deps' or 'apt-get install prometheus'\n", err)
		os.Exit(1)
	}
	code := redistest.Main(m)
	os.RemoveAll(dir)
	if code != 0 {
		summary = "observe: failed"
	}
	if summary != "" {
		fmt.Println(summary)
	}
	os.Exit(code)
}
