package chaos

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/claimq/claimq/internal/fleet"
)

// settleTime is how long after its answer a task of a live worker is surely
// settled, on a loaded machine with a server that answers.
const settleTime = time.Second

// fault is one thing that was broken, from when to when.
type fault struct {
	kind   string
	worker string // prefix of the names of those it befell; "": the server, and so all
	from   time.Time
	to     time.Time // zero: it goes on

	// excuses: tasks in hand meanwhile may run again.
	excuses bool
	// silences: nothing can be settled meanwhile.
	silences bool
	// stops: no task can be taken over meanwhile, so a recovery counts from its end.
	stops bool
	// orphans: the time from then to a second run is a recovery.
	orphans time.Time

	// What it may have destroyed, by number of task; nil: nothing.
	mayForget []bool
	forgot    map[int]bool
	// fence is the server's clock when a flush was over: a run with a lower one
	// was granted before it, however late its worker came to send the request.
	fence uint64
}

// before reports whether a run began, or was granted, before the end of f.
func (f *fault) before(run fleet.Request) bool { return !run.At.After(f.end()) || run.Fence < f.fence }

func (f *fault) covers(task int) bool { return task < len(f.mayForget) && f.mayForget[task] }

func (f *fault) allowed() int {
	n := 0
	for _, may := range f.mayForget {
		if may {
			n++
		}
	}
	return n
}

// history is all faults so far.
type history struct {
	mu     sync.Mutex
	faults []*fault
}

func (h *history) add(f *fault) *fault {
	h.mu.Lock()
	defer h.mu.Unlock()
	f.forgot = map[int]bool{}
	h.faults = append(h.faults, f)
	return f
}

// over ends f now. One that was too short to cost a lease excuses nothing.
func (h *history) over(f *fault) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f.to = time.Now()
	if f.kind != killed && f.kind != drainKilled && f.mayForget == nil && f.excuses && f.to.Sub(f.from) < lease/4 && f.kind != stepForward {
		f.excuses = false
	}
}

func (f *fault) end() time.Time {
	if f.to.IsZero() {
		return time.Now()
	}
	return f.to
}

// unsettled is the moment before which everything that a worker had been
// answered was settled when `at` came: a while before, and longer where faults
// kept it from settling.
func (h *history) unsettled(at time.Time, worker string) time.Time {
	since := at.Add(-settleTime)
	for _, f := range slices.Backward(h.faults) {
		if f.silences && strings.HasPrefix(worker, f.worker) && f.from.Before(at) && f.end().After(since) && f.from.Before(since.Add(settleTime)) {
			since = f.from.Add(-settleTime)
		}
	}
	return since
}

// forgotten notes that an acknowledged write of a task, made at `written`, is
// gone, and reports whether a fault since then may have destroyed it.
func (h *history) forgotten(task int, written time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range slices.Backward(h.faults) {
		if f.covers(task) && !f.end().Before(written) {
			f.forgot[task] = true
			return true
		}
	}
	return false
}

// explain finds the fault for which next followed prev, and the one that may
// have destroyed what was known of the task meanwhile; nil: there is none. Those
// whose recoveries are measured come first. A
// flushed task is not there to run unless it was enqueued since, at `added`.
func (h *history) explain(task int, added time.Time, prev, next fleet.Request) (excuse, destroyer *fault) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range slices.Backward(h.faults) {
		if next.At.Before(f.from) || !f.before(prev) {
			continue
		}
		if destroyer == nil && f.covers(task) && (f.kind != flushed || added.After(f.from)) {
			destroyer = f
		}
		if (excuse == nil || excuse.orphans.IsZero() && !f.orphans.IsZero()) && f.excuses && strings.HasPrefix(prev.Worker, f.worker) &&
			(prev.Ended.IsZero() || !prev.Ended.Before(h.unsettled(f.from, prev.Worker))) {
			excuse = f
		}
	}
	return excuse, destroyer
}

func (h *history) forget(f *fault, task int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f.forgot[task] = true
}

// recoverable is the moment from which the recovery counts of a task that was
// orphaned by f and ran again at `again`: until then the server, or something
// between, kept everybody from taking it over.
func (h *history) recoverable(f *fault, again time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := f.orphans
	for _, g := range h.faults {
		if g.stops && g.from.Before(again) && g.end().After(at) {
			at = g.end()
		}
	}
	return at
}

// struckAgain is the moment from which the recovery counts of a task whose next
// holder may have been struck too, unseen: one that takes a task over and is
// killed, frozen or cut off before it sends its request costs another lease.
func (h *history) struckAgain(since, again time.Time, worker string) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := since
	for _, f := range h.faults {
		if f.worker == "" || f.orphans.IsZero() || !f.excuses || strings.HasPrefix(worker, f.worker) || !f.from.Before(again) {
			continue
		}
		struck := f.from // the last moment at which it may have taken something over
		if f.kind == holdReply || f.kind == holdRequest {
			struck = f.end() // what was held back arrives late
		}
		if struck.After(at) && struck.Before(again) {
			at = struck
		}
	}
	return at
}

// overtaken finds the fault that held back a request of an earlier holder until
// after that of a later one: no check before sending can help a process that is
// stopped between the two. Its fence tells the receiver.
func (h *history) overtaken(prev, next fleet.Request) *fault {
	if next.Fence >= prev.Fence {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range slices.Backward(h.faults) {
		if f.kind == frozen && f.worker == next.Worker && f.from.Before(prev.At) && !next.At.Before(f.from) && next.At.Sub(f.end()) < lease/8 {
			return f
		}
	}
	return nil
}

// between names the faults of a while.
func (h *history) between(from, to time.Time) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var names []string
	for _, f := range h.faults {
		if f.from.Before(to) && f.end().After(from.Add(-settleTime)) {
			names = append(names, strings.TrimSpace(f.from.Format(clockTime)+" "+f.kind+" "+f.worker))
		}
	}
	return strings.Join(names, ", ")
}

func (h *history) count() (kinds map[string]int, allowed, forgotten int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	kinds = map[string]int{}
	for _, f := range h.faults {
		kinds[f.kind]++
		allowed += f.allowed()
		forgotten += len(f.forgot)
	}
	return kinds, allowed, forgotten
}
