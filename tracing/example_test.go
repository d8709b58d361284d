package tracing_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/trace"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/internal/embedded"
	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/queue"
	"github.com/claimq/claimq/tracing"
)

type Invoice struct{ Number int }

func traced(q *queue.Queue, provider trace.TracerProvider, charge func(context.Context, Invoice) error) (*tracing.Producer, *consumer.Worker, error) {
	cfg := tracing.Config{TracerProvider: provider}
	inner, err := producer.New(q, producer.Config{})
	if err != nil {
		return nil, nil, err
	}
	var mux consumer.Mux
	mux.Use(tracing.Middleware(cfg)) // a span around every attempt
	consumer.Handle(&mux, "invoice.send", func(ctx context.Context, _ queue.Lease, in Invoice) error {
		ctx, span := provider.Tracer("billing").Start(ctx, "charge") // a child of the attempt's
		defer span.End()
		return charge(ctx, in)
	})
	w, err := consumer.New(q, consumer.Config{Handler: &mux})
	return tracing.NewProducer(q, inner, cfg), w, err // a span around every Enqueue
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
	q, err := queue.New(queue.Config{Name: "invoices", Client: rdb})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer q.Close()

	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	spans, recorded := recording()
	p, w, err := traced(q, recorded.TracerProvider, func(context.Context, Invoice) error {
		stop()
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	task, _ := queue.NewTask("invoice.send", Invoice{Number: 4821})
	task.ID = "invoice-4821-send"
	if _, err := p.Enqueue(context.Background(), task); err != nil {
		fmt.Println(err)
	}
	fmt.Println(w.Run(ctx))

	send := spans.GetSpans()[0].SpanContext
	for _, s := range spans.GetSpans() {
		linked := len(s.Links) == 1 && s.Links[0].SpanContext.SpanID() == send.SpanID()
		fmt.Printf("%s (%s) linked to the send: %v\n", s.Name, s.SpanKind, linked)
	}
	// Output:
	// <nil>
	// send invoices (producer) linked to the send: false
	// charge (internal) linked to the send: false
	// process invoices (consumer) linked to the send: true
}

func file(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestPageExampleIsCompiled: the example of the page is the function above, to
// the letter.
func TestPageExampleIsCompiled(t *testing.T) {
	_, rest, _ := strings.Cut(file(t, "../docs/tracing.md"), "```go\n")
	example, _, found := strings.Cut(rest, "```")
	if !found || !strings.Contains(file(t, "example_test.go"), example) {
		t.Error("the Go example of docs/tracing.md is not in example_test.go")
	}
}

// TestPageNamesAttributes: what the code has and what the page says of our own
// attributes is the same.
func TestPageNamesAttributes(t *testing.T) {
	names := func(text, pattern string) (out []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			out = append(out, m[1])
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	code := names(file(t, "config.go"), `"(claimq\.[a-z_.]+)"`)
	page := names(file(t, "../docs/tracing.md"), "`(claimq\\.[a-z_.]+)`")
	if len(code) == 0 || !slices.Equal(code, page) {
		t.Errorf("in the code:\n%q\non the page:\n%q", code, page)
	}
}
