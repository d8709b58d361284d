package chaos

import (
	"testing"
	"time"
	"unsafe"

	"github.com/claimq/claimq/queue"
)

// stepped returns now as a clock tells it that was stepped by a whole number
// of seconds: the wall clock differs and the monotonic clock does not. Package
// time has no way to make one; of a time with a monotonic reading the first
// word holds the wall clock's seconds from bit 30 on.
func stepped(t *testing.T, now time.Time, by time.Duration) time.Time {
	t.Helper()
	wall := (*uint64)(unsafe.Pointer(&now))
	before := now
	*wall += uint64(by/time.Second) << 30
	if now.Sub(before) != 0 || now.Round(0).Sub(before.Round(0)) != by {
		t.Fatalf("package time keeps its times in another way now: %v and %v", before, now)
	}
	return now
}

// The clock of a worker is stepped by an hour: forward it gives its leases up
// at once, back it trusts them no longer than without the step.
func TestStepOfAWorkersClock(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name  string
		until time.Duration // from now
		step  time.Duration
		want  bool
	}{
		{"no step", time.Second, 0, true},
		{"no step, ended", -time.Second, 0, false},
		{"forward", time.Second, time.Hour, false},
		{"forward, ended", -time.Second, time.Hour, false},
		{"back", time.Second, -time.Hour, true},
		{"back, ended", -time.Second, -time.Hour, false},
	} {
		until := now.Add(c.until)
		if got := queue.Trusted(until, stepped(t, now, c.step)); got != c.want {
			t.Errorf("%s: trusted = %v, want %v", c.name, got, c.want)
		}
	}
}
