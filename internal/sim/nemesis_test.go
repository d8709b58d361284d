package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing/synctest"
	"time"

	"github.com/claimq/claimq/dedupe"
	"github.com/claimq/claimq/queue"
)

type dedupeKey = dedupe.Key

// nemesis does harm until over.
func (f *fleet) nemesis(over <-chan struct{}) {
	r := f.w.rand("nemesis")
	for len(f.cfg.faults) > 0 {
		t := time.NewTimer(f.w.delay(time.Duration(r.ExpFloat64() * float64(f.cfg.every))))
		select {
		case <-over:
			t.Stop()
			return
		case <-t.C:
		}
		f.harm(r, f.cfg.faults[r.IntN(len(f.cfg.faults))])
	}
}

func (f *fleet) harm(r *rand.Rand, kind string) {
	slot := r.IntN(f.cfg.workers)
	long := time.Duration(r.Float64() * 1.5 * float64(f.cfg.lease))
	f.mu.Lock()
	wk := f.workers[slot]
	f.mu.Unlock()
	switch kind {
	case "LOADING", "READONLY", "BUSY", "NOGROUP", "NOSCRIPT", "OOM":
		f.srv.fails(kind, long)
		return
	case "flush scripts":
		f.command("SCRIPT", "FLUSH")
		return
	case "lose fence":
		for p := range f.cfg.partitions {
			f.command("DEL", f.watch.parts[p].prefix+"fence")
		}
		return
	case "copy", "by hand", "garbage":
		f.byHand(r, kind)
		return
	}
	if wk == nil || wk.isDead() {
		return
	}
	switch kind {
	case "crash":
		wk.crash(false)
	case "silent crash":
		wk.crash(true)
	case "pause":
		wk.pause(2 * long)
	case "cut":
		wk.cut()
	case "hole requests":
		wk.hole(true, long)
	case "hole replies":
		wk.hole(false, long)
	case "drain":
		f.w.count("drain")
		f.drain(wk)
	}
}

func (w *world) count(kind string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults[kind]++
}

// command is one of the operator's own.
func (f *fleet) command(args ...string) string {
	f.w.count(args[0])
	all := make([]any, len(args))
	for i, a := range args {
		all[i] = a
	}
	reply, err := f.operator.client.Do(context.Background(), all...).Result()
	if err != nil {
		f.w.report("", "the operator's %v: %v", args, err)
	}
	return fmt.Sprint(reply)
}

// byHand adds entries with a plain XADD: copies of tasks, new tasks, garbage.
func (f *fleet) byHand(r *rand.Rand, kind string) {
	f.nextID++
	id := fmt.Sprintf("hand-task%d.", f.nextID)
	fields := []string{"id", id, "kind", "work", "payload", "x"}
	f.watch.mu.Lock()
	switch ids := sortedKeys(f.watch.tasks); {
	case kind == "copy":
		id = ""
		if len(ids) > 0 {
			id = ids[r.IntN(len(ids))]
		}
		if id == "" || f.watch.tasks[id].kind != "work" || f.watch.tasks[id].garbage {
			f.watch.mu.Unlock()
			return
		}
		fields[1] = id
	case kind == "garbage":
		fields = []string{"what", "ever"}
	default:
		t := f.watch.task(id)
		t.kind = "work"
	}
	f.watch.mu.Unlock()
	partition := f.operator.queue.PartitionOf(queue.TaskID(id))
	stream := f.operator.queue.StreamKey(partition)
	entry := f.command(append([]string{"XADD", stream, "*"}, fields...)...)
	f.watch.mu.Lock()
	defer f.watch.mu.Unlock()
	switch kind {
	case "garbage":
		t := f.watch.task(garbageName(f.watch.parts[partition], entry))
		t.garbage, t.accepted = true, true
	case "by hand":
		f.watch.task(id).accepted = true
	}
}

// heal ends all faults.
func (f *fleet) heal() {
	f.w.mu.Lock()
	f.w.calm = true
	f.w.mu.Unlock()
	f.w.log("", "HEALED")
}

