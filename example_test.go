package claimq_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/dedupe"
	"github.com/claimq/claimq/internal/embedded"
	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/queue"
)

type Invoice struct{ Number, Cents int }

// Gateway is somebody else's service that takes money.
type Gateway interface {
	Charge(ctx context.Context, cents int, idempotencyKey string) (externalID string, err error)
}

func work(ctx context.Context, rdb *redis.Client, gateway Gateway) error {
	q, err := queue.New(queue.Config{Name: "invoices", Client: rdb})
	if err != nil {
		return err
	}
	defer q.Close()
	ledger := dedupe.NewRedisLedger(q)
	var mux consumer.Mux
	consumer.Handle(&mux, "invoice.send", func(ctx context.Context, l queue.Lease, in Invoice) error {
		_, err := dedupe.Step(ctx, ledger, l, "charge", func(ctx context.Context, key dedupe.Key) (string, error) {
			return gateway.Charge(ctx, in.Cents, key.String()) // the same key at every attempt
		})
		return err // nil completes the task, an error tries it again with backoff
	})
	w, err := consumer.New(q, consumer.Config{Handler: &mux})
	if err != nil {
		return err
	}
	return w.Run(ctx) // when ctx ends: finishes, settles or hands back what it holds
}

// flaky fails its first call.
type flaky struct {
	calls int
	done  chan struct{}
}

func (f *flaky) Charge(_ context.Context, cents int, key string) (string, error) {
	if f.calls++; f.calls == 1 {
		return "", fmt.Errorf("gateway: connection reset")
	}
	fmt.Println("charged", cents, "at call", f.calls)
	defer close(f.done)
	return "ch_1", nil
}

func Example() {
	server, err := embedded.Start("127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	opt, err := redis.ParseURL(server.URL())
	if err != nil {
		fmt.Println(err)
		return
	}
	rdb := redis.NewClient(opt)
	defer rdb.Close()

	q, _ := queue.New(queue.Config{Name: "invoices", Client: rdb})
	defer q.Close()
	p, _ := producer.New(q, producer.Config{})
	for range 2 {
		task, _ := queue.NewTask("invoice.send", Invoice{Number: 4821, Cents: 1999})
		task.ID = "invoice-4821-send" // the business action: a second time adds nothing
		receipt, err := p.Enqueue(context.Background(), task)
		fmt.Println("added", receipt.Added, "duplicate", receipt.Duplicate, err)
	}

	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	gateway := &flaky{done: make(chan struct{})}
	go func() {
		<-gateway.done
		stop()
	}()
	fmt.Println(work(ctx, rdb, gateway))

	info, err := q.Inspect(context.Background(), "invoice-4821-send")
	fmt.Println(info.Place, info.Steps[0].Name, info.Steps[0].State, string(info.Steps[0].Result), err)
	// Output:
	// added true duplicate false <nil>
	// added false duplicate true <nil>
	// charged 1999 at call 2
	// <nil>
	// done charge done ch_1 <nil>
}

// The example of the README is the function above, to the letter.
func TestReadmeExampleIsCompiled(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "```go\n")
	example, _, found := strings.Cut(rest, "```")
	if !found || !strings.Contains(string(source), example) {
		t.Error("the Go example of README.md is not in example_test.go")
	}
	if n := strings.Count(example, "\n"); n > 20 {
		t.Errorf("the example has %d lines, at most 20 are read", n)
	}
}
