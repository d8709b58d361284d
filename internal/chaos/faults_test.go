package chaos

import (
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/claimq/claimq/internal/faultredis"
)

// Kinds of faults, as the report names them.
const (
	killed      = "worker-kill"
	frozen      = "worker-freeze"
	stopped     = "worker-stop"
	drainKilled = "worker-kill-draining"
	cut         = "net-cut"
	refused     = "net-refuse"
	holdRequest = "net-hole-requests"
	holdReply   = "net-hole-replies"
	delayed     = "net-delay"
	noScripts   = "script-flush"
	full        = "memory-full"
	serverFroze = "server-freeze"
	killAlways  = "server-kill-always"
	killEvery   = "server-kill-everysec"
	stepForward = "clock-forward"
	stepBack    = "clock-back"
	restored    = "old-snapshot"
	promoted    = "promotion"
	evicted     = "eviction"
	flushed     = "flushall"
)

// menu is what is chosen from, by weight.
var menu = []struct {
	kind   string
	weight int
}{
	{killed, 26}, {drainKilled, 6}, {frozen, 14}, {stopped, 8}, {cut, 8}, {refused, 6}, {holdRequest, 6}, {holdReply, 6}, {delayed, 5},
	{noScripts, 6}, {full, 5}, {serverFroze, 4}, {killAlways, 5}, {killEvery, 4}, {stepForward, 3}, {stepBack, 3},
	{restored, 3}, {promoted, 4}, {evicted, 1}, {flushed, 1},
}

// small is the schedule of the small run.
var small = []string{
	killed, frozen, cut, noScripts, drainKilled, holdReply, stopped, killAlways, refused, full, holdRequest,
	stepForward, killed, serverFroze, delayed, stepBack, promoted, frozen, restored, killed, flushed,
}

func choose(rnd *rand.Rand) string {
	sum := 0
	for _, m := range menu {
		sum += m.weight
	}
	at := rnd.IntN(sum)
	for _, m := range menu {
		if at -= m.weight; at < 0 {
			return m.kind
		}
	}
	return killed
}

// event is the end of a fault that goes on while others come.
type event struct {
	at  time.Time
	end func()
}

// free returns a slot that nothing is wrong with; nil when only one is left, so
// that there is always somebody to take over.
func (d *driver) free() *slot {
	var free []*slot
	for _, s := range d.slots {
		if !s.busy {
			free = append(free, s)
		}
	}
	if len(free) < 2 {
		return nil
	}
	return free[d.rnd.IntN(len(free))]
}

// strike starts a fault of a kind and reports whether it could.
func (d *driver) strike(kind string) bool {
	switch kind {
	case killed, drainKilled, frozen, stopped, cut, refused, holdRequest, holdReply, delayed:
		s := d.free()
		if s == nil {
			return false
		}
		d.strikeWorker(kind, s)
	default:
		return d.strikeServer(kind)
	}
	return true
}

func (d *driver) strikeWorker(kind string, s *slot) {
	switch kind {
	case killed, drainKilled:
		if kind == drainKilled {
			s.worker.Signal(d.t, syscall.SIGTERM)
			d.pause(time.Duration(d.rnd.Int64N(int64(lease / 10))))
		}
		now := time.Now()
		f := d.h.add(&fault{kind: kind, worker: s.worker.Name, from: now, orphans: now, excuses: true})
		s.worker.Kill()
		d.h.over(f)
		d.start(s)
	case stopped:
		d.h.over(d.h.add(&fault{kind: stopped, worker: s.worker.Name, from: time.Now()}))
		s.worker.Signal(d.t, syscall.SIGTERM)
		d.leaving = append(d.leaving, s.worker)
		d.start(s)
	case frozen:
		now := time.Now()
		f := d.h.add(&fault{kind: frozen, worker: s.worker.Name, from: now, orphans: now, excuses: true, silences: true})
		s.busy = true
		w := s.worker
		w.Signal(d.t, syscall.SIGSTOP)
		d.later(lease+time.Duration(d.rnd.Int64N(int64(lease))), func() {
			w.Signal(d.t, syscall.SIGCONT)
			d.h.over(f)
			s.busy = false
		})
	default:
		d.strikeWay(kind, s)
	}
}

// strikeWay breaks the way of one worker to the server.
func (d *driver) strikeWay(kind string, s *slot) {
	now := time.Now()
	off := kind != cut && kind != delayed
	f := d.h.add(&fault{kind: kind, worker: s.prefix(), from: now, excuses: off, silences: off})
	lasts := time.Duration(d.rnd.Int64N(int64(2 * lease)))
	switch kind {
	case cut:
		s.proxy.Cut()
		d.h.over(f)
		return
	case refused:
		f.orphans = now
		s.proxy.Refuse()
		s.proxy.Cut()
	case holdRequest:
		f.orphans = now
		s.proxy.BlackholeRequests()
	case holdReply:
		// Renewals are applied until the worker, which hears of none, gives up.
		f.orphans = now.Add(lease)
		s.proxy.BlackholeReplies()
	case delayed:
		s.proxy.Delay(time.Duration(5+d.rnd.IntN(60)) * time.Millisecond)
	}
	s.busy = true
	d.later(lasts, func() { d.heal(s.proxy, f, s) })
}

func (d *driver) heal(p *faultredis.Proxy, f *fault, s *slot) {
	if d.rnd.IntN(2) == 0 {
		p.Cut() // what was held back is lost, and not late
	}
	p.Heal()
	d.h.over(f)
	s.busy = false
}

// strikeServer breaks the server that all use; one such fault at a time.
func (d *driver) strikeServer(kind string) bool {
	switch kind {
	case noScripts:
		f := d.h.add(&fault{kind: kind, from: time.Now()})
		d.must(d.rdb.ScriptFlush(bg).Err())
		d.h.over(f)
	case full:
		f := d.h.add(&fault{kind: kind, from: time.Now()})
		d.must(d.rdb.ConfigSet(bg, "maxmemory", "1mb").Err())
		d.pause(time.Duration(d.rnd.Int64N(int64(lease))))
		d.must(d.rdb.ConfigSet(bg, "maxmemory", "0").Err())
		d.h.over(f)
	case serverFroze:
		f := d.h.add(&fault{kind: kind, from: time.Now(), excuses: true, stops: true, silences: true})
		d.primary.Stop()
		d.pause(time.Duration(d.rnd.Int64N(int64(2 * lease))))
		d.primary.Cont()
		d.back(f)
	case killAlways:
		d.must(d.rdb.ConfigSet(bg, "appendfsync", "always").Err())
		d.pause(100 * time.Millisecond)
		f := d.h.add(&fault{kind: kind, from: time.Now(), excuses: true, stops: true, silences: true})
		d.primary.Kill()
		d.primary.Restart()
		d.back(f)
	case stepForward:
		if d.offset >= 6*oneHour { // well within the retention
			return false
		}
		f := d.h.add(&fault{kind: kind, from: time.Now(), excuses: true, stops: true})
		d.setClock(d.offset + oneHour)
		d.pause(lease / 5) // what was granted just before may begin a moment later
		d.h.over(f)
	case stepBack:
		f := d.h.add(&fault{kind: kind, from: time.Now(), stops: true})
		d.setClock(d.offset - oneHour)
		d.h.over(f)
	default:
		return d.destroy(kind)
	}
	return true
}

// back ends a fault of the server. What it orphaned is taken over from now on.
func (d *driver) back(f *fault) {
	d.h.over(f)
	f.orphans = f.to
}
