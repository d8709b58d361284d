package redistest

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// Main runs the tests, stops the shared server, and then looks for goroutines
// that were left. It returns the exit code:
//
//	func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }
func Main(m *testing.M, ignore ...goleak.Option) int {
	code := m.Run()
	return finish(code, ignore...)
}

func finish(code int, ignore ...goleak.Option) int {
	if err := stopShared(); err != nil {
		fmt.Fprintln(os.Stderr, "redistest: stopping the shared server:", err)
		code = max(code, 1)
	}
	// After a failure a leak is most likely its consequence, and the long
	// list of stacks would hide the cause.
	if code != 0 {
		return code
	}
	if err := goleak.Find(ignore...); err != nil {
		fmt.Fprintln(os.Stderr, "redistest: goroutines left after all tests:", err)
		return 1
	}
	return 0
}

// IgnoreServers is for a test that looks for leaks by itself while servers
// run: it lets their goroutines pass.
func IgnoreServers() goleak.Option {
	return goleak.IgnoreAnyFunction("github.com/claimq/claimq/internal/redistest.supervise")
}
