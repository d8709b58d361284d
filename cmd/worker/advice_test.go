package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/claimq/claimq/internal/config"
	"github.com/claimq/claimq/queue"
)

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		p99, lease string
		verdict    string
		set        string
	}{
		{"80ms", "15s", leaseFits, "0s"},
		{"10s", "15s", leaseFits, "0s"},
		{"11s", "15s", leaseShort, "45s"},
		{"25s", "15s", leaseShort, "1m"},
		{"8m", "15s", leaseShort, "1m"},
		{"8m", "45s", leaseFits, "0s"}, // a minute would change little
		{"8m", "1m", leaseFits, "0s"},
		{"150ms", "200ms", leaseShort, "500ms"},
		{"1.4s", "2s", leaseShort, "5s"},
		{"80ms", "20s", leaseFits, "0s"}, // 15s would change little
		{"80ms", "30s", leaseLong, "15s"},
		{"4s", "1m", leaseLong, "15s"},
		{"7s", "1m", leaseFits, "0s"},
		{"8s", "5m", leaseLong, "30s"},
		{"3m", "1h", leaseLong, "1m"},
		{"7m", "1h", leaseFits, "0s"},
	} {
		p99, _ := time.ParseDuration(c.p99)
		lease, _ := time.ParseDuration(c.lease)
		if verdict, set := judge(seconds(p99), seconds(lease)); verdict != c.verdict || set.String() != c.set {
			t.Errorf("p99 %s, lease %s: %s, set %v; want %s, set %s", c.p99, c.lease, verdict, set, c.verdict, c.set)
		}
	}
}

// TestAdviceIsFollowedOnce: what is advised may be set, makes a difference, and
// is found to fit afterwards.
func TestAdviceIsFollowedOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	upTo := func(least, most time.Duration) seconds { // evenly by magnitude
		d := least
		for d < most && r.IntN(12) > 0 {
			d = d * time.Duration(100+r.IntN(100)) / 100
		}
		return seconds(min(d, most))
	}
	given := map[string]int{}
	for range 200_000 {
		p99, lease := upTo(100*time.Microsecond, 5*time.Hour), upTo(queue.MinLease, queue.MaxLease)
		verdict, set := judge(p99, lease)
		given[verdict]++
		if verdict == leaseFits {
			continue
		}
		if time.Duration(set) < queue.MinLease || time.Duration(set) > queue.MaxLease || (set > lease) != (verdict == leaseShort) {
			t.Fatalf("p99 %v, lease %v: %s, set %v", p99, lease, verdict, set)
		}
		if again, next := judge(p99, set); again != leaseFits {
			t.Fatalf("p99 %v, lease %v: set %v, then %s, set %v", p99, lease, set, again, next)
		}
		if verdict == leaseLong && (lease < seconds(leastAdvice) || set < seconds(leastAdvice)) {
			t.Fatalf("p99 %v, lease %v: set %v, below the floor", p99, lease, set)
		}
	}
	if given[leaseShort] < 1000 || given[leaseLong] < 1000 || given[leaseFits] < 1000 {
		t.Errorf("verdicts: %v", given)
	}
}

