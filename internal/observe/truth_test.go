package observe

import (
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

func xadd(stream string, values []any) *redis.XAddArgs {
	return &redis.XAddArgs{Stream: stream, Values: values}
}

// truth is what the server holds, of all queues, read from its keys and not
// through package queue.
type truth struct {
	waiting, pending, expired, scheduled, dead int64
}

func (x truth) String() string {
	return fmt.Sprintf("waiting %d, pending %d, expired %d, scheduled %d, dead %d", x.waiting, x.pending, x.expired, x.scheduled, x.dead)
}

// keys of the partitions that end in what.
func (r *rig) keys(what string) []string {
	var all []string
	for _, q := range r.queues {
		for p := range partitions {
			all = append(all, strings.TrimSuffix(q.StreamKey(p), "stream")+what)
		}
	}
	return all
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// truth counts entries, pending entries and records one by one.
func (r *rig) truth() truth {
	r.t.Helper()
	var x truth
	streams, scheduled, dead, tasks, leases := r.keys("stream"), r.keys("scheduled"), r.keys("dead"), r.keys("tasks"), r.keys("leases")
	for i := range streams {
		entries, err := r.rdb.XRange(bg, streams[i], "-", "+").Result()
		r.must(err)
		pending, err := r.rdb.XPending(bg, streams[i], "workers").Result()
		r.must(err)
		x.pending += pending.Count
		x.waiting += int64(len(entries)) - pending.Count
		for _, list := range []struct {
			key string
			to  *int64
		}{{scheduled[i], &x.scheduled}, {dead[i], &x.dead}} {
			n, err := r.rdb.XLen(bg, list.key).Result()
			r.must(err)
			*list.to += n
		}
		x.expired += r.expired(tasks[i], leases[i])
	}
	return x
}

// expired counts the records of pending tasks whose lease has ended.
func (r *rig) expired(tasks, leases string) (n int64) {
	now, err := r.rdb.Time(bg).Result()
	r.must(err)
	ends, err := r.rdb.ZRangeWithScores(bg, leases, 0, -1).Result()
	r.must(err)
	end := map[string]float64{}
	for _, z := range ends {
		end[z.Member.(string)] = z.Score
	}
	records, err := r.rdb.HGetAll(bg, tasks).Result()
	r.must(err)
	for _, record := range records {
		fields := strings.Fields(record)
		if len(fields) != 4 || record[0] != 'h' && record[0] != 'p' {
			continue
		}
		if at, ok := end[fields[3]]; ok && at <= float64(now.UnixMilli()) {
			n++
		}
	}
	return n
}

// told is what Prometheus says of the same.
func (r *rig) told() (truth, bool) {
	r.t.Helper()
	var x truth
	for name, to := range map[string]*int64{
		"waiting_entries": &x.waiting, "pending_entries": &x.pending, "expired_pending_entries": &x.expired,
		"scheduled_tasks": &x.scheduled, "dead_entries": &x.dead,
	} {
		v, ok := r.prom.value(r.t, "sum(max by (queue) (claimq_"+name+"))")
		if !ok {
			return x, false
		}
		*to = int64(v)
	}
	return x, true
}

// agree waits until Prometheus says what the server holds, which must not
// change any more but for leases that end, and returns that.
func (r *rig) agree(when string, limit time.Duration, also func(truth) bool) truth {
	r.t.Helper()
	began := time.Now()
	var is, said truth
	ok := r.within(limit, func() bool {
		is = r.truth()
		var known bool
		said, known = r.told()
		return known && is == said && (also == nil || also(is))
	})
	if !ok {
		r.t.Errorf("%s: not as it should be within %v:\n  the server:  %v\n  Prometheus:  %v", when, limit, is, said)
		return is
	}
	r.t.Logf("%s: equal after %v: %v", when, time.Since(began).Round(100*time.Millisecond), is)
	return is
}

// inHand is what the server counts as pending for a consumer.
func (r *rig) inHand(consumer string) (n int64) {
	r.t.Helper()
	for _, stream := range r.keys("stream") {
		pending, err := r.rdb.XPending(bg, stream, "workers").Result()
		r.must(err)
		n += pending.Consumers[consumer]
	}
	return n
}

// takenOver counts the events of tasks that were taken over.
func (r *rig) takenOver() (n int64) {
	r.t.Helper()
	for _, key := range r.keys("events") {
		events, err := r.rdb.XRange(bg, key, "-", "+").Result()
		r.must(err)
		for _, e := range events {
			if e.Values["event"] == "reclaimed" || e.Values["event"] == "recovered" {
				n++
			}
		}
	}
	return n
}
