package killpoints

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/claimq/claimq/internal/pgtest"
)

var (
	runs = flag.Int("killpoints.runs", 40, "workers to kill")
	seed = flag.Uint64("killpoints.seed", 1, "seed of the points and moments")

	summary string // how the test went, in one line
)

// The test binary is the worker too.
func TestMain(m *testing.M) {
	if plan := os.Getenv(planVariable); plan != "" {
		os.Exit(victim(plan))
	}
	code := pgtest.Main(m)
	if summary != "" {
		fmt.Println(summary) // after the words of the testing package
	}
	os.Exit(code)
}
