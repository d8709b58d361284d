package queue_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/queue"
)

func (r *rig) stats() queue.Stats {
	r.t.Helper()
	s, err := r.q.Stats(bg)
	if err != nil {
		r.t.Fatalf("stats: %v", err)
	}
	return s
}

// addAt adds a task as if it had come some time ago.
func (r *rig) addAt(id string, ago time.Duration) {
	r.t.Helper()
	now := r.c.Time(bg).Val()
	err := r.c.XAdd(bg, &redis.XAddArgs{
		Stream: r.key(0, "stream"), ID: fmt.Sprintf("%d-0", now.Add(-ago).UnixMilli()),
		Values: []string{"id", id, "kind", "k", "payload", ""},
	}).Err()
	if err != nil {
		r.t.Fatal(err)
	}
}

// TestStatsAges: ages are by the server's clock, 0 where there is nothing that
// could have one, and not known rather than wrong.
func TestStatsAges(t *testing.T) {
	redistest.Both(t, func(t *testing.T, b redistest.Backend) {
		r := rigOn(t, b.Client)
		began := time.Now()
		want := func(step string, waiting, pending, overdue time.Duration) {
			t.Helper()
			s, slack := r.stats(), time.Since(began)+time.Second
			for _, age := range []struct {
				what      string
				got, want time.Duration
			}{{"oldest waiting", s.OldestWaiting, waiting}, {"oldest pending", s.OldestPending, pending}, {"overdue", s.Overdue, overdue}} {
				if age.want <= 0 && age.got != age.want || age.got < age.want || age.want > 0 && age.got > age.want+slack {
					t.Errorf("%s: %s %v, want %v", step, age.what, age.got, age.want)
				}
			}
		}
		want("nothing made", 0, 0, 0)
		r.addAt("a", time.Minute)
		r.addAt("b", 40*time.Second)
		r.addAt("c", 20*time.Second)
		want("without a group", time.Minute, 0, 0)
		if err := r.q.Ensure(bg); err != nil {
			t.Fatal(err)
		}
		want("three wait", time.Minute, 0, 0)
		first := r.take("w", 1)
		want("one is pending", 40*time.Second, time.Minute, 0)
		second := r.take("w", 1)
		r.must(queue.Completed, r.q.Complete(bg, settlements(first)))
		want("one is done", 20*time.Second, 40*time.Second, 0)
		r.must(queue.Completed, r.q.Complete(bg, settlements(second)))
		third := r.take("w", 1)
		want("none waits", 0, 20*time.Second, 0)
		r.must(queue.Completed, r.q.Complete(bg, settlements(third)))
		r.add(queue.Task{ID: "later", Kind: "k", Delay: time.Minute}, queue.Task{ID: "latest", Kind: "k", Delay: time.Hour})
		want("none is due", 0, 0, 0)
		r.advance(90 * time.Second)
		want("one is due", 0, 0, 29*time.Second)

		if s := r.stats(); b.Real && s.Added != 3 || !b.Real && s.Added != queue.NotKnown {
			t.Errorf("%d entries added", s.Added)
		}
		// A row of the pending entries list that was thrown away: the entry is
		// neither pending nor will it be delivered.
		r.add(tasksNamed("d")...)
		r.read("gone", 1)
		r.c.XGroupDelConsumer(bg, r.key(0, "stream"), queue.Group, "gone")
		if s := r.stats(); s.Waiting != 1 {
			t.Fatalf("%+v", s)
		}
		want("lost row", queue.NotKnown, 0, 29*time.Second)
	})
}