func TestLeaseSettings(t *testing.T) {
	now := config.Queue{Lease: 15 * time.Second, KindLeases: config.KindDurations{"own": 150 * time.Second, "idle": time.Minute}}
	advice := func(queue, kind, verdict string, lease, set time.Duration) leaseAdvice {
		return leaseAdvice{Queue: queue, Kind: kind, Verdict: verdict, Lease: seconds(lease), Set: seconds(set)}
	}
	short := func(kind string, set time.Duration) leaseAdvice {
		return advice("q", kind, leaseShort, now.Lease, set)
	}
	fits := advice("q", "fits", leaseFits, now.Lease, 0)
	own := advice("q", "own", leaseLong, 150*time.Second, 15*time.Second)
	for name, c := range map[string]struct {
		advice []leaseAdvice
		want   map[string]string
	}{
		"nothing":             {nil, map[string]string{}},
		"all fit":             {[]leaseAdvice{fits, advice("q", "own", leaseFits, 150*time.Second, 0)}, map[string]string{}},
		"one of one":          {[]leaseAdvice{short("a", 45*time.Second)}, map[string]string{"QUEUE_LEASE": "45s"}},
		"all the same":        {[]leaseAdvice{short("a", 45*time.Second), short("b", 45*time.Second)}, map[string]string{"QUEUE_LEASE": "45s"}},
		"not the same":        {[]leaseAdvice{short("a", 45*time.Second), short("b", time.Minute)}, map[string]string{"QUEUE_KIND_LEASES": "a:45s,b:1m,idle:1m,own:2m30s"}},
		"one of two":          {[]leaseAdvice{short("a", 45*time.Second), fits}, map[string]string{"QUEUE_KIND_LEASES": "a:45s,idle:1m,own:2m30s"}},
		"own":                 {[]leaseAdvice{own, fits}, map[string]string{"QUEUE_KIND_LEASES": "idle:1m,own:15s"}},
		"own and all":         {[]leaseAdvice{own, short("a", 45*time.Second)}, map[string]string{"QUEUE_LEASE": "45s", "QUEUE_KIND_LEASES": "idle:1m,own:15s"}},
		"others":              {[]leaseAdvice{short("a", 45*time.Second), advice("q", "", leaseMixed, 0, 0)}, map[string]string{"QUEUE_KIND_LEASES": "a:45s,idle:1m,own:2m30s"}},
		"too few of another":  {[]leaseAdvice{short("a", 45*time.Second), advice("q", "b", leaseOpen, now.Lease, 0)}, map[string]string{"QUEUE_KIND_LEASES": "a:45s,idle:1m,own:2m30s"}},
		"long in one queue":   {[]leaseAdvice{own, advice("p", "own", leaseFits, 150*time.Second, 0)}, map[string]string{}},
		"short in one queue":  {[]leaseAdvice{short("a", 45*time.Second), advice("p", "a", leaseFits, now.Lease, 0)}, map[string]string{"QUEUE_KIND_LEASES": "a:45s,idle:1m,own:2m30s"}},
		"cannot be written":   {[]leaseAdvice{short("a,b", 45*time.Second), fits}, map[string]string{}},
		"a colon can be":      {[]leaseAdvice{short("a:b", 45*time.Second), fits}, map[string]string{"QUEUE_KIND_LEASES": "a:b:45s,idle:1m,own:2m30s"}},
		"more in other queue": {[]leaseAdvice{short("a", 45*time.Second), advice("p", "a", leaseShort, now.Lease, time.Minute)}, map[string]string{"QUEUE_KIND_LEASES": "a:1m,idle:1m,own:2m30s"}},
	} {
		got := leaseSettings(c.advice, now)
		if !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		var back config.KindDurations
		if err := back.UnmarshalText([]byte(got["QUEUE_KIND_LEASES"])); err != nil {
			t.Errorf("%s: cannot be read back: %v", name, err)
		}
	}
}

func TestSecondsAsText(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 812 * time.Microsecond: "810µs", 14230 * time.Millisecond: "14s", 60 * time.Second: "1m", 128 * time.Second: "2m10s",
		time.Hour: "1h", 90 * time.Minute: "1h30m", 10 * time.Second: "10s", 20 * time.Minute: "20m",
	} {
		if got := seconds(d).about().String(); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

// ran notes handler times in a queue: ran queue kind runs time [runs time…].
// Without a kind it makes them unreadable.
func ran(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 && len(args) < 4 || len(args) > 1 && len(args)%2 != 0 {
		ts.Fatalf("usage: ran queue [kind runs time [runs time...]]")
	}
	opts, err := redis.ParseURL(ts.Getenv("REDIS"))
	ts.Check(err)
	client := redis.NewClient(opts)
	defer client.Close()
	q, err := queue.New(queue.Config{Name: args[0], Prefix: ts.Getenv("PREFIX"), Client: client})
	ts.Check(err)
	defer q.Close()
	if len(args) == 1 {
		key := strings.TrimSuffix(q.StreamKey(0), "stream") + "times"
		ts.Check(client.Set(context.Background(), key, "no hash", 0).Err())
		return
	}
	var h queue.Histogram
	for rest := args[2:]; len(rest) > 0; rest = rest[2:] {
		n, err := strconv.Atoi(rest[0])
		ts.Check(err)
		d, err := time.ParseDuration(rest[1])
		ts.Check(err)
		for range n {
			h.Observe(d)
		}
	}
	kinds := map[string]queue.Histogram{args[1]: h}
	if args[1] == "-" { // more kinds than are told apart
		for i := range queue.MaxTimedKinds + 1 {
			kinds[fmt.Sprint("kind", i)] = h
		}
	}
	ts.Check(q.AddTimes(context.Background(), kinds))
}
