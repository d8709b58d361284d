package observe

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The alerts that each phase must make fire, and that must be over at the end.
var (
	fireEarly  = []string{"ClaimqDeadLettersArriving", "ClaimqFailureRatioHigh"}
	fireHeld   = []string{"ClaimqReclaimLoopStuck", "ClaimqWorkerNotReady", "ClaimqExpiredLeasesNotReclaimed"}
	fireFrozen = []string{"ClaimqReclaimLoopStuck", "ClaimqNoActiveConsumers", "ClaimqExpiredLeasesNotReclaimed", "ClaimqProcessUnreachable", "ClaimqOldestWaitingTooOld"}
	fireCutOff = []string{"ClaimqLeasesLost"}
)

// run is what one test does, step after step.
type run struct {
	*rig
	load traffic
}

// TestObserve is the whole check. `make observe` runs it for longer.
func TestObserve(t *testing.T) {
	r := &run{rig: newRig(t)}
	r.load.r = r.rig
	t.Cleanup(r.load.halt) // before the server goes
	t.Cleanup(r.holds.first.open)
	t.Cleanup(r.holds.later.open)

	r.work()
	r.kill()
	r.work2()
	r.stopReclaiming()
	r.freeze()
	r.recover()
	panels := r.askPanels()
	rules := r.askRules()
	fired := r.fired()
	t.Logf("fired: %s", strings.Join(fired, ", "))
	if !t.Failed() {
		summary = fmt.Sprintf("observe: ok panels=%d rules=%d alerts_fired=%d", panels, rules, len(fired))
	}
}

// spare is what is left of the time asked for beyond what the phases need.
func spare() time.Duration { return max(0, *duration-100*time.Second) }

// work is ordinary traffic with some that fails, then quiet.
func (r *run) work() {
	r.load.start(true)
	r.pause(spare() / 2)
	r.alertsFire("tasks fail and some are given up", 40*time.Second, fireEarly...)
	r.load.halt()
	r.agree("all is quiet", time.Minute, func(x truth) bool { return x.waiting+x.pending == 0 })
	r.load.start(false)
}

// work2 is ordinary traffic without failures.
func (r *run) work2() {
	r.load.start(false)
	r.pause(time.Second + spare()/2)
}

// kill ends one worker under load, while the others have no slot free, and
// compares what Prometheus says with what the server holds: when the leases
// have ended, and again when the tasks have been taken over.
func (r *run) kill() {
	victim := r.members[0]
	r.fill()
	reclaimed := `sum(claimq_reclaimed_entries_total{instance!="` + victim.ops + `"})`
	before, _ := r.prom.value(r.t, reclaimed)
	events := r.takenOver()
	r.holds.later.close() // what is taken over stays pending until it was compared

	victim.worker.Kill()
	r.load.halt()
	lost := r.inHand(victim.consumer())
	if lost == 0 {
		r.t.Fatal("the worker that was killed had nothing in hand")
	}
	left := func() time.Duration { return soon - time.Since(victim.worker.DiedAt()) }
	x := r.agree("a worker is dead", left(), func(x truth) bool { return x.expired == lost })
	if x.pending < lost || x.waiting == 0 {
		r.t.Errorf("there was no load: %v", x)
	}
	r.holds.first.open()
	r.agree("its tasks were taken over", left(), func(x truth) bool {
		now, _ := r.prom.value(r.t, reclaimed)
		return x.expired == 0 && x.pending >= lost && int64(now-before) == lost && r.takenOver()-events == lost
	})
	r.t.Logf("%d tasks of the worker that was killed; all compared %v after its death", lost,
		time.Since(victim.worker.DiedAt()).Round(100*time.Millisecond))
	r.holds.later.open()
	r.alertsFire("a worker is gone", 30*time.Second, "ClaimqProcessUnreachable")
	r.start(victim)
}

// fill occupies every slot with tasks that wait at the receiver, while others
// go on coming.
func (r *run) fill() {
	r.holds.first.close()
	r.load.hold((slots+2)*len(r.members) + 4)
	r.eventually("every slot is in use", func() bool {
		return r.holds.first.waiting.Load() >= int64(slots*len(r.members))
	})
}

