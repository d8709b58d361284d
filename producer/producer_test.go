package producer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/queue"
)

// recorder stands in for the server: it answers "added", except where reply
// says otherwise, and keeps what was sent.
type recorder struct {
	sends [][]queue.TaskID
	token []queue.Token
	at    []time.Time
	reply func(send int, t queue.Task) error
}

func (r *recorder) send(_ context.Context, token queue.Token, tasks []queue.Task) []queue.Receipt {
	n := len(r.sends)
	var ids []queue.TaskID
	receipts := make([]queue.Receipt, len(tasks))
	for i, t := range tasks {
		ids = append(ids, t.ID)
		receipts[i] = queue.Receipt{ID: t.ID, Added: true, Place: queue.Waiting}
		if r.reply != nil {
			if err := r.reply(n, t); err != nil {
				receipts[i] = queue.Receipt{ID: t.ID, Err: err}
			}
		}
	}
	r.sends, r.token, r.at = append(r.sends, ids), append(r.token, token), append(r.at, time.Now())
	return receipts
}

// unconnected makes a producer whose sends end at r.
func unconnected(t *testing.T, cfg producer.Config, r *recorder) *producer.Producer {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = client.Close() })
	q, err := queue.New(queue.Config{Name: "q", Client: client, ReadClient: client})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.NewPCG(1, 2)
	}
	p, err := producer.New(q, cfg)
	if err != nil {
		t.Fatal(err)
	}
	p.Intercept(func(producer.Send) producer.Send { return r.send })
	return p
}

func tasks(ids ...queue.TaskID) []queue.Task {
	var all []queue.Task
	for _, id := range ids {
		all = append(all, queue.Task{ID: id, Kind: "k"})
	}
	return all
}

func TestConfigProblemsAtOnce(t *testing.T) {
	_, err := producer.New(nil, producer.Config{Timeout: -1, MaxRetries: 1000, Batch: 1000, BatchBytes: -1})
	for _, field := range []string{"queue", "Timeout", "MaxRetries", "Batch:", "BatchBytes"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("error %v does not name %s", err, field)
		}
	}
	if !errors.Is(err, queue.ErrInvalidConfig) {
		t.Error(err)
	}
}

func TestChunks(t *testing.T) {
	r := &recorder{}
	p := unconnected(t, producer.Config{Batch: 3, BatchBytes: 100}, r)
	in := tasks("a", "b", "c", "d", "e", "f", "g", "g", "h")
	in[3].Payload = make([]byte, 60)
	in[4].Payload = make([]byte, 60) // no room beside d
	in[5].Payload = make([]byte, 500)
	receipts, err := p.EnqueueMany(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(r.sends); got != "[[a b c] [d] [e] [f] [g] [g h]]" {
		t.Errorf("sent %s", got)
	}
	for i := range in {
		if receipts[i].ID != in[i].ID || !receipts[i].Added {
			t.Errorf("receipt %d: %+v", i, receipts[i])
		}
	}
	if len(slices.Compact(slices.Clone(r.token))) != len(r.token) {
		t.Errorf("two batches share a token: %q", r.token)
	}
}

// TestRetriesOnlyWhatIsOpen: with the same token (Invariant I7), and with
// waits that grow.
func TestRetriesOnlyWhatIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{reply: func(send int, task queue.Task) error {
			switch {
			case task.ID == "bad":
				return fmt.Errorf("%w: Kind", queue.ErrInvalidTask)
			case task.ID == "full":
				return queue.ErrQueueFull
			case task.ID == "lost" && send < 3:
				return queue.ErrIndefinite
			case task.ID == "away" && send < 1:
				return queue.ErrUnavailable
			}
			return nil
		}}
		p := unconnected(t, producer.Config{}, r)
		receipts, err := p.EnqueueMany(t.Context(), tasks("ok", "bad", "lost", "full", "away"))
		if got := fmt.Sprint(r.sends); got != "[[ok bad lost full away] [lost away] [lost] [lost]]" {
			t.Errorf("sent %s", got)
		}
		if len(slices.Compact(slices.Clone(r.token))) != 1 {
			t.Errorf("tokens %q", r.token)
		}
		for i, base := range []time.Duration{50, 100, 200} {
			if gap := r.at[i+1].Sub(r.at[i]); gap < base*time.Millisecond/2 || gap > base*time.Millisecond {
				t.Errorf("wait %d: %v", i, gap)
			}
		}
		e, ok := errors.AsType[*producer.Error](err)
		if !ok || e.Summary != (producer.Summary{Added: 3, Refused: 1, Full: 1}) || e.Summary != producer.Summarize(receipts) {
			t.Fatalf("%+v", err)
		}
		if !errors.Is(err, queue.ErrInvalidTask) || !errors.Is(err, queue.ErrQueueFull) || errors.Is(err, queue.ErrIndefinite) {
			t.Errorf("error %v", err)
		}
	})
}

func TestRetriesRunOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{reply: func(send int, task queue.Task) error {
			switch {
			case task.ID == "lost", task.ID == "first" && send == 0:
				return queue.ErrIndefinite
			case task.ID == "away", task.ID == "first":
				return queue.ErrUnavailable
			}
			return nil
		}}
		p := unconnected(t, producer.Config{Batch: 4, MaxRetries: 2}, r)
		receipts, err := p.EnqueueMany(t.Context(), tasks("ok", "lost", "away", "first", "later", "last"))
		if len(r.sends) != 3 {
			t.Errorf("%d sends, want 3 and none after", len(r.sends))
		}
		want := []error{nil, queue.ErrIndefinite, queue.ErrUnavailable, queue.ErrIndefinite, queue.ErrUnavailable, queue.ErrUnavailable}
		for i, r := range receipts {
			if !errors.Is(r.Err, want[i]) {
				t.Errorf("%s: %v, want %v", r.ID, r.Err, want[i])
			}
		}
		e, _ := errors.AsType[*producer.Error](err)
		if e == nil || e.Summary != (producer.Summary{Added: 1, Indefinite: 2, Unsent: 3}) {
			t.Errorf("%v", err)
		}
	})
}

func TestNoRetries(t *testing.T) {
	r := &recorder{reply: func(int, queue.Task) error { return queue.ErrUnavailable }}
	p := unconnected(t, producer.Config{MaxRetries: -1}, r)
	if _, err := p.Enqueue(t.Context(), queue.Task{ID: "a", Kind: "k"}); !errors.Is(err, queue.ErrUnavailable) || len(r.sends) != 1 {
		t.Errorf("%v after %d sends", err, len(r.sends))
	}
}

// TestTimeBounds: neither the caller's context nor the timeout is overrun by
// the waits.
func TestTimeBounds(t *testing.T) {
	for name, tt := range map[string]struct{ timeout, ctx time.Duration }{"timeout": {time.Second, time.Hour}, "context": {time.Hour, time.Second}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &recorder{reply: func(int, queue.Task) error { return queue.ErrIndefinite }}
				p := unconnected(t, producer.Config{Timeout: tt.timeout, MaxRetries: 100}, r)
				ctx, cancel := context.WithTimeout(t.Context(), tt.ctx)
				defer cancel()
				began := time.Now()
				receipt, err := p.Enqueue(ctx, queue.Task{ID: "a", Kind: "k"})
				if !errors.Is(err, queue.ErrIndefinite) || receipt.Err != err || time.Since(began) != time.Second {
					t.Errorf("%v after %v", err, time.Since(began))
				}
			})
		})
	}
	r := &recorder{}
	p := unconnected(t, producer.Config{}, r)
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	cancel(stop)
	if _, err := p.Enqueue(ctx, queue.Task{ID: "a", Kind: "k"}); !errors.Is(err, stop) || !errors.Is(err, queue.ErrUnavailable) || len(r.sends) != 0 {
		t.Errorf("on an ended context: %v, %d sends", err, len(r.sends))
	}
}

// TestIDIsMadeOnce: before the first send, so that a retry is a retry. (E1)
func TestIDIsMadeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{reply: func(send int, _ queue.Task) error {
			if send < 2 {
				return queue.ErrIndefinite
			}
			return nil
		}}
		p := unconnected(t, producer.Config{Entropy: bytes.NewReader(bytes.Repeat([]byte{7}, 32))}, r)
		in := []queue.Task{{Kind: "k"}, {Kind: "k"}, {Kind: "k"}}
		receipts, err := p.EnqueueMany(t.Context(), in)
		if !errors.Is(err, queue.ErrUnavailable) || receipts[2].Err == nil {
			t.Errorf("without entropy: %v", err) // 32 bytes are enough for two
		}
		if len(r.sends) != 3 || !slices.Equal(r.sends[0], r.sends[2]) || r.sends[0][0] == r.sends[0][1] || len(r.sends[0]) != 2 {
			t.Errorf("sent %v", r.sends)
		}
		if receipts[0].ID != r.sends[0][0] || len(receipts[0].ID) != 36 || receipts[0].ID[14] != '7' {
			t.Errorf("receipt %+v", receipts[0])
		}
		if in[0].ID != "" {
			t.Error("the caller's task was written to")
		}
	})
}

// TestErrorIsBounded however many tasks fail, and names every cause.
func TestErrorIsBounded(t *testing.T) {
	r := &recorder{reply: func(_ int, task queue.Task) error {
		if task.ID == "t999" {
			return queue.ErrQueueFull
		}
		return fmt.Errorf("%w: Kind", queue.ErrInvalidTask)
	}}
	p := unconnected(t, producer.Config{}, r)
	var in []queue.Task
	for i := range 1000 {
		in = append(in, queue.Task{ID: queue.TaskID(fmt.Sprint("t", i))})
	}
	_, err := p.EnqueueMany(t.Context(), in)
	e, _ := errors.AsType[*producer.Error](err)
	if e == nil || len(e.Problems) != 4 || !errors.Is(err, queue.ErrQueueFull) || !errors.Is(err, queue.ErrInvalidTask) {
		t.Fatalf("%v", err)
	}
	if s := err.Error(); !strings.Contains(s, "1000 of 1000 tasks") || !strings.Contains(s, "and 996 more") {
		t.Errorf("%s", s)
	}
	if receipts, err := p.EnqueueMany(t.Context(), nil); err != nil || len(receipts) != 0 {
		t.Errorf("nothing to add: %v, %v", receipts, err)
	}
}
