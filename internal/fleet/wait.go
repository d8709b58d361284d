package fleet

import "time"

// Within looks again and again, every so often, until ok, and reports whether
// that came before the limit.
func Within(limit, every time.Duration, ok func() bool) bool {
	tick := time.NewTicker(every)
	defer tick.Stop()
	over := time.NewTimer(limit)
	defer over.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-over.C:
			return false
		}
	}
	return true
}
