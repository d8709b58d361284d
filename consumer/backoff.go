package consumer

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Waits between calls to a server that does not answer.
const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 5 * time.Second
)

// jitter is the worker's only source of randomness besides consumer names and
// tokens, so that a run can be replayed from a seed.
type jitter struct {
	mu sync.Mutex
	r  *rand.Rand
}

func newJitter(src rand.Source) *jitter { return &jitter{r: rand.New(src)} }

// upTo returns a duration from 0 to d.
func (j *jitter) upTo(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return time.Duration(j.r.Int64N(int64(d) + 1))
}

// doubled is base × 2^n, at most limit.
func doubled(base time.Duration, n int, limit time.Duration) time.Duration {
	d := base
	for range n {
		if d >= limit/2 {
			return limit
		}
		d *= 2
	}
	return min(d, limit)
}

// retryDelay is the wait before the next attempt of a task that has failed
// failures times before this failure. The jitter is added after the bound, so
// that tasks at the bound are spread too, and never shortens the wait.
func (j *jitter) retryDelay(base, limit time.Duration, failures int) time.Duration {
	d := doubled(base, failures, limit)
	return d + j.upTo(d/4)
}

// serverBackoff is the wait after the nth failed call in a row, n from 1. It
// is between half and all of its nominal length, so that workers which lost
// the server together do not come back together.
func (j *jitter) serverBackoff(n int) time.Duration {
	d := doubled(minBackoff, max(n-1, 0), maxBackoff)
	return d - j.upTo(d/2)
}
