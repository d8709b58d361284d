package queue_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/queue"
)

// observed is a histogram of the given times.
func observed(times ...time.Duration) (h queue.Histogram) {
	for _, d := range times {
		h.Observe(d)
	}
	return h
}

func (r *rig) addTimes(times map[string]queue.Histogram) {
	r.t.Helper()
	if err := r.q.AddTimes(bg, times); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) times() map[string]queue.Histogram {
	r.t.Helper()
	times, err := r.q.Times(bg)
	if err != nil {
		r.t.Fatal(err)
	}
	return times
}

// ageTimes makes what is on record of the kinds older.
func (r *rig) ageTimes(d time.Duration, kinds ...string) {
	r.t.Helper()
	for _, kind := range kinds {
		since, counts, _ := strings.Cut(r.c.HGet(bg, r.key(0, "times"), kind).Val(), " ")
		value := fmt.Sprint(int64(atoi(since))-d.Milliseconds(), " ", counts)
		if err := r.c.HSet(bg, r.key(0, "times"), kind, value).Err(); err != nil {
			r.t.Fatal(err)
		}
	}
}

// TestQuantiles compares quantiles of random times with the exact ones: they
// are in the same bucket, that is within a factor of √2.
func TestQuantiles(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		scale := time.Duration(1+r.IntN(1_000_000)) * time.Microsecond
		var all []time.Duration
		for range 1 + r.IntN(500) {
			all = append(all, 2*time.Millisecond+time.Duration(r.ExpFloat64()*float64(scale)))
		}
		h := observed(all...)
		slices.Sort(all)
		if h.Runs() != int64(len(all)) {
			t.Fatalf("seed %d: %d runs, want %d", seed, h.Runs(), len(all))
		}
		for _, p := range []float64{.01, .5, .9, .99, 1} {
			exact := all[max(0, int(p*float64(len(all))+.9999)-1)]
			if got := h.Quantile(p); float64(got) > 1.4143*float64(exact) || float64(got) < float64(exact)/1.4143 {
				t.Errorf("seed %d: quantile %v of %d runs is %v, want about %v", seed, p, len(all), got, exact)
			}
		}
	}
	var none queue.Histogram
	if none.Quantile(.99) != 0 || none.Runs() != 0 {
		t.Error("a histogram without runs has a quantile")
	}
	if d := observed(100 * time.Hour).Quantile(.5); d < 4*time.Hour || d > 5*time.Hour {
		t.Errorf("the median beyond the last bound is %v, want the bound", d)
	}
	if d := observed(-time.Second, 0, time.Microsecond).Quantile(.99); d > time.Millisecond {
		t.Errorf("quantile of next to nothing is %v", d)
	}
}

