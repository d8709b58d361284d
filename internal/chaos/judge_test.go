package chaos

import (
	"testing"
	"time"

	"github.com/claimq/claimq/internal/fleet"
)

// The run is worth what its judge is: each case is a task that ran twice.
func TestJudge(t *testing.T) {
	t0 := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds float64) time.Time { return t0.Add(time.Duration(seconds * float64(time.Second))) }
	run := func(worker string, attempt int, from, to float64) fleet.Request {
		q := fleet.Request{Worker: worker, Task: id(0), Attempt: attempt, Fence: uint64(from * 1000), At: at(from), Status: 200}
		if to > 0 {
			q.Ended = at(to)
		}
		return q
	}
	kill := &fault{kind: killed, worker: "s0-0001", from: at(10), to: at(10), excuses: true, orphans: at(10)}
	freeze := &fault{kind: frozen, worker: "s0-0001", from: at(10), to: at(14), excuses: true, orphans: at(10)}
	cuts := &fault{kind: cut, worker: "s0-", from: at(10), to: at(10)}
	fills := &fault{kind: full, from: at(9), to: at(11)}
	down := &fault{kind: killAlways, from: at(11), to: at(13), excuses: true, stops: true}
	old := func(may bool) *fault {
		return &fault{kind: restored, from: at(10), to: at(11), mayForget: []bool{may}, forgot: map[int]bool{}}
	}
	second := &fault{kind: killed, worker: "s2-0001", from: at(12), to: at(12), excuses: true, orphans: at(12)}
	early := func(q fleet.Request) fleet.Request {
		q.Fence = 1
		return q
	}
	flush := &fault{kind: flushed, from: at(10), to: at(10.1), mayForget: []bool{true}, forgot: map[int]bool{}, fence: 10050}
	granted := func(q fleet.Request, at float64) fleet.Request {
		q.Fence = uint64(at * 1000)
		return q
	}
	for name, c := range map[string]struct {
		faults     []*fault
		prev, next fleet.Request
		acked      float64
		want       string // explained by; or overlap, unexplained, late
	}{
		"two live holders":            {nil, run("s0-0001", 1, 9, 12), run("s1-0001", 2, 11, 12), 1, "overlap"},
		"after an answer":             {nil, run("s0-0001", 1, 9, 9.5), run("s1-0001", 2, 11, 12), 1, "unexplained"},
		"killed":                      {[]*fault{kill}, run("s0-0001", 1, 9, 10), run("s1-0001", 2, 12, 13), 1, killed},
		"another was killed":          {[]*fault{kill}, run("s2-0001", 1, 9, 14), run("s1-0001", 2, 12, 13), 1, "overlap"},
		"before the kill":             {[]*fault{kill}, run("s0-0001", 1, 8, 10), run("s1-0001", 2, 9, 13), 1, "overlap"},
		"answered long before":        {[]*fault{kill}, run("s0-0001", 1, 7, 8), run("s1-0001", 2, 12, 13), 1, "unexplained"},
		"attempt not counted":         {[]*fault{kill}, run("s0-0001", 1, 9, 10), run("s1-0001", 1, 12, 13), 1, "unexplained"},
		"late":                        {[]*fault{kill}, run("s0-0001", 1, 9, 10), run("s1-0001", 2, 13.5, 14), 1, "late"},
		"late for the server":         {[]*fault{kill, down}, run("s0-0001", 1, 9, 10), run("s1-0001", 2, 13.5, 14), 1, killed},
		"frozen":                      {[]*fault{freeze}, run("s0-0001", 1, 9, 15), run("s1-0001", 2, 12.5, 13), 1, frozen},
		"late, struck twice":          {[]*fault{kill, second}, run("s0-0001", 1, 9, 10), run("s1-0001", 2, 13.5, 14), 1, killed},
		"overtaken":                   {[]*fault{freeze}, run("s1-0001", 2, 12.5, 13), early(run("s0-0001", 1, 14.1, 14.2)), 1, overtook},
		"overtaken by nothing":        {nil, run("s1-0001", 2, 12.5, 13), early(run("s0-0001", 1, 14.1, 14.2)), 1, "unexplained"},
		"a cut connection is nothing": {[]*fault{cuts}, run("s0-0001", 1, 9, 10.5), run("s1-0001", 2, 12, 13), 1, "unexplained"},
		"full memory is nothing":      {[]*fault{fills}, run("s0-0001", 1, 9, 10.5), run("s1-0001", 2, 12, 13), 1, "unexplained"},
		"completion forgotten":        {[]*fault{old(true)}, run("s0-0001", 1, 9, 9.5), run("s1-0001", 1, 12, 13), 1, restored},
		"not its completion":          {[]*fault{old(false)}, run("s0-0001", 1, 9, 9.5), run("s1-0001", 1, 12, 13), 1, "unexplained"},
		"flushed and enqueued again":  {[]*fault{flush}, run("s0-0001", 1, 9, 9.5), run("s1-0001", 1, 12, 13), 11, flushed},
		"granted before the flush":    {[]*fault{flush}, granted(run("s0-0001", 1, 10.2, 10.5), 10), run("s1-0001", 1, 12, 13), 10.3, flushed},
		"granted after the flush":     {[]*fault{flush}, granted(run("s0-0001", 1, 10.2, 10.5), 10.1), run("s1-0001", 1, 12, 13), 10.3, "unexplained"},
		"flushed, and there is no it": {[]*fault{flush}, run("s0-0001", 1, 9, 9.5), run("s1-0001", 1, 12, 13), 1, "unexplained"},
	} {
		t.Run(name, func(t *testing.T) {
			d := &driver{rig: &rig{t: t, h: &history{faults: c.faults}, l: &ledger{acked: []time.Time{at(c.acked)}}}}
			a := &account{explained: map[string]int{}}
			d.judge(a, 0, c.prev, c.next)
			got := "nothing"
			switch {
			case len(a.overlaps) > 0:
				got = "overlap"
			case len(a.unexplained) > 0:
				got = "unexplained"
			case len(a.late) > 0:
				got = "late"
			default:
				for kind := range a.explained {
					got = kind
				}
			}
			if got != c.want {
				t.Errorf("%s, want %s: %+v", got, c.want, a)
			}
		})
	}
}