// stopReclaiming leaves no worker that looks for ended leases: two have no slot
// free, and the third is cut off from the server.
func (r *run) stopReclaiming() {
	r.fill()
	far := r.members[2]
	far.proxy.BlackholeRequests()
	r.alertsFire("a worker is cut off with tasks in hand", 20*time.Second, fireCutOff...)
	r.alertsFire("nobody looks for ended leases", 45*time.Second, fireHeld...)
	silent := fmt.Sprintf(`max(time() - claimq_loop_heartbeat_timestamp_seconds{instance=%q,loop="fetch"})`, far.ops)
	all, err := r.prom.over(silent, time.Now().Add(-20*time.Second))
	if err != nil || len(all) != 1 || slices.Max(all[0].values) < 1 {
		r.t.Errorf("the loop that reads was not seen to stand still: %v (%v)", all, err)
	}
	far.proxy.Cut()
	far.proxy.Heal()
}

// freeze stops all workers at once.
func (r *run) freeze() {
	for _, m := range r.members {
		m.worker.Signal(r.t, syscall.SIGSTOP)
	}
	r.load.halt()
	r.alertsFire("all workers are frozen", 45*time.Second, fireFrozen...)
	x := r.agree("all workers are frozen", soon, nil)
	if x.expired == 0 || x.waiting == 0 {
		r.t.Errorf("nothing was in hand: %v", x)
	}
	r.draw("overview", "--top", "32", "--suffix=-frozen")
	for _, m := range r.members {
		m.worker.Signal(r.t, syscall.SIGCONT)
	}
}

// recover ends everything, and so must the alerts.
func (r *run) recover() {
	r.holds.first.open()
	r.load.start(false)
	over := append(slices.Concat(fireEarly, fireHeld, fireFrozen), fireCutOff...)
	var still []string
	if !r.within(time.Minute, func() bool {
		now, err := r.prom.firing()
		r.must(err)
		still = nil
		for _, name := range over {
			if now[name] {
				still = append(still, name)
			}
		}
		return len(still) == 0
	}) {
		r.t.Errorf("a minute after everything was well again these alerts fire: %v", still)
	}
	r.draw("overview", "--top", "32", "--suffix=-top")
	r.draw("overview")
	r.draw("queue")
	r.draw("workers")
	r.load.halt()
	r.agree("all is well again", time.Minute, func(x truth) bool { return x.waiting+x.pending == 0 })
}

// alertsFire waits until all of the alerts fire at one moment.
func (r *run) alertsFire(when string, limit time.Duration, names ...string) {
	r.t.Helper()
	began := time.Now()
	var now map[string]bool
	ok := r.within(limit, func() bool {
		var err error
		now, err = r.prom.firing()
		r.must(err)
		return !slices.ContainsFunc(names, func(name string) bool { return !now[name] })
	})
	if !ok {
		r.t.Errorf("%s: not within %v: %v; these fire: %v", when, limit, names, slices.Sorted(maps.Keys(now)))
		return
	}
	r.t.Logf("%s: after %v: %v", when, time.Since(began).Round(100*time.Millisecond), names)
}

// fired are the names of all alerts that fired at some time.
func (r *run) fired() []string {
	r.t.Helper()
	all, err := r.prom.over(`count by (alertname) (ALERTS{alertstate="firing"})`, r.began)
	r.must(err)
	var names []string
	for _, s := range all {
		names = append(names, strings.TrimPrefix(s.labels["alertname"], "Claimq"))
	}
	slices.Sort(names)
	return names
}

// askRules evaluates every rule as Prometheus has it.
func (r *run) askRules() int {
	r.t.Helper()
	rules, err := r.prom.rules()
	r.must(err)
	recorded := 0
	for _, rule := range rules {
		if rule.Health != "ok" {
			r.t.Errorf("%s: %s %s", rule.Name, rule.Health, rule.LastError)
		}
		all, err := r.prom.over(rule.Query, r.began)
		if err != nil {
			r.t.Errorf("%s: %v", rule.Name, err)
		}
		if rule.Type != "recording" {
			continue
		}
		recorded++
		if len(all) == 0 {
			r.t.Errorf("%s has no data", rule.Name)
		}
		if kept, err := r.prom.over(rule.Name, r.began); err != nil || len(kept) == 0 {
			r.t.Errorf("%s was not recorded (%v)", rule.Name, err)
		}
	}
	if recorded == 0 || recorded == len(rules) {
		r.t.Errorf("%d rules, %d of them recorded", len(rules), recorded)
	}
	return len(rules)
}