// TestStatsOfPartitions: what can be added up is, of ages the greatest counts,
// and what one partition does not know is not known.
func TestStatsOfPartitions(t *testing.T) {
	r := newRig(t, func(c *queue.Config) { c.Partitions = 4 })
	r.add(tasksNamed(numbered("t", 40)...)...)
	for _, name := range []string{"u", "v", "w"} {
		for _, turn := range r.q.Turn(bg, queue.TurnRequest{Consumer: name, Interval: time.Second}) {
			if turn.Err != nil {
				t.Fatal(turn.Err)
			}
		}
	}
	r.c.ZIncrBy(bg, r.key(2, "consumers"), -60_000, "w") // heard of long ago
	s := r.stats()
	var sum queue.PartitionStats
	for _, p := range s.Partitions {
		sum.Waiting += p.Waiting
		sum.Added += p.Added
		sum.OldestWaiting = max(sum.OldestWaiting, p.OldestWaiting)
	}
	if len(s.Partitions) != 4 || s.Waiting != 40 || sum.Waiting != 40 || s.Added != 40 || sum.Added != 40 || s.OldestWaiting != sum.OldestWaiting {
		t.Errorf("%+v", s)
	}
	if s.Consumers != 3 || s.Silent != 1 || s.Partitions[2].Consumers != 2 || s.Partitions[2].Silent != 1 {
		t.Errorf("consumers: %+v", s)
	}
	r.c.XGroupDelConsumer(bg, r.key(1, "stream"), queue.Group, "x")
	read := r.c.XReadGroup(bg, &redis.XReadGroupArgs{Group: queue.Group, Consumer: "x", Count: 100, Streams: []string{r.key(1, "stream"), ">"}})
	if read.Err() != nil {
		t.Fatal(read.Err())
	}
	r.c.XGroupDelConsumer(bg, r.key(1, "stream"), queue.Group, "x")
	if s := r.stats(); s.OldestWaiting != queue.NotKnown || s.Waiting != 40 {
		t.Errorf("with one that is not known: %+v", s)
	}
}

// expired counts by hand what Stats counts: records of pending tasks under a
// lease that has ended.
func (r *rig) expired(p int) (n int64) {
	r.t.Helper()
	now := r.c.Time(bg).Val().UnixMilli()
	for _, rec := range r.c.HGetAll(bg, r.key(p, "tasks")).Val() {
		fields := strings.Fields(rec)
		if rec[0] != 'h' && rec[0] != 'p' {
			continue
		}
		if end, err := r.c.ZScore(bg, r.key(p, "leases"), fields[3]).Result(); err == nil && int64(end) <= now {
			n++
		}
	}
	return n
}

// TestStatsExpired: the number of pending tasks whose lease has ended is exact,
// whatever became of their neighbours in the grant.
func TestStatsExpired(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			r := newRig(t, func(c *queue.Config) { c.Lease = time.Minute })
			random := rand.New(rand.NewPCG(seed, 0))
			var held []queue.Delivery
			most := int64(0)
			for round := range 12 {
				r.add(tasksNamed(numbered(fmt.Sprintf("r%d-", round), 20)...)...)
				took := r.begin(r.read("w", 1+random.IntN(20)), random.IntN(20)).Deliveries
				held = append(held, took...)
				if random.IntN(3) == 0 {
					took := r.reclaim(0, "other", 1+random.IntN(10))
					held = append(held, r.begin(took.Entries, len(took.Entries)).Deliveries...)
				}
				random.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
				some := held[:random.IntN(len(held)/3+1)]
				r.q.Complete(bg, settlements(some[:len(some)/2]))
				r.q.Retry(bg, settlements(some[len(some)/2:], func(s *queue.Settlement) { s.Delay = time.Hour }))
				held = held[len(some):]
				r.advance(time.Duration(random.IntN(50)) * time.Second)
				s, want := r.stats(), r.expired(0)
				if s.Expired != want || s.Expired > s.Pending {
					t.Fatalf("round %d: %d expired, %d by hand; %+v", round, s.Expired, want, s.PartitionStats)
				}
				most = max(most, want)
			}
			if most < 10 {
				t.Errorf("at most %d had expired: the test proves little", most)
			}
		})
	}
}

// TestStatsExpiredIsBounded: beyond a thousand the number stays.
func TestStatsExpiredIsBounded(t *testing.T) {
	r := newRig(t)
	const n = 1100
	for ids := range slices.Chunk(numbered("t", n), queue.MaxBatch) {
		r.add(tasksNamed(ids...)...)
	}
	for left := n; left > 0; left -= queue.MaxBatch {
		r.take("w", min(left, queue.MaxBatch))
	}
	if s := r.stats(); s.Expired != 0 || s.Pending != n {
		t.Fatalf("%+v", s.PartitionStats)
	}
	r.advance(time.Minute)
	if s := r.stats(); s.Expired != 1000 || s.Pending != n {
		t.Errorf("%+v", s.PartitionStats)
	}
}

