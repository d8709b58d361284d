package sim

import (
	"slices"
	"strings"
	"time"
)

// moved judges the change of one record by one script.
func (o *observer) moved(p *part, id string, old, now record) {
	if o.script == "quarantine" {
		id = garbageName(p, id)
	}
	t := o.task(id)
	if t.done && now.place != 0 {
		o.w.report(id, "I5: %s brings back a task that is done (%v)", o.script, now)
	}
	switch {
	case now.held() && (!old.held() || old.fence != now.fence || old.token != now.token):
		o.granted(p, t, old, now)
	case old.place == 'h' && now.place == 'p' && old.tail() == now.tail():
		if o.script != "start" || p.leases[now.token] <= millis() {
			o.w.report(id, "I2: started by %s without a live lease", o.script)
		}
	case old.held():
		o.settled(p, t, old, now)
	case now.place == 'w' && (o.script == "enqueue" && (old.place == 0) || o.script == "promote" && old.place == 's'):
	case now.place == 's' && o.script == "enqueue" && old.place == 0:
	case now.place == 'd' && o.script == "quarantine" && old.place == 0:
		t.dead = "undecodable"
	default:
		o.w.report(id, "I1: %s moves it from %v to %v", o.script, old, now)
	}
	if now.place == 'p' {
		t.started[now.fence] = true
	}
	if now.place == 'd' {
		t.deadAt = o.w.now()
	}
}

// garbageName is the model's name of an entry that is no task. Its dead letter is
// named by the entry, and where that would be ambiguous by the partition too.
func garbageName(p *part, id string) string {
	entry, _, _ := strings.Cut(id, ".")
	return "garbage " + p.prefix + entry
}

func millis() float64 { return float64(time.Now().UnixMilli()) }

// granted judges a new lease.
func (o *observer) granted(p *part, t *task, old, now record) {
	if o.script == "split" && old.fence == now.fence {
		o.own(t, old, "moves to a grant of its own")
		o.owner[now.token] = o.who
		return
	}
	if o.script != "begin" {
		o.w.report(t.id, "I4: %s gives a lease (%v to %v)", o.script, old, now)
	}
	if now.fence <= t.fence {
		o.w.report(t.id, "I3: fence %d after %d", now.fence, t.fence)
	}
	t.fence = max(t.fence, now.fence)
	if old.held() && p.leases[old.token] > millis() {
		o.w.report(t.id, "I2: a lease beside a live one (%v to %v)", old, now)
	}
	if old.held() && old.token != now.token {
		t.taken++
	}
	if old.place == 's' || old.place == 'd' {
		o.w.report(t.id, "I1: a lease on a task that is %v", old)
	}
	if old.place == 'p' {
		if old.token != now.token {
			t.interruptions++
		}
		o.interrupted(p, t, old)
	}
	o.owner[now.token] = o.who
}

// interrupted asks why the lease of a run has ended without an outcome: an
// injected fault has disturbed its worker after the last renewal, or the
// handler is stuck.
func (o *observer) interrupted(p *part, t *task, old record) {
	ended := time.Now()
	if end := time.UnixMilli(int64(o.expiry[old.token])); end.Before(ended) {
		ended = end
	}
	for _, r := range t.runs {
		if r.fence != old.fence || r.why != "" {
			continue
		}
		switch why := o.w.disturbed(r.proc.name, ended.Add(-o.lease-time.Second), ended); {
		case why != "":
			r.why = why
		case r.stuck:
			r.why = "the handler is stuck"
		}
	}
}

// own: only the holder, who names its fence and token, may do this.
func (o *observer) own(t *task, old record, what string) {
	if !slices.Contains(o.args, old.tail()) {
		o.w.report(t.id, "I4: %s of one who does not hold it %s (held as %v)", o.script, what, old)
	}
}

// settled judges the end of a lease that was not followed by another.
func (o *observer) settled(p *part, t *task, old, now record) {
	o.own(t, old, "settles it")
	r := t.run(old.fence)
	switch {
	case o.script == "complete" && now.place == 0:
		if !o.marked(p, t.id) {
			o.w.report(t.id, "I1: gone without a done mark")
		}
		t.done = true
	case o.script == "retry" && (now.place == 's' || now.place == 'd'):
		t.failures++
		if now.place == 'd' {
			t.dead = "failures"
		}
		if r != nil && r.over && r.err != nil {
			r.why = "it failed: " + r.err.Error()
		}
	case o.script == "release" && (now.place == 'w' || now.place == 's' || now.place == 'd'):
		if now.place == 'd' {
			t.dead = "no_handler"
		}
		if r != nil && r.over && r.err != nil {
			r.why = "it was handed back: " + r.err.Error()
		}
	case o.script == "dead" && now.place == 'd':
		t.dead = "dead"
	default:
		o.w.report(t.id, "I1: %s moves it from %v to %v", o.script, old, now)
	}
}

// task is the model of one task. Guarded by observer.mu.
type task struct {
	id, kind      string
	accepted      bool
	done          bool
	dead          string // why, as the script says
	deadAt        time.Duration
	deadline      time.Time
	fence         uint64
	started       map[uint64]bool // fences whose start is on record
	failures      int
	interruptions int
	taken         int // over from another lease
	runs          []*run
	rejected      bool
	garbage       bool
}

// run is one run of a handler.
type run struct {
	proc  *proc
	fence uint64
	stuck bool
	over  bool
	err   error
	why   string // what accounts for a run after this one
}

func (o *observer) task(id string) *task {
	t := o.tasks[id]
	if t == nil {
		t = &task{id: id, started: map[uint64]bool{}}
		o.tasks[id] = t
	}
	return t
}

func (t *task) run(fence uint64) *run {
	for _, r := range t.runs {
		if r.fence == fence {
			return r
		}
	}
	return nil
}
