package contender

import (
	"strings"
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	sorted := []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for p, want := range map[float64]float64{0: 1, .5: 6, .99: 10, 1: 10} {
		if got := Percentile(sorted, p); got != want {
			t.Errorf("percentile %v is %v, not %v", p, got, want)
		}
	}
	if got := Percentile(nil, .5); got != 0 {
		t.Errorf("percentile of nothing is %v", got)
	}
}

func TestIDs(t *testing.T) {
	for _, length := range []int{36, 200} {
		seen := map[string]bool{}
		for i := range 10000 {
			id := ID(1234567890123456789, i, length)
			if len(id) != length || seen[id] || strings.ContainsRune(id, ' ') {
				t.Fatalf("ID %d of length %d is %q", i, length, id)
			}
			seen[id] = true
		}
	}
	if ID(1<<20, 1, 36) == ID(1<<21, 1, 36) {
		t.Error("two runs have the same IDs")
	}
}

func TestPayloads(t *testing.T) {
	for _, size := range []int{256, 8 << 10} {
		if p := NewPayloads(size).Make(); len(p) != size {
			t.Errorf("%d bytes, not %d", len(p), size)
		}
	}
}

func TestInfoField(t *testing.T) {
	const info = "# CPU\r\nused_cpu_sys:1.25\r\nused_cpu_sys_children:9\r\nrole:master\r\n"
	if v, ok := InfoField(info, "used_cpu_sys"); !ok || v != 1.25 {
		t.Errorf("used_cpu_sys is %v, %v", v, ok)
	}
	for _, name := range []string{"cpu_sys", "role", "none"} {
		if v, ok := InfoField(info, name); ok {
			t.Errorf("%s is %v", name, v)
		}
	}
}

// TestSinkCounts: the first and the last of the tasks that are wanted are
// noted, and what comes after is seen as a repetition.
func TestSinkCounts(t *testing.T) {
	s := &Sink{want: 2, done: make(chan struct{})}
	s.String("a")
	select {
	case <-s.done:
		t.Fatal("done after the first of two")
	default:
	}
	s.Bytes([]byte("b"))
	select {
	case <-s.done:
	default:
		t.Fatal("not done after two of two")
	}
	s.String("c")
	if s.n.Load() != 3 || s.first.Load() == 0 || s.last.Load() < s.first.Load() {
		t.Errorf("%d runs, from %d to %d", s.n.Load(), s.first.Load(), s.last.Load())
	}
}

func TestSinkMeasuresLatency(t *testing.T) {
	s := &Sink{look: true, warm: time.Now().Add(-time.Second), done: make(chan struct{})}
	s.String(NewPayloads(256).Make())
	s.warm = time.Now().Add(time.Hour)
	s.String(NewPayloads(256).Make())
	if len(s.ms) != 1 || s.ms[0] < 0 || s.ms[0] > 10_000 {
		t.Errorf("latencies %v ms: want one, that of the task after the warm-up", s.ms)
	}
}
