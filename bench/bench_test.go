package main

import (
	"testing"
	"time"
)

func TestTargetLines(t *testing.T) {
	for _, c := range []struct {
		target target
		want   string
	}{
		{target{name: "a", value: 2, unit: " ×", limit: 2}, "target a: met 2 × (limit ≤ 2 ×)"},
		{target{name: "a", value: 2.01, unit: " ×", limit: 2, detail: "why"}, "target a: missed 2.01 ×, why (limit ≤ 2 ×)"},
		{target{name: "a", value: 4, limit: 4, atLeast: true}, "target a: met 4 (limit ≥ 4)"},
		{target{name: "a", value: 3.9, limit: 4, atLeast: true}, "target a: missed 3.90 (limit ≥ 4)"},
		{target{name: "a", value: 9, limit: 4, atLeast: true, missing: "river is left out"}, "target a: missed not measured, river is left out (limit ≥ 4)"},
	} {
		if got := c.target.String(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.126: "0.13", 1.4: "1.40", 12.34: "12.3", 123.4: "123", 1234.5: "1,234", 12345678: "12,345,678",
	} {
		if got := number(v); got != want {
			t.Errorf("number(%v) is %s, not %s", v, got, want)
		}
	}
}

func TestMedianAndSpread(t *testing.T) {
	r := results{{"x", "w"}: {{"v": 5}, {"v": 1}, {"v": 3}, {"other": 1}}}
	if v, ok := r.median("x", "w", "v"); !ok || v != 3 {
		t.Errorf("median of 5, 1 and 3 is %v, %v", v, ok)
	}
	r[cell{"x", "w"}] = append(r[cell{"x", "w"}], row{"v": 4})
	if v, _ := r.median("x", "w", "v"); v != 3.5 {
		t.Errorf("median of 5, 1, 3 and 4 is %v", v)
	}
	if v, _ := r.value("x", "w", "v"); v != 3.5 {
		t.Errorf("value of 5, 1, 3 and 4 is %v", v)
	}
	if v, _ := (results{{"x", "w"}: {{"p99": 5}, {"p99": 2}, {"p99": 9}}}).value("x", "w", "p99"); v != 2 {
		t.Errorf("value of the latencies 5, 2 and 9 is %v", v)
	}
	if _, ok := r.value("y", "w", "p99"); ok {
		t.Error("a value of nothing")
	}
	if _, ok := r.median("y", "w", "v"); ok {
		t.Error("a median of nothing")
	}
	if least, most := (results{{"x", "w"}: {{"v": 5}, {"v": 1}}}).spread("x", "w", "v"); least != 1 || most != 5 {
		t.Errorf("spread of 5 and 1 is %v to %v", least, most)
	}
}

// rig has results of three contenders; none of them is a program.
func rig() *bench {
	b := &bench{results: results{}}
	for _, c := range contenders() {
		switch c.name {
		case us, asynq, "rmq", bare:
			b.contenders = append(b.contenders, c)
		}
	}
	b.add(us, "w", row{"tps": 40, "p50": 2})
	b.add(asynq, "w", row{"tps": 10, "p50": 1})
	b.add("rmq", "w", row{"tps": 20, "p50": 4})
	b.add(bare, "w", row{"tps": 50, "p50": .5}) // a yardstick, never a peer
	return b
}

func TestTargetsAgainstOthers(t *testing.T) {
	b := rig()
	for _, c := range []struct{ got, want string }{
		{b.fastest(target{name: "a", limit: 2, atLeast: true}, "w", "tps", false).String(), "target a: met 2 ×, rmq, 40 against 20 (limit ≥ 2 ×)"},
		{b.fastest(target{name: "a", limit: 1}, "w", "p50", true).String(), "target a: missed 2 ×, asynq, 2 against 1 (limit ≤ 1 ×)"},
		{b.against(target{name: "a", limit: .7, atLeast: true}, bare, "w", "w", "tps").String(), "target a: met 0.80 ×, 40 against 50 (limit ≥ 0.70 ×)"},
		{b.against(target{name: "a", limit: 1}, riverName, "w", "w", "tps").String(), "target a: missed not measured, river is left out (limit ≤ 1)"},
		{b.plain(target{name: "a", limit: 1}, "nothing", "tps").String(), "target a: missed not measured, no result (limit ≤ 1)"},
	} {
		if c.got != c.want {
			t.Errorf("got  %s\nwant %s", c.got, c.want)
		}
	}
}

// TestGrowthTargets: one line for each kind of state, the worst of its states, with
// what plain commands cost in the same one.
func TestGrowthTargets(t *testing.T) {
	b := &bench{results: results{}, config: config{full: true}}
	b.add(us, "growth backlog 100,000", row{"ratio": 1.1})
	b.add(us, "growth backlog 1,000,000", row{"ratio": 1.3})
	b.add(floor, "growth backlog 1,000,000", row{"ratio": 1.4})
	b.add(floor, "growth backlog 100,000", row{"ratio": 1.2})
	b.add(us, "growth 100,000 pending", row{"ratio": 1.05})
	b.add(us, drainWork, row{"ratio": 1.15})
	b.add(us, promotionWork(0), row{"promote_us": 10})
	b.add(us, promotionWork(1_000_000), row{"promote_us": 11})
	got := map[string]bool{}
	for _, target := range b.growthTargets() {
		got[target.String()] = true
	}
	for _, want := range []string{
		"target growth, backlog: missed 1.30 ×, backlog 1,000,000 against backlog 10, where plain commands on as much data cost 1.40 × (limit ≤ 1.20 ×)",
		"target growth, pending: met 1.05 ×, 100,000 pending against backlog 10 (limit ≤ 1.20 ×)",
		"target growth, partitions, a worker's drain: met 1.15 ×, 64 partitions against 1, 64 handlers (limit ≤ 1.20 ×)",
		"target growth, scheduled: missed not measured, no result (limit ≤ 1.20 ×)",
		"target growth, promotion of 20,000 due at once: met 1.10 ×, beside 1,000,000 scheduled (limit ≤ 1.20 ×)",
	} {
		if !got[want] {
			t.Errorf("no line %q", want)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
}

func TestAmountFitsAMoment(t *testing.T) {
	b := &bench{}
	for _, c := range contenders() {
		for _, handlers := range []int{1, 10, 64, 256} {
			n := b.amount(c, handlers, smallPayload, time.Millisecond)
			if most := handlers*1000 + 100; n > most || n < 100 {
				t.Errorf("%s: %d tasks of 1 ms for %d handlers, more than they run in a second", c.name, n, handlers)
			}
		}
	}
}

func TestSectionsOfTheCommandLine(t *testing.T) {
	got := list("drain, both,,cycle")
	if len(got) != 3 || got[0] != "drain" || got[1] != "both" || got[2] != "cycle" {
		t.Errorf("%q", got)
	}
}

func TestCovers(t *testing.T) {
	now := time.Now()
	want := map[string]time.Time{"a": now, "b": now}
	if covers(map[string]time.Time{"a": now, "c": now}, want) {
		t.Error("b is missing")
	}
	if !covers(map[string]time.Time{"a": now, "b": now, "c": now}, want) {
		t.Error("nothing is missing")
	}
}
