package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/claimq/claimq/bench/internal/contender"
	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

func options(t *testing.T) contender.Options {
	t.Helper()
	return contender.Options{Addr: redistest.Start(t).Addr(), Size: 256, Callers: 4, Batch: 100, IDBytes: 36}
}

// TestVariants: both run what is enqueued, alone and in batches. What leaves
// safety out knows the scripts by their keys, so it has to follow them: none of
// them may have run.
func TestVariants(t *testing.T) {
	for _, variant := range []string{"", "bare"} {
		t.Run(variant, func(t *testing.T) {
			o := options(t)
			o.Variant = variant
			c, err := connect(o)
			if err != nil {
				t.Fatal(err)
			}
			payloads := contender.NewPayloads(o.Size)
			const n = 300
			var ids, texts []string
			for i := range n - 1 {
				ids, texts = append(ids, contender.ID(1, i, 36)), append(texts, payloads.Make())
			}
			if err := c.EnqueueBatch(ids, texts); err != nil {
				t.Fatal(err)
			}
			if err := c.Enqueue("alone", payloads.Make()); err != nil {
				t.Fatal(err)
			}
			var ran atomic.Int64
			all := make(chan struct{})
			w, err := c.worker(8, func(context.Context, consumer.Delivery) ([]byte, error) {
				if ran.Add(1) == n {
					close(all)
				}
				return nil, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- w.Run(ctx) }()
			select {
			case <-all:
			case <-time.After(20 * time.Second):
				t.Errorf("%d of %d tasks ran", ran.Load(), n)
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if stats, err := c.q.Stats(context.Background()); err != nil || stats.Waiting+stats.Pending != 0 {
				t.Errorf("%d waiting and %d pending; %v", stats.Waiting, stats.Pending, err)
			}
			for _, key := range []string{"tasks", "fence", "done1", "done2", "done3"} {
				n, err := c.rdb.Keys(context.Background(), "*:"+key).Result()
				if err != nil || variant == "bare" && len(n) > 0 {
					t.Errorf("%s has the key %v: a script has run; %v", o.Variant, n, err)
				}
			}
		})
	}
}

// TestModes: those of our own measure what they say.
func TestModes(t *testing.T) {
	for _, c := range []struct {
		mode  contender.Mode
		edit  func(*contender.Options)
		parts []string
	}{
		{cycle, func(o *contender.Options) {}, []string{"enqueue_us", "read_us", "begin_us", "complete_us", "waiting_bytes", "done_bytes"}},
		{growth, func(o *contender.Options) { o.Dead, o.Scheduled, o.Backlog, o.Workers = 100, 100, 100, 10 }, []string{"ratio", "base_total_us", "chores_us", "chores_ratio"}},
		{growth, func(o *contender.Options) { o.Pending = 500 }, []string{"ratio"}},
		{growth, func(o *contender.Options) { o.Partitions, o.Batch, o.N = 8, 800, 4000 }, []string{"ratio"}},
	} {
		o := options(t)
		o.N, o.Base = sliceTasks, redistest.Start(t).Addr()
		c.edit(&o)
		started := false
		r, err := c.mode(o, func() { started = true })
		if err != nil || !started || r.N != o.N {
			t.Errorf("%+v: started %v, %d tasks; %v", o, started, r.N, err)
		}
		for _, part := range c.parts {
			if !(r.More[part] > 0) {
				t.Errorf("%+v: %s is %v of %s", o, part, r.More[part], fmt.Sprint(r.More))
			}
		}
	}
}