var commandCalls = regexp.MustCompile(`(?m)^cmdstat_([a-z|]+):calls=(\d+)`)

// commands is what the server was asked to do since the last reset, by command.
func commands(c *redis.Client) map[string]int {
	out := map[string]int{}
	for _, m := range commandCalls.FindAllStringSubmatch(c.Info(bg, "commandstats").Val(), -1) {
		out[m[1]], _ = strconv.Atoi(m[2])
	}
	for _, own := range []string{"config|resetstat", "info", "hello", "client|setinfo", "client|setname", "script|load"} {
		delete(out, own)
	}
	return out
}

// TestStatsCostDoesNotGrow: a hundred reads of a long queue make the commands,
// and as many of them, that a hundred reads of a short one make; and none is of
// a kind that looks through what the queue holds. XPENDING in its short form and
// XINFO cost something for each consumer and each group.
func TestStatsCostDoesNotGrow(t *testing.T) {
	srv := redistest.Start(t)
	cost := func(prefix string, waiting, pending, scheduled int) map[string]int {
		t.Helper()
		r := rigOn(t, srv.Client(), func(c *queue.Config) { c.Prefix, c.Partitions = prefix, 1 })
		for ids := range slices.Chunk(numbered("t", waiting+pending), queue.MaxBatch) {
			r.add(tasksNamed(ids...)...)
		}
		for ids := range slices.Chunk(numbered("s", scheduled), queue.MaxBatch) {
			tasks := tasksNamed(ids...)
			for i := range tasks {
				tasks[i].Delay = time.Hour
			}
			r.add(tasks...)
		}
		for left := pending; left > 0; left -= queue.MaxBatch {
			r.take("w", min(left, queue.MaxBatch))
		}
		r.stats() // and the server knows the script
		r.c.ConfigResetStat(bg)
		for range 100 {
			if s := r.stats(); s.Waiting != int64(waiting) || s.Pending != int64(pending) || s.Scheduled != int64(scheduled) {
				t.Fatalf("%+v", s)
			}
		}
		return commands(r.c)
	}
	// How much one call looks at is in its arguments.
	for line := range strings.Lines(readLua(t)["stats"].own) {
		if strings.Count(line, "'XPENDING'") != strings.Count(line, "'XPENDING', stream, group)") ||
			strings.Contains(line, "'XRANGE'") && !strings.Contains(line, "'COUNT', 1)") ||
			strings.Contains(line, "'ZRANGEBYSCORE'") && !strings.Contains(line, "'LIMIT', 0, ") ||
			strings.Contains(line, "'FULL'") {
			t.Errorf("without a bound: %s", line)
		}
	}
	short, long := cost("short", 3, 2, 1), cost("long", 30_000, 3_000, 3_000)
	if !maps.Equal(short, long) {
		t.Errorf("a short queue: %v\na long queue:  %v", short, long)
	}
	constant := map[string]int{
		"evalsha": 100, "time": 100, "exists": 100, "xlen": 300, "xpending": 100, "xinfo|stream": 100, "xinfo|groups": 100,
		"xrange": 100, "zrangebyscore": 200, "zcount": 300, "hget": 100,
	}
	if diff := cmp.Diff(constant, long); diff != "" {
		t.Errorf("for 100 reads (-want +got):\n%s", diff)
	}
}

// TestStatsOfAnotherSize: of a queue that was made with more partitions, what a
// few of them hold is not passed off as the whole.
func TestStatsOfAnotherSize(t *testing.T) {
	r := newRig(t, func(c *queue.Config) { c.Partitions = 3 })
	r.add(tasksNamed(numbered("t", 30)...)...)
	for _, n := range []int{1, 2, 4} {
		cfg := r.q.Config()
		cfg.Partitions, cfg.ReadClient = n, nil
		other, err := queue.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { other.Close() })
		if s, err := other.Stats(bg); !errors.Is(err, queue.ErrMismatch) {
			t.Errorf("%d partitions: %+v, %v", n, s, err)
		}
	}
	if s := r.stats(); s.Waiting != 30 {
		t.Errorf("%+v", s)
	}
}
