package observe

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/queue"
)

// scrapes is how often the state is read, past the collector's own memory.
const scrapes = 100

// constant are the commands of a scrape whose cost does not grow with what the
// queue holds: they read lengths, single fields, or as many entries as a COUNT
// or LIMIT says. Those that count in a sorted set do it in the logarithm of its
// size.
var constant = []string{
	"evalsha", "script|load", "exists", "hget", "time", "xinfo|groups", "xinfo|stream", "xlen", "xpending", "xrange",
	"zcount", "zrangebyscore",
}

// TestCostOfAScrape reads the state 100 times with a thousand tasks and with a
// million, and compares what the server was asked to do.
func TestCostOfAScrape(t *testing.T) {
	const small, large = 1000, 1_000_000
	srv := redistest.Start(t)
	rdb := srv.Client()
	q, err := queue.New(queue.Config{Name: "jobs", Client: rdb, Prefix: redistest.Prefix(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	if err := q.Ensure(bg); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Stats(bg); err != nil { // the script is there from now on
		t.Fatal(err)
	}
	fill(t, rdb, q, small)
	few, fast := costOf(t, rdb, q, small)
	fill(t, rdb, q, large-small)
	many, slow := costOf(t, rdb, q, large)
	if !maps.Equal(few, many) {
		t.Errorf("100 scrapes with %d tasks: %v\nwith %d: %v", small, few, large, many)
	}
	for command, calls := range many {
		if !slices.Contains(constant, command) || calls%scrapes != 0 || calls > 3*scrapes {
			t.Errorf("%d calls of %s", calls, command)
		}
	}
	t.Logf("%d scrapes with %d tasks: %s", scrapes, large, listed(many))
	t.Logf("time of the server for one: %v with %d tasks, %v with %d", fast, small, slow, large)
	if slow > 5*fast+time.Millisecond {
		t.Errorf("a scrape takes %v with %d tasks and %v with %d", fast, small, slow, large)
	}
}

// fill adds entries as any producer with a plain XADD does, and delivers one in
// ten to a consumer.
func fill(t *testing.T, rdb *redis.Client, q *queue.Queue, n int) {
	t.Helper()
	const chunk = 10_000
	for n > 0 {
		pipe := rdb.Pipeline()
		for range min(n, chunk) {
			pipe.XAdd(bg, xadd(q.StreamKey(0), []any{"kind", "job", "payload", "1"}))
		}
		if _, err := pipe.Exec(bg); err != nil {
			t.Fatal(err)
		}
		err := rdb.XReadGroup(bg, &redis.XReadGroupArgs{
			Group: queue.Group, Consumer: "somebody", Streams: []string{q.StreamKey(0), ">"}, Count: int64(min(n, chunk) / 10),
		}).Err()
		if err != nil {
			t.Fatal(err)
		}
		n -= chunk
	}
}

// costOf is how often the server was called by each command in 100 reads of
// the state, and how long it took for one.
func costOf(t *testing.T, rdb *redis.Client, q *queue.Queue, tasks int) (map[string]int, time.Duration) {
	t.Helper()
	before, began := commandStats(t, rdb)
	for range scrapes {
		s, err := q.Stats(bg)
		if err != nil || s.Unfinished() != int64(tasks) || s.Pending != int64(tasks)/10 {
			t.Fatalf("%d tasks, want %d, a tenth of them pending: %+v (%v)", s.Unfinished(), tasks, s.PartitionStats, err)
		}
	}
	after, ended := commandStats(t, rdb)
	delete(after, "info")
	maps.DeleteFunc(after, func(command string, calls int) bool { return calls == before[command] })
	for command := range after {
		after[command] -= before[command]
	}
	return after, (ended - began) / scrapes
}

// commandStats are the calls of each command so far, and the time of scripts.
func commandStats(t *testing.T, rdb *redis.Client) (calls map[string]int, scripts time.Duration) {
	t.Helper()
	text, err := rdb.Info(bg, "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	calls = map[string]int{}
	for line := range strings.Lines(text) {
		name, fields, ok := strings.Cut(strings.TrimSpace(strings.TrimPrefix(line, "cmdstat_")), ":")
		if !ok {
			continue
		}
		for field := range strings.SplitSeq(fields, ",") {
			key, value, _ := strings.Cut(field, "=")
			n, _ := strconv.Atoi(value)
			switch {
			case key == "calls":
				calls[name] = n
			case key == "usec" && strings.HasPrefix(name, "evalsha"):
				scripts += time.Duration(n) * time.Microsecond
			}
		}
	}
	return calls, scripts
}

func listed(calls map[string]int) string {
	var list []string
	for _, command := range slices.Sorted(maps.Keys(calls)) {
		list = append(list, fmt.Sprintf("%s %d", command, calls[command]))
	}
	return strings.Join(list, ", ")
}
