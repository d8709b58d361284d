package queue

import (
	"context"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bounds of the record of handler times.
const (
	// MaxTimedKinds is how many kinds of a queue are told apart.
	MaxTimedKinds = 100
	// OtherKinds stands for all further ones.
	OtherKinds = ""
	// TimeBuckets is the number of buckets of a Histogram.
	TimeBuckets = 50

	maxTimedRuns  = 100_000            // of a kind: with more, all its counts are halved
	timesHalfLife = 7 * 24 * time.Hour // after this a run counts half
)

// Histogram counts handler runs by how long they took. The upper bounds of its
// buckets are 1 ms and from there on √2 times the one before, up to 4.6 h; the
// last bucket has none. The zero value is empty.
type Histogram [TimeBuckets]int64

// timeBounds are the upper bounds of all buckets but the last.
var timeBounds = boundsOfTimes()

func boundsOfTimes() (b [TimeBuckets - 1]time.Duration) {
	for i := range b {
		b[i] = time.Duration(float64(time.Millisecond) * math.Pow(2, float64(i)/2))
	}
	return b
}

// Observe counts one run. It does not allocate.
func (h *Histogram) Observe(d time.Duration) {
	i, _ := slices.BinarySearch(timeBounds[:], d)
	h[i]++
}

// Runs is the number of runs.
func (h Histogram) Runs() int64 {
	var n int64
	for _, k := range h {
		n += k
	}
	return n
}

// Quantile returns the time within which a share p of the runs, 0 to 1, ended.
// It is right to within a bucket; in the last bucket it is the least it can be.
// Zero without runs.
func (h Histogram) Quantile(p float64) time.Duration {
	runs := h.Runs()
	if runs == 0 {
		return 0
	}
	rank, seen, from := p*float64(runs), 0.0, time.Duration(0)
	for i, to := range timeBounds {
		n := float64(h[i])
		if n > 0 && seen+n >= rank {
			return from + time.Duration(float64(to-from)*(rank-seen)/n)
		}
		seen, from = seen+n, to
	}
	return from
}

// AddTimes adds to the record of how long handlers of each kind ran, in one
// call to one partition. The record is an estimate: it is bounded to
// MaxTimedKinds kinds and OtherKinds, a run counts half after a week, and a
// call that is asked again is counted again. No task depends on it.
func (q *Queue) AddTimes(ctx context.Context, times map[string]Histogram) error {
	var kinds, counts []any
	for _, kind := range slices.Sorted(maps.Keys(times)) {
		if text := times[kind].encode(); text != "" {
			kinds, counts = append(kinds, kind), append(counts, text)
		}
	}
	if len(kinds) == 0 {
		return nil
	}
	args := []any{MaxTimedKinds, maxTimedRuns, timesHalfLife.Milliseconds(), len(kinds)}
	c := q.call(scriptTimes, 0, append(append(args, kinds...), counts...)...)
	q.run(ctx, c)
	return c.err
}

// Times reads the record of how long handlers ran, by kind.
func (q *Queue) Times(ctx context.Context) (map[string]Histogram, error) {
	times := map[string]Histogram{}
	for cursor := uint64(0); ; {
		fields, next, err := q.rdb.HScan(ctx, q.parts[0].key("times"), cursor, "", 1000).Result()
		if err != nil {
			return nil, classify("times", err)
		}
		for ; len(fields) >= 2; fields = fields[2:] {
			times[fields[0]] = decodeTimes(fields[1])
		}
		if cursor = next; cursor == 0 || len(times) > MaxTimedKinds {
			return times, nil
		}
	}
}

// encode writes the counts as times.lua reads them.
func (h Histogram) encode() string {
	var b strings.Builder
	for i, n := range h {
		if n <= 0 {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strconv.Itoa(i) + ":" + strconv.FormatInt(n, 10))
	}
	return b.String()
}

// decodeTimes reads what times.lua keeps of a kind, and leaves out what it
// would not have written.
func decodeTimes(value string) (h Histogram) {
	_, counts, _ := strings.Cut(value, " ")
	for part := range strings.FieldsSeq(counts) {
		bucket, runs, _ := strings.Cut(part, ":")
		i, err := strconv.Atoi(bucket)
		n, err2 := strconv.ParseInt(runs, 10, 64)
		if err == nil && err2 == nil && i >= 0 && i < TimeBuckets && n > 0 {
			h[i] += n
		}
	}
	return h
}
