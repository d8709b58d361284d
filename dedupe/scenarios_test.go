package dedupe_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/claimq/claimq/dedupe"
	"github.com/claimq/claimq/queue"
)

// age makes what the queue remembers of finished tasks old: by that much the
// windows of all slices begin earlier.
func (b *bench) age(d time.Duration) {
	b.t.Helper()
	ctx := b.t.Context()
	prefix := b.q.StreamKey(0)
	prefix = prefix[:strings.LastIndex(prefix, ":")+1]
	for _, slice := range []string{"done1", "done2", "done3"} {
		began, err := b.client.HGet(ctx, prefix+slice, "").Int64()
		if err != nil {
			continue
		}
		if err := b.client.HSet(ctx, prefix+slice, "", strconv.FormatInt(began-d.Milliseconds(), 10)).Err(); err != nil {
			b.t.Fatal(err)
		}
	}
}

// F2: a step of an unfinished task is remembered for as long as the task is
// unfinished, however short the retention is: the task fails after the effect,
// waits for longer than the retention, and does not have the effect again. Once
// it is done and forgotten, one of two copies that come then gets through.
func TestF2MarksOutlastRetries(t *testing.T) {
	b := newBench(t, time.Minute)
	b.q = reopen(b, func(c *queue.Config) { c.Retention = time.Second })
	b.ledger = dedupe.NewRedisLedger(b.q)
	effects := 0
	call := func(l queue.Lease) error {
		_, err := dedupe.Step(t.Context(), b.ledger, l, "charge", func(_ context.Context, _ dedupe.Key) (string, error) {
			effects++
			return "receipt", nil
		})
		return err
	}
	b.add("T1")
	for attempt := range 3 {
		l := b.take()
		if err := call(l); err != nil {
			t.Fatal(err)
		}
		if attempt == 2 {
			if got := b.q.Complete(t.Context(), []queue.Settlement{{Lease: l}})[0]; got.Err != nil {
				t.Fatal(got.Err)
			}
			break
		}
		if got := b.q.Retry(t.Context(), []queue.Settlement{{Lease: l, Error: "after the effect"}})[0]; got.Err != nil {
			t.Fatal(got.Err)
		}
		b.age(time.Hour)
		if _, err := b.q.Tidy(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := b.q.Promote(t.Context(), 0, 1); err != nil {
			t.Fatal(err)
		}
	}
	if effects != 1 {
		t.Errorf("%d effects", effects)
	}
	b.age(time.Hour)
	results := make([]queue.Receipt, 2)
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() {
			results[i] = b.q.Enqueue(t.Context(), b.q.NewToken(), []queue.Task{{ID: "T1", Kind: "invoice.send"}})[0]
		})
	}
	wg.Wait()
	if results[0].Added == results[1].Added {
		t.Errorf("of two copies after the retention: %+v", results)
	}
}

// F3: of many that want to have the effect of one step at the same moment one
// is told that it is the first, and of many results one is kept.
func TestF3OneIsFirst(t *testing.T) {
	const many = 20
	b := newBench(t, time.Minute)
	b.add("T1")
	l := b.take()
	first, kept := 0, map[string]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	barrier := make(chan struct{})
	for range many {
		wg.Go(func() {
			<-barrier
			s, err := b.ledger.Intend(t.Context(), l, "charge", dedupe.KeyFor(l.Queue, l.TaskID, "charge"), b.q.NewToken())
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				t.Error(err)
			case s.State == "":
				first++
			}
		})
	}
	close(barrier)
	wg.Wait()
	if first != 1 {
		t.Errorf("%d were told that they are the first", first)
	}
	conflicts := 0
	for i := range many {
		wg.Go(func() {
			s, err := b.ledger.Record(t.Context(), l, "charge", queue.StepDone, []byte(strconv.Itoa(i)))
			mu.Lock()
			defer mu.Unlock()
			if errors.Is(err, queue.ErrStepConflict) {
				conflicts++
			} else if err != nil {
				t.Error(err)
			}
			kept[string(s.Result)]++
		})
	}
	wg.Wait()
	if conflicts != many-1 || len(kept) != 1 {
		t.Errorf("%d of %d conflict, kept %v", conflicts, many, kept)
	}
}

// reopen opens the queue of the bench with other settings.
func reopen(b *bench, edit func(*queue.Config)) *queue.Queue {
	b.t.Helper()
	cfg := b.q.Config()
	cfg.ReadClient = nil
	edit(&cfg)
	q, err := queue.New(cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = q.Close() })
	return q
}
