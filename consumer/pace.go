package consumer

import "time"

// How much is fetched ahead of the slots by itself, at most.
const (
	maxAhead      = 256     // tasks
	maxAheadBytes = 8 << 20 // of their payloads
	// aheadWait is how long a task that was fetched ahead should wait for its
	// turn. It is a fortieth of the shortest lease that there is.
	aheadWait = 5 * time.Millisecond
)

// paceMemory is over how many handler runs the pace forgets: what one run in so
// many exceeds counts, what is rarer hardly does.
const paceMemory = 128

// pace estimates how soon slots become free, to tell how many tasks may be
// fetched ahead of them. It is a plain value without a lock; hand guards it.
type pace struct {
	slow  time.Duration // what few handler runs exceed
	mean  time.Duration // of the last runs
	bytes int           // what few payloads exceed
}

// A worker that knows nothing yet takes its handlers for slow, and needs some
// hundred quick runs to think otherwise.
func newPace() pace { return pace{slow: 4 * aheadWait} }

// ran notes how long a handler ran. The estimate follows a slow run at once,
// and quick ones gradually.
func (p *pace) ran(d time.Duration) {
	if d > p.slow {
		p.slow = d
	} else {
		p.slow -= (p.slow - d) / paceMemory
	}
	p.mean += (d - p.mean) / paceMemory
}

// sized notes the size of a payload.
func (p *pace) sized(n int) {
	if n > p.bytes {
		p.bytes = n
	} else {
		p.bytes -= (p.bytes - n) / paceMemory
	}
}

// waited notes how long a task waited for its turn. Where that is too long
// although handlers are quick, something else is short, processors for
// instance: then less is fetched ahead.
func (p *pace) waited(d time.Duration, slots int) {
	if d <= aheadWait {
		return
	}
	// From the least time at which less would be fetched, to one at which
	// nothing is. A whole batch that is late makes the next a third as large.
	all := aheadWait * time.Duration(slots)
	p.mean = max(p.mean, all/maxAhead)
	p.mean = min(p.mean+p.mean/maxAhead, 2*all)
}

// stalled notes that a task waited in vain.
func (p *pace) stalled() { p.slow = max(p.slow, 4*aheadWait) }

// ahead is how many tasks may be fetched ahead of so many slots: as many as
// should be through in aheadWait, and none where a slow run alone takes longer.
func (p *pace) ahead(slots int) int {
	if p.slow > aheadWait {
		return 0
	}
	n := min(maxAhead, int(aheadWait*time.Duration(slots)/max(p.mean, time.Microsecond)))
	if p.bytes > 0 {
		n = min(n, maxAheadBytes/p.bytes)
	}
	return n
}