// A fault that was too short to cost a lease excuses nothing.
func TestShortFaultsExcuseNothing(t *testing.T) {
	h := &history{}
	for _, c := range []struct {
		lasted time.Duration
		want   bool
	}{{lease / 8, false}, {lease / 2, true}} {
		f := h.add(&fault{kind: refused, from: time.Now().Add(-c.lasted), excuses: true})
		h.over(f)
		if f.excuses != c.want {
			t.Errorf("after %v excuses = %v, want %v", c.lasted, f.excuses, c.want)
		}
	}
}

// What was acknowledged and is gone is a loss, unless a fault since then may
// have destroyed it.
func TestForgotten(t *testing.T) {
	now := time.Now()
	h := &history{}
	f := h.add(&fault{kind: promoted, from: now, to: now.Add(time.Second), mayForget: []bool{true, false}})
	for _, c := range []struct {
		task    int
		written time.Duration
		want    bool
	}{{0, -time.Second, true}, {1, -time.Second, false}, {2, -time.Second, false}, {0, 2 * time.Second, false}} {
		if got := h.forgotten(c.task, now.Add(c.written)); got != c.want {
			t.Errorf("task %d, written %v after the fault: %v, want %v", c.task, c.written, got, c.want)
		}
	}
	if len(f.forgot) != 1 || f.allowed() != 1 {
		t.Errorf("forgot %d of %d, want 1 of 1", len(f.forgot), f.allowed())
	}
}
