package demo

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var epoch = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time {
	return epoch.Add(time.Duration(seconds * float64(time.Second)))
}

// TestUnexplained is the claim that the demo stands or falls with: a queue
// that delivers twice for no reason must not pass.
func TestUnexplained(t *testing.T) {
	killed := func(task string, fence uint64) *fault {
		return &fault{what: "killed", worker: "w1", at: at(1), inHand: map[string]uint64{task: fence}}
	}
	frozen := func(task string, fence uint64) *fault {
		return &fault{what: "frozen", worker: "w1", at: at(1), thawed: at(5), inHand: map[string]uint64{task: fence}}
	}
	for name, tc := range map[string]struct {
		requests []request
		faults   []*fault
		want     int
	}{
		"one request": {[]request{{at: at(0), worker: "w1", fence: 1}}, nil, 0},
		"twice without a fault": {[]request{
			{at: at(0), worker: "w1", fence: 1}, {at: at(3), worker: "w2", fence: 2},
		}, nil, 1},
		"holder killed": {[]request{
			{at: at(0), worker: "w1", fence: 1}, {at: at(3), worker: "w2", fence: 2},
		}, []*fault{killed("t", 1)}, 0},
		"holder killed, but it had settled": {[]request{
			{at: at(0), worker: "w1", fence: 1}, {at: at(3), worker: "w2", fence: 2},
		}, []*fault{killed("other", 1)}, 1},
		"somebody else killed": {[]request{
			{at: at(0), worker: "w3", fence: 1}, {at: at(3), worker: "w2", fence: 2},
		}, []*fault{killed("t", 1)}, 1},
		"killed, then twice": {[]request{
			{at: at(0), worker: "w1", fence: 1}, {at: at(3), worker: "w2", fence: 2}, {at: at(4), worker: "w3", fence: 3},
		}, []*fault{killed("t", 1)}, 1},
		"twice under one lease": {[]request{
			{at: at(0), worker: "w1", fence: 1}, {at: at(0.1), worker: "w1", fence: 1},
		}, []*fault{killed("t", 1)}, 1},
		"on its way when its sender was killed": {[]request{
			{at: at(1.01), worker: "w1", fence: 1}, {at: at(3), worker: "w2", fence: 2},
		}, []*fault{killed("other", 1)}, 0},
		"holder frozen": {[]request{
			{at: at(0.9), worker: "w1", fence: 1}, {at: at(3), worker: "w2", fence: 2},
		}, []*fault{frozen("t", 1)}, 0},
		"frozen before it sent, sends when it wakes": {[]request{
			{at: at(3), worker: "w2", fence: 5}, {at: at(5.1), worker: "w1", fence: 2},
		}, []*fault{{what: "frozen", worker: "w1", at: at(1), thawed: at(5), after: 4, inHand: map[string]uint64{}}}, 0},
		"sent under a lease granted after it woke": {[]request{
			{at: at(5.1), worker: "w1", fence: 6}, {at: at(5.2), worker: "w2", fence: 7},
		}, []*fault{{what: "frozen", worker: "w1", at: at(1), thawed: at(5), after: 4, inHand: map[string]uint64{}}}, 1},
		"taken over by the one that was frozen next": {[]request{
			{at: at(5.1), worker: "w1", fence: 2}, {at: at(5.2), worker: "w1", fence: 8},
		}, []*fault{{what: "frozen", worker: "w1", at: at(1), thawed: at(5), inHand: map[string]uint64{}, seen: map[string]uint64{"t": 2}}}, 0},
	} {
		byTask := map[string][]request{"t": nil}
		for i, r := range tc.requests {
			r.task, r.key, r.seq = "t", "k", i+1
			byTask["t"] = append(byTask["t"], r)
		}
		var rep Report
		if len(tc.faults) > 0 && tc.faults[0].after != 0 {
			// The fence under which another task of the frozen worker went on.
			tc.faults[0].inHand["u"] = 1
			byTask["u"] = []request{
				{task: "u", key: "u", worker: "w1", fence: 1, at: at(0.9)}, {task: "u", key: "u", worker: "w2", fence: tc.faults[0].after, at: at(3)},
			}
			tc.faults[0].after = 0
		}
		rep.judge([]string{"t", "u"}, byTask, map[string]int{"t": 1, "u": 1}, nil, tc.faults)
		if rep.Unexplained != tc.want {
			t.Errorf("%s: %d unexplained, want %d", name, rep.Unexplained, tc.want)
		}
		if (rep.Err() == nil) != (tc.want == 0) {
			t.Errorf("%s: %v", name, rep.Err())
		}
	}
}

func TestOtherProblems(t *testing.T) {
	one := map[string][]request{"t": {{task: "t", key: "k", fence: 1}}}
	for name, tc := range map[string]struct {
		ids     []string
		byTask  map[string][]request
		effects map[string]int
		odd     []string
		want    string
	}{
		"all well":        {[]string{"t"}, one, map[string]int{"t": 1}, nil, ""},
		"an effect twice": {[]string{"t"}, one, map[string]int{"t": 2}, nil, "t had 2 effects"},
		"a task lost":     {[]string{"t", "u"}, one, map[string]int{"t": 1}, nil, "u had 0 effects"},
		"a stranger":      {nil, one, map[string]int{"t": 1}, nil, "never enqueued"},
		"no task at all":  {[]string{"t"}, one, map[string]int{"t": 1}, []string{"GET /"}, "GET /"},
		"another key": {[]string{"t"}, map[string][]request{"t": {
			{task: "t", key: "k", fence: 1}, {task: "t", key: "l", fence: 2},
		}}, map[string]int{"t": 1}, nil, "key changed"},
	} {
		var r Report
		r.judge(tc.ids, tc.byTask, tc.effects, tc.odd, nil)
		switch err := r.Err(); {
		case tc.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tc.want != "" && !strings.Contains(strings.Join(r.problems, "\n"), tc.want):
			t.Errorf("%s: %q", name, r.problems)
		}
	}
}

func TestRecoveryIsTheLongest(t *testing.T) {
	first := &fault{what: "killed", worker: "w1", at: at(1), inHand: map[string]uint64{"a": 1, "b": 1, "c": 1}}
	second := &fault{what: "frozen", worker: "w2", at: at(3.5), inHand: map[string]uint64{}, seen: map[string]uint64{"b": 2}}
	var r Report
	r.judge([]string{"a", "b", "c"}, map[string][]request{
		"a": {{task: "a", worker: "w1", fence: 1, at: at(0.9)}, {task: "a", worker: "w2", fence: 2, at: at(3)}},
		"b": {{task: "b", worker: "w1", fence: 1, at: at(0.9)}, {task: "b", worker: "w3", fence: 3, at: at(9)}},
		"c": {{task: "c", worker: "w1", fence: 1, at: at(0.9)}},
	}, map[string]int{"a": 1, "b": 1, "c": 1}, nil, []*fault{first, second})
	if r.Longest != 2500*time.Millisecond || r.Recovered != 2 {
		t.Errorf("%v over %d tasks", r.Longest, r.Recovered)
	}
	var b strings.Builder
	r.Print(&b, 2*time.Second)
	for _, want := range []string{"tasks  ", "requests  ", "longest recovery  2.5s", "unexplained"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the report has no %q:\n%s", want, b.String())
		}
	}
}
