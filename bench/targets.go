package main

import (
	"fmt"
	"strings"
)

// target is one promise and what was measured.
type target struct {
	name    string
	value   float64
	unit    string // after the value and the limit
	limit   float64
	atLeast bool // the limit is a floor, not a ceiling
	detail  string
	missing string // why there is no value
}

func (t target) String() string {
	op := "≤"
	if t.atLeast {
		op = "≥"
	}
	limit := fmt.Sprintf("(limit %s %s%s)", op, number(t.limit), t.unit)
	if t.missing != "" {
		return fmt.Sprintf("target %s: missed not measured, %s %s", t.name, t.missing, limit)
	}
	verdict := "missed"
	if t.value <= t.limit && !t.atLeast || t.value >= t.limit && t.atLeast {
		verdict = "met"
	}
	detail := ""
	if t.detail != "" {
		detail = ", " + t.detail
	}
	return fmt.Sprintf("target %s: %s %s%s%s %s", t.name, verdict, number(t.value), t.unit, detail, limit)
}

// number prints three digits that count.
func number(v float64) string {
	switch {
	case v >= 100 || v == float64(int(v)):
		return thousands(fmt.Sprintf("%.0f", v))
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func thousands(s string) string {
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// targets judges what was measured; sections that did not run say nothing.
func (b *bench) targets() []target {
	var all []target
	for _, s := range []struct {
		section string
		judge   func(*bench) []target
	}{
		{"cycle", (*bench).cycleTargets}, {"drain", (*bench).drainTargets}, {"enqueue", (*bench).enqueueTargets},
		{"both", (*bench).bothTargets}, {"steady", (*bench).steadyTargets}, {"quiet", (*bench).quietTargets},
		{"growth", (*bench).growthTargets},
	} {
		if len(b.sections) == 0 || strings.Contains(" "+strings.Join(b.sections, " ")+" ", " "+s.section+" ") {
			all = append(all, s.judge(b)...)
		}
	}
	return all
}

// plain is a target on one number of ours.
func (b *bench) plain(t target, work, name string) target {
	v, ok := b.results.value(us, work, name)
	if !ok {
		t.missing = "no result"
	}
	t.value = v
	return t
}

// against is a target on our number divided by another's.
func (b *bench) against(t target, other, work, otherWork, name string) target {
	ours, ok := b.results.value(us, work, name)
	theirs, ok2 := b.results.value(other, otherWork, name)
	switch {
	case !ok:
		t.missing = "no result"
	case !ok2 || theirs == 0:
		t.missing = other + " is left out"
	default:
		t.value, t.unit = ours/theirs, " ×"
		if t.detail == "" {
			t.detail = fmt.Sprintf("%s against %s", number(ours), number(theirs))
		}
	}
	return t
}

// best is the peer with the largest number, or the smallest.
func (b *bench) best(work, name string, least bool) string {
	best, at := "", 0.0
	for _, c := range b.contenders {
		v, ok := b.results.value(c.name, work, name)
		if !ok || c.inner || c.name == us {
			continue
		}
		if best == "" || v > at && !least || v < at && least {
			best, at = c.name, v
		}
	}
	if best == "" {
		return "every peer"
	}
	return best
}

// fastest is a target against the best peer, which is named.
func (b *bench) fastest(t target, work, name string, least bool) target {
	peer := b.best(work, name, least)
	t = b.against(t, peer, work, work, name)
	if t.missing == "" {
		t.detail = peer + ", " + t.detail
	}
	return t
}

func (b *bench) cycleTargets() []target {
	w := cycleWork(smallPayload)
	return []target{
		b.against(target{name: "server CPU of a safe life in batches of 100, against the floor", limit: 2}, floor, w, w, "total_us"),
		b.against(target{name: "memory of a waiting task of 256 B, against a plain entry", limit: 1.4}, floor, w, w, "waiting_bytes"),
		b.plain(target{name: "memory of a finished ID", unit: " bytes", limit: 100}, w, "done_bytes"),
	}
}

func (b *bench) drainTargets() []target {
	w := "drain " + mainWork.String()
	allocs := b.plain(target{name: "client allocations per task, no-op handler", limit: 12}, w, "allocs")
	if cpu, ok := b.results.value(us, w, "client_us"); ok {
		allocs.detail = fmt.Sprintf("with %s µs of client CPU", number(cpu))
	}
	return []target{
		allocs,
		b.fastest(target{name: "drain at 64 handlers, against the fastest peer", limit: 4, atLeast: true}, w, "tps", false),
		b.against(target{name: "drain at 64 handlers, against asynq", limit: 9, atLeast: true}, asynq, w, w, "tps"),
	}
}

func (b *bench) enqueueTargets() []target {
	m, l, h := many.work(smallPayload), lone.work(smallPayload), batches.work(smallPayload)
	return []target{
		b.against(target{name: "enqueue with 64 callers, against asynq", limit: 3, atLeast: true}, asynq, m, m, "tps"),
		b.against(target{name: "enqueue in batches of 100, against River's COPY", limit: 4, atLeast: true}, riverName, h, h, "tps"),
		b.fastest(target{name: "a lone caller, against the fastest peer", limit: 1, atLeast: true}, l, "tps", false),
	}
}

func (b *bench) bothTargets() []target {
	safety := b.against(target{name: "everything on, against our own code with safety left out", limit: .7, atLeast: true}, bare, "both", "both", "tps")
	ours, ok := b.results.value(us, "both", "server_us")
	theirs, ok2 := b.results.value(bare, "both", "server_us")
	if ok && ok2 { // which says more than tasks/s do on a busy machine
		safety.detail += fmt.Sprintf(" tasks/s, %s against %s µs of server CPU", number(ours), number(theirs))
	}
	return []target{
		b.fastest(target{name: "producers and consumers at once, 64 each, against the fastest peer", limit: 4, atLeast: true}, "both", "tps", false),
		safety,
	}
}

func (b *bench) steadyTargets() []target {
	return []target{
		b.against(target{name: "server CPU one task at a time at 1,000/s, against single commands", limit: 2.5}, single, "steady", "steady", "server_us"),
		b.against(target{name: "server CPU per task at 1,000/s, against watermill-redisstream", limit: 1.25}, watermill, "steady", "steady", "server_us"),
		b.fastest(target{name: "latency p50 at 1,000/s, against the fastest peer", limit: 1}, "steady", "p50", true),
		b.fastest(target{name: "latency p99 at 1,000/s, against the fastest peer", limit: 1}, "steady", "p99", true),
	}
}

func (b *bench) quietTargets() []target {
	over := fmt.Sprintf("over %s", b.rests())
	return []target{
		b.plain(target{name: "idle fleet of 100 workers", unit: " % of a core", limit: 1, detail: over}, idleWork, "core_percent"),
		b.plain(target{name: "sweep with nothing to reclaim, 100,000 pending, 100 workers", unit: " % of a core", limit: 2, detail: over}, sweepWork, "core_percent"),
		b.plain(target{name: "renewals of 10,000 tasks in hand", unit: " % of a core", limit: 2, detail: over}, renewWork, "core_percent"),
	}
}

// growthTargets has one line for each kind of state: the worst of its states.
func (b *bench) growthTargets() []target {
	var all []target
	index := map[string]int{}
	for _, s := range b.states() {
		t := b.plain(target{name: "growth, " + s.family, unit: " ×", limit: 1.2, detail: s.name + " against " + empty}, "growth "+s.name, "ratio")
		if plain, ok := b.results.value(floor, "growth "+s.name, "ratio"); ok {
			t.detail += fmt.Sprintf(", where plain commands on as much data cost %s ×", number(plain))
		}
		i, seen := index[s.family]
		switch {
		case !seen:
			index[s.family] = len(all)
			all = append(all, t)
		case t.value > all[i].value:
			all[i] = t
		}
	}
	all = append(all,
		b.plain(target{name: "growth, partitions, a worker's drain", unit: " ×", limit: 1.2, detail: "64 partitions against 1, 64 handlers"}, drainWork, "ratio"),
		b.plain(target{name: "growth, partitions, a producer's batches of 100", unit: " ×", limit: 1.2, detail: "64 partitions against 1: a call for each partition"}, enqueueWork, "ratio"),
	)
	few, many := b.besides()[0], b.besides()[1]
	ours, ok := b.results.value(us, promotionWork(many), "promote_us")
	base, ok2 := b.results.value(us, promotionWork(few), "promote_us")
	t := target{name: "growth, promotion of 20,000 due at once", unit: " ×", limit: 1.2, detail: fmt.Sprintf("beside %s scheduled", thousands(fmt.Sprint(many)))}
	if t.value = ours / base; !ok || !ok2 {
		t.missing = "no result"
	}
	return append(all, t)
}
