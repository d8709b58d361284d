package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/internal/faultredis"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/metrics"
	"github.com/claimq/claimq/queue"
)

// timed are the commands that have a duration, by how many were seen.
func timed(t *testing.T, g prometheus.Gatherer) map[string]uint64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]uint64{}
	for _, f := range families {
		if f.GetName() == "claimq_redis_command_duration_seconds" {
			for _, m := range f.GetMetric() {
				out[m.GetLabel()[0].GetValue()] = m.GetHistogram().GetSampleCount()
			}
		}
	}
	return out
}

// TestClientIsTimed: round trips are counted by script, a script that the server
// had forgotten under its own name too, and reads that block are not.
func TestClientIsTimed(t *testing.T) {
	ctx := t.Context()
	c := redistest.Start(t).Client()
	reg := prometheus.NewPedanticRegistry()
	metrics.Client(reg, c)
	q, err := queue.New(queue.Config{Name: "a", Client: c, ReadClient: c, Partitions: 3})
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Ensure(ctx); err != nil {
		t.Fatal(err)
	}
	tasks := []queue.Task{{ID: "1", Kind: "k"}}
	for range 2 {
		for _, r := range q.Enqueue(ctx, q.NewToken(), tasks) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}
	if _, err := q.Stats(ctx); err != nil { // a pipeline of one script
		t.Fatal(err)
	}
	if _, err := queue.Read(ctx, queue.ReadRequest{Queues: []*queue.Queue{q}, Consumer: "w", Max: 1, Block: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	pipe := c.Pipeline() // of two
	pipe.Ping(ctx)
	pipe.Info(ctx)
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	got := timed(t, reg)
	// Two for the first call of each: the server did not know the script.
	for name, n := range map[string]uint64{"enqueue": 3, "stats": 2, "ensure": 3, "pipeline": 1} {
		if got[name] != n {
			t.Errorf("%s: %d round trips, want %d: %v", name, got[name], n, got)
		}
	}
	if _, ok := got["xreadgroup"]; ok {
		t.Error("a read that blocks is timed")
	}
	want(t, reg, map[string]float64{
		"claimq_redis_command_failures_total{reason=noscript}": 3,
		"claimq_redis_command_failures_total{reason=other}":    0,
		"claimq_redis_pool_connections{state=used}":            0,
		"claimq_redis_pool_max_connections{}":                  float64(c.Options().PoolSize),
		"claimq_redis_pool_timeouts_total{}":                   0,
	})
	if v := values(t, reg); v["claimq_redis_pool_hits_total{}"] == 0 || v["claimq_redis_pool_connections{state=idle}"] == 0 {
		t.Errorf("pool: %v", v)
	}
}

// TestClientCommandsAreBounded: whatever goes through a client, the label has
// few values.
func TestClientCommandsAreBounded(t *testing.T) {
	c := redistest.Shared(t).Client()
	reg := prometheus.NewPedanticRegistry()
	metrics.Client(reg, c)
	for i := range 300 {
		c.Do(t.Context(), fmt.Sprint("COMMAND-", i), "x")
		c.Eval(t.Context(), fmt.Sprint("return ", i), nil)
		c.EvalSha(t.Context(), strings.Repeat("a", 37)+fmt.Sprint(100+i), nil)
	}
	if got := timed(t, reg); len(got) > 2 || got[queue.OtherCommand] < 900 {
		t.Errorf("%v", got)
	}
}

// TestClientFailures: each kind of failure is counted once, by its reason.
func TestClientFailures(t *testing.T) {
	reply := func(text string) func(*redis.Client) {
		return func(c *redis.Client) {
			hook := faultredis.New(c)
			hook.Inject(faultredis.ReplyError(faultredis.Command("ping"), text))
			_ = c.Ping(context.Background()).Err()
		}
	}
	for _, f := range []struct {
		reason string
		cause  func(c *redis.Client)
	}{
		{"oom", reply("OOM command not allowed when used memory > 'maxmemory'.")},
		{"loading", reply("LOADING Redis is loading the dataset in memory")},
		{"busy", reply("BUSY Redis is busy running a script.")},
		{"readonly", reply("READONLY You can't write against a read only replica.")},
		{"moved", reply("MOVED 3999 127.0.0.1:6381")},
		{"nogroup", reply("NOGROUP No such key 'x' or consumer group 'g'")},
		{"other", reply("BUSYGROUP Consumer Group name already exists")},
		{"other", reply("WRONGTYPE Operation against a key holding the wrong kind of value")},
		{"noscript", func(c *redis.Client) { c.EvalSha(context.Background(), strings.Repeat("0", 40), nil) }},
		{"timeout", func(c *redis.Client) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
			defer cancel()
			<-ctx.Done()
			c.Ping(ctx)
		}},
		{"network", func(c *redis.Client) {
			hook := faultredis.New(c)
			hook.Inject(faultredis.FailBefore(faultredis.Command("ping")).With(faultredis.ErrRefused))
			_ = c.Ping(context.Background()).Err()
		}},
	} {
		c := redistest.Shared(t).Client(func(o *redis.Options) { o.MaxRetries = -1 })
		reg := prometheus.NewPedanticRegistry()
		metrics.Client(reg, c) // before the faults: the first hook is the outermost
		f.cause(c)
		for name, v := range values(t, reg) {
			reason, ok := strings.CutPrefix(name, "claimq_redis_command_failures_total{reason=")
			if !ok {
				continue
			}
			n := 0.0
			if reason == f.reason+"}" {
				n = 1
			}
			if v != n {
				t.Errorf("%s: %s is %v, want %v", f.reason, name, v, n)
			}
		}
	}
	c := redistest.Shared(t).Client()
	reg := prometheus.NewPedanticRegistry()
	metrics.Client(reg, c)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Ping(ctx).Err(); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), redistest.Prefix(t)).Err(); !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	for name, v := range values(t, reg) {
		if strings.HasPrefix(name, "claimq_redis_command_failures_total") && v != 0 {
			t.Errorf("%s is %v, and nothing failed", name, v)
		}
	}
}