// awaitEnd waits until everything that is known has come to its end.
func (f *fleet) awaitEnd() {
	limit := time.Now().Add(5*time.Minute + 20*f.cfg.lease)
	for !f.ended() && time.Now().Before(limit) {
		time.Sleep(f.w.delay(500 * time.Millisecond))
	}
}

// ended reports whether nothing is left but dead letters, leases included.
func (f *fleet) ended() bool {
	f.watch.mu.Lock()
	defer f.watch.mu.Unlock()
	for _, t := range f.watch.tasks {
		if t.accepted && !t.done && t.dead == "" {
			return false
		}
	}
	for _, p := range f.watch.parts {
		for _, r := range p.records {
			if r.place != 'd' {
				return false
			}
		}
		if entries, _ := f.srv.mini.Stream(p.prefix + "stream"); len(entries) > 0 || len(p.leases) > 0 {
			return false
		}
	}
	return true
}

// judge says what must hold at the end.
func (f *fleet) judge() {
	o := f.watch
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range sortedKeys(o.tasks) {
		f.judgeTask(o.tasks[id])
	}
	f.judgeEvents()
	for _, p := range o.parts {
		for _, token := range sortedKeys(p.leases) {
			f.w.report("", "lease %s of %s is left", token, o.owner[token])
		}
		for _, what := range []string{"stream", "scheduled"} {
			if entries, _ := f.srv.mini.Stream(p.prefix + what); len(entries) > 0 {
				f.w.report("", "%d entries of %s are left, the first of them %v", len(entries), what, entries[0])
			}
		}
		if due, _ := f.srv.mini.SortedSet(p.prefix + "due"); len(due) > 0 {
			f.w.report("", "left in the schedule: %v", sortedKeys(due))
		}
		for _, what := range []string{"grants", "revoked"} {
			if left, _ := f.srv.mini.HKeys(p.prefix + what); len(left) > 0 {
				f.w.report("", "left in %s: %v", what, left)
			}
		}
		for _, what := range []string{"steps", "counts", "tasks"} {
			ids, _ := f.srv.mini.HKeys(p.prefix + what)
			for _, id := range ids {
				if p.records[id].place != 'd' {
					f.w.report(id, "left in %s, and not a dead letter", what)
				}
			}
		}
	}
}

func (f *fleet) judgeTask(t *task) {
	effects := f.gateway.effects[t.id]
	switch {
	case !t.accepted && !t.done && t.dead == "":
		return // nobody was told that it was accepted, and it was not
	case !t.done && t.dead == "":
		f.w.report(t.id, "lost: accepted, and neither done nor dead at the end")
	case t.done && effects != 1:
		f.w.report(t.id, "done with %d effects", effects)
	case t.dead != "" && effects > 1:
		f.w.report(t.id, "dead with %d effects", effects)
	}
	if t.dead == "" {
		return
	}
	ok := false
	switch t.dead {
	case "failures":
		ok = t.failures >= f.qcfg.MaxFailures
	case "no_handler":
		ok = t.kind == "unknown"
	case "undecodable":
		ok = t.garbage
	case "dead":
		deadline := !t.deadline.IsZero() && f.w.start.Add(t.deadAt).After(t.deadline)
		ok = t.rejected || deadline || t.interruptions >= f.qcfg.MaxInterruptions
	}
	if !ok {
		f.w.report(t.id, "a dead letter without a reason (%s, %d failures, %d interruptions)", t.dead, t.failures, t.interruptions)
	}
}

// shutDown ends everything that is left; what does not end is found by the
// bubble.
func (f *fleet) shutDown() {
	f.operator.close()
	for _, p := range f.procs {
		p.close()
		p.bury()
	}
	time.Sleep(10 * time.Second)
	synctest.Wait()
	if n := f.srv.mini.CurrentConnectionCount(); n > 0 {
		f.w.report("", "%d connections are left", n)
	}
	f.srv.close()
}
