package pgtest

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/claimq/claimq/internal/redistest"
)

// Main runs the tests, stops the shared servers, this package's and
// redistest's, and looks for goroutines that were left. It returns the exit
// code:
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
func Main(m *testing.M, ignore ...goleak.Option) int {
	code := redistest.Main(m, append(ignore, IgnoreServers())...)
	if err := stopShared(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest: stopping the shared server:", err)
		code = max(code, 1)
	}
	return code
}

// IgnoreServers is for a test that looks for leaks by itself while servers
// run: it lets their goroutines pass.
func IgnoreServers() goleak.Option {
	return goleak.IgnoreAnyFunction("github.com/claimq/claimq/internal/pgtest.supervise")
}
