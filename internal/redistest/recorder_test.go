package redistest

import (
	"fmt"
	"runtime"
	"testing"
)

// recorder is a testing.TB whose Fatalf is looked at by the test instead of
// failing it.
type recorder struct {
	testing.TB
	message string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.message = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
