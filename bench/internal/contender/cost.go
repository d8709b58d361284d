package contender

import (
	"runtime"
	"slices"
	"syscall"
	"time"
)

// Cost is what the process has spent since a moment.
type Cost struct {
	cpu     time.Duration
	mallocs uint64
}

// Spent returns the account at this moment.
func Spent() Cost {
	var ms runtime.MemStats
	runtime.ReadMemStats(&ms)
	var ru syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &ru)
	return Cost{cpu: time.Duration(ru.Utime.Nano() + ru.Stime.Nano()), mallocs: ms.Mallocs}
}

// Since fills in what n tasks cost the process since before.
func (r *Result) Since(before Cost, n int) {
	now := Spent()
	r.Client = float64((now.cpu - before.cpu).Nanoseconds()) / 1e3 / float64(n)
	r.Allocs = float64(now.mallocs-before.mallocs) / float64(n)
}

// Percentile returns the value that a share p (0 to 1) of sorted values does
// not exceed; 0 where there are none.
func Percentile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(p*float64(len(sorted))))]
}

func (r *Result) latencies(ms []float64) {
	slices.Sort(ms)
	r.P50, r.P99, r.Max = Percentile(ms, .5), Percentile(ms, .99), Percentile(ms, 1)
}