func TestTimesAreAdded(t *testing.T) {
	redistest.Both(t, func(t *testing.T, b redistest.Backend) {
		r := rigOn(t, b.Client, func(c *queue.Config) { c.Partitions = 3 })
		if got := r.times(); len(got) != 0 {
			t.Fatalf("before the first run: %v", got)
		}
		fast, slow := observed(time.Millisecond, 5*time.Millisecond, 5*time.Millisecond), observed(time.Hour, 9*time.Hour)
		r.addTimes(map[string]queue.Histogram{"mail.send": fast, "report:build,x": slow, "none": {}, queue.OtherKinds: fast})
		r.addTimes(map[string]queue.Histogram{"mail.send": slow})
		r.addTimes(nil)
		want := map[string]queue.Histogram{
			"mail.send":      observed(time.Millisecond, 5*time.Millisecond, 5*time.Millisecond, time.Hour, 9*time.Hour),
			"report:build,x": slow, queue.OtherKinds: fast,
		}
		if diff := cmp.Diff(want, r.times()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		for p := range r.q.Partitions() {
			n, ttl := r.c.Exists(bg, r.key(p, "times")).Val(), r.c.TTL(bg, r.key(p, "times")).Val()
			if (n == 1) != (p == 0) || ttl > 0 {
				t.Errorf("partition %d: %d keys, expiry %v", p, n, ttl)
			}
		}
	})
}

// TestTimesFade: a run counts half after a week, and less the more there are.
func TestTimesFade(t *testing.T) {
	redistest.Both(t, func(t *testing.T, b redistest.Backend) {
		r := rigOn(t, b.Client)
		const week = 7 * 24 * time.Hour
		steps := []struct {
			age  time.Duration
			add  queue.Histogram
			want queue.Histogram
		}{
			{0, queue.Histogram{20: 800, 30: 9}, queue.Histogram{20: 800, 30: 9}},
			{week - time.Hour, queue.Histogram{10: 1}, queue.Histogram{10: 1, 20: 800, 30: 9}},
			{2 * time.Hour, queue.Histogram{10: 1}, queue.Histogram{10: 1, 20: 400, 30: 4}},
			{3 * week, queue.Histogram{10: 1}, queue.Histogram{10: 1, 20: 50}},
			{2000 * week, queue.Histogram{10: 1}, queue.Histogram{10: 1}},
			{-52*week - 2*time.Hour, queue.Histogram{10: 1}, queue.Histogram{10: 2}}, // the clock was stepped back
			{2 * time.Hour, queue.Histogram{10: 1}, queue.Histogram{10: 3}},
			{week, queue.Histogram{10: 1}, queue.Histogram{10: 2}},
			{0, queue.Histogram{10: 99_999}, queue.Histogram{10: 50_000}},
			{0, queue.Histogram{20: 50_000}, queue.Histogram{10: 50_000, 20: 50_000}},
			{0, queue.Histogram{20: 1_000_000}, queue.Histogram{10: 3125, 20: 65_625}},
		}
		for i, s := range steps {
			if i > 0 {
				r.ageTimes(s.age, "k")
			}
			r.addTimes(map[string]queue.Histogram{"k": s.add})
			if diff := cmp.Diff(s.want, r.times()["k"]); diff != "" {
				t.Errorf("step %d (-want +got):\n%s", i, diff)
			}
		}
	})
}

// TestTimesOfTooManyKinds: the record is bounded, nothing that was counted is
// lost, and kinds that are gone make room.
func TestTimesOfTooManyKinds(t *testing.T) {
	redistest.Both(t, func(t *testing.T, b redistest.Backend) {
		r := rigOn(t, b.Client)
		one := observed(time.Second)
		first, more := map[string]queue.Histogram{}, map[string]queue.Histogram{}
		for i := range queue.MaxTimedKinds + 20 {
			first[fmt.Sprintf("a%03d", i)] = one
			more[fmt.Sprintf("b%03d", i)] = one
		}
		r.addTimes(first)
		r.addTimes(first)
		got := r.times()
		if len(got) != queue.MaxTimedKinds+1 || got[queue.OtherKinds].Runs() != 40 || got["a000"].Runs() != 2 {
			t.Fatalf("%d kinds, %d runs of others, %d of a000", len(got), got[queue.OtherKinds].Runs(), got["a000"].Runs())
		}
		kinds := slices.DeleteFunc(slices.Sorted(maps.Keys(got)), func(k string) bool { return k == queue.OtherKinds })
		r.ageTimes(13*24*time.Hour, kinds...)
		r.addTimes(map[string]queue.Histogram{"c": one})
		if got := r.times(); got["c"].Runs() != 0 || len(got) != queue.MaxTimedKinds+1 {
			t.Errorf("a kind that was seen lately made room: %d kinds", len(got))
		}
		r.ageTimes(2*24*time.Hour, kinds[:30]...)
		r.addTimes(more)
		got = r.times()
		old := 0
		for k := range got {
			if strings.HasPrefix(k, "a") {
				old++
			}
		}
		if len(got) != queue.MaxTimedKinds+1 || old != queue.MaxTimedKinds-30 || got[queue.OtherKinds].Runs() != 41+90 {
			t.Errorf("%d kinds, %d of them old, %d runs of others", len(got), old, got[queue.OtherKinds].Runs())
		}
	})
}

// TestTimesOnRecordAreNotTrusted: what somebody else wrote there does no harm.
func TestTimesOnRecordAreNotTrusted(t *testing.T) {
	redistest.Both(t, func(t *testing.T, b redistest.Backend) {
		r := rigOn(t, b.Client)
		for i, value := range []string{"", "x", "1 ", "5:5", "12 7:x 9999999:1 -5:1 5:-1 4:1e3 3", "99999999999999999999 1:1", "1:1 2:2"} {
			kind := fmt.Sprint("k", i)
			r.c.HSet(bg, r.key(0, "times"), kind, value)
			r.addTimes(map[string]queue.Histogram{kind: {3: 2}})
			if h := r.times()[kind]; h[3] != 2 {
				t.Errorf("after %q: %v", value, h)
			}
		}
		r.c.Set(bg, r.key(0, "times"), "no hash", 0)
		if err := r.q.AddTimes(bg, map[string]queue.Histogram{"k": {3: 2}}); err == nil {
			t.Error("no error from a key of another type")
		}
		if _, err := r.q.Times(bg); err == nil {
			t.Error("no error when read from a key of another type")
		}
	})
}

func TestObserveDoesNotAllocate(t *testing.T) {
	var h queue.Histogram
	d := time.Duration(0)
	if n := testing.AllocsPerRun(1000, func() { h.Observe(d); d += 7 * time.Millisecond }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if h.Runs() != 1001 {
		t.Errorf("%d runs", h.Runs())
	}
}
