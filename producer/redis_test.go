package producer_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/claimq/claimq/internal/faultredis"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/queue"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

func connected(t *testing.T, qc queue.Config, pc producer.Config) (*producer.Producer, *queue.Queue, *faultredis.Hook) {
	t.Helper()
	client := redistest.Shared(t).Client()
	qc.Name, qc.Prefix, qc.Client = "q", redistest.Prefix(t), client
	q, err := queue.New(qc)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	if err := q.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, err := producer.New(q, pc)
	if err != nil {
		t.Fatal(err)
	}
	// The server learns the script before faults are put in its way.
	if _, err := p.Enqueue(t.Context(), queue.Task{ID: "warm-up", Kind: "k"}); err != nil {
		t.Fatal(err)
	}
	return p, q, faultredis.New(client)
}

func waiting(t *testing.T, q *queue.Queue) int64 {
	t.Helper()
	s, err := q.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s.Waiting - 1 // without the warm-up
}

// TestEachFailureAddsOnce: a send that was not applied, and one that was
// applied and whose answer was lost, end in one task and the answer "added".
// (E1)
func TestEachFailureAddsOnce(t *testing.T) {
	for name, fault := range map[string]func(faultredis.Match) faultredis.Fault{
		"not applied": faultredis.FailBefore, "reply lost": faultredis.LoseReply,
	} {
		t.Run(name, func(t *testing.T) {
			p, q, hook := connected(t, queue.Config{Partitions: 2}, producer.Config{})
			in := []queue.Task{{ID: "a", Kind: "k"}, {Kind: "k"}, {ID: "b", Kind: "k"}, {ID: "c", Kind: ""}, {ID: "warm-up", Kind: "k"}}
			f := hook.Inject(fault(faultredis.Command("evalsha")).Times(2))
			receipts, err := p.EnqueueMany(t.Context(), in)
			if !errors.Is(err, queue.ErrInvalidTask) || errors.Is(err, queue.ErrIndefinite) {
				t.Error(err)
			}
			if s := producer.Summarize(receipts); s != (producer.Summary{Added: 3, Duplicate: 1, Refused: 1}) {
				t.Errorf("%+v", s)
			}
			if n := waiting(t, q); n != 3 || f.Fired() != 2 {
				t.Errorf("%d tasks waiting, want 3; %d faults", n, f.Fired())
			}
		})
	}
}

// TestCallerCallsAgain: every answer is lost, the caller is told so and calls
// again with the same task. (E1)
func TestCallerCallsAgain(t *testing.T) {
	p, q, hook := connected(t, queue.Config{}, producer.Config{MaxRetries: 1})
	f := hook.Inject(faultredis.LoseReply(faultredis.Command("evalsha")))
	receipt, err := p.Enqueue(t.Context(), queue.Task{Kind: "k"})
	if !errors.Is(err, queue.ErrIndefinite) || receipt.ID == "" {
		t.Fatalf("%+v, %v", receipt, err)
	}
	f.Remove()
	receipt, err = p.Enqueue(t.Context(), queue.Task{ID: receipt.ID, Kind: "k"})
	if err != nil || !receipt.Duplicate || waiting(t, q) != 1 {
		t.Errorf("%+v, %v, %d waiting", receipt, err, waiting(t, q))
	}
}

func TestQueueFull(t *testing.T) {
	p, q, _ := connected(t, queue.Config{MaxBacklog: 3}, producer.Config{})
	receipts, err := p.EnqueueMany(t.Context(), tasks("a", "b", "c", "a"))
	if !errors.Is(err, queue.ErrQueueFull) || producer.Summarize(receipts) != (producer.Summary{Added: 2, Duplicate: 1, Full: 1}) || waiting(t, q) != 2 {
		t.Errorf("%v, %+v", err, receipts)
	}
}

// TestLargePayload is refused with its size, never with its content, and does
// not hold up its neighbours. (G7)
func TestLargePayload(t *testing.T) {
	p, q, _ := connected(t, queue.Config{MaxPayload: 1000}, producer.Config{BatchBytes: 100})
	in := tasks("a", "b", "c", "d")
	in[1].Payload = []byte(strings.Repeat("secret", 1000))
	in[2].Payload = make([]byte, 1000)
	receipts, err := p.EnqueueMany(t.Context(), in)
	if !errors.Is(receipts[1].Err, queue.ErrInvalidTask) || !strings.Contains(err.Error(), "6000") || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
	if waiting(t, q) != 3 {
		t.Errorf("%+v", receipts)
	}
}

func TestSameIDTwice(t *testing.T) {
	p, q, hook := connected(t, queue.Config{}, producer.Config{})
	hook.Inject(faultredis.LoseReply(faultredis.Command("evalsha")).Once())
	receipts, err := p.EnqueueMany(t.Context(), tasks("a", "b", "a"))
	if err != nil || !receipts[0].Added || !receipts[1].Added || !receipts[2].Duplicate || waiting(t, q) != 2 {
		t.Errorf("%+v, %v", receipts, err)
	}
}

func TestTyped(t *testing.T) {
	type invoice struct{ Number int }
	p, q, _ := connected(t, queue.Config{}, producer.Config{})
	send := producer.Typed[invoice]{Producer: p, Kind: "invoice.send"}
	receipt, err := send.Enqueue(t.Context(), "invoice-4821-send", invoice{4821})
	if err != nil || !receipt.Added {
		t.Fatalf("%+v, %v", receipt, err)
	}
	info, err := q.Inspect(t.Context(), "invoice-4821-send")
	if err != nil || string(info.Task.Payload) != `{"Number":4821}` || info.Task.Kind != "invoice.send" || info.Task.ContentType != "application/json" {
		t.Errorf("%+v, %v", info.Task, err)
	}
	if _, err := (producer.Typed[chan int]{Producer: p, Kind: "k"}).Enqueue(context.Background(), "x", nil); !errors.Is(err, queue.ErrInvalidTask) {
		t.Errorf("a payload that does not encode: %v", err)
	}
}

func TestMany(t *testing.T) {
	p, q, _ := connected(t, queue.Config{Partitions: 4}, producer.Config{})
	var in []queue.Task
	for i := range 2500 {
		in = append(in, queue.Task{ID: queue.TaskID(fmt.Sprint("t", i)), Kind: "k"})
	}
	for _, want := range []producer.Summary{{Added: 2500}, {Duplicate: 2500}} {
		receipts, err := p.EnqueueMany(t.Context(), in)
		if err != nil || producer.Summarize(receipts) != want {
			t.Errorf("%+v, %v", producer.Summarize(receipts), err)
		}
	}
	if n := waiting(t, q); n != 2500 {
		t.Errorf("%d waiting", n)
	}
}
