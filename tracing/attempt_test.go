package tracing_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/queue"
	"github.com/claimq/claimq/tracing"
)

// rude is an error none of whose methods can be called.
type rude struct{}

func (rude) Error() string     { panic("no text") }
func (rude) ErrorType() string { panic("no type") }

var delivery = consumer.Delivery{
	Task:   queue.Task{Kind: "k"},
	Lease:  queue.Lease{Queue: "q", TaskID: "t", Attempt: 3, Failures: 1, Interruptions: 1, Fence: 7, Grant: queue.Grant{Partition: 2}},
	Source: consumer.SourceReclaimed,
}

// attempt runs h once, its context ended for cause by the time it returns.
func attempt(t *testing.T, edit func(*tracing.Config), cause error, h consumer.HandlerFunc) tracetest.SpanStub {
	t.Helper()
	spans, cfg := recording()
	if edit != nil {
		edit(&cfg)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	traced := tracing.Middleware(cfg)(consumer.HandlerFunc(func(ctx context.Context, d consumer.Delivery) ([]byte, error) {
		if cause != nil {
			cancel(cause)
		}
		return h(ctx, d)
	}))
	done := make(chan struct{})
	go func() { // a goroutine that the handler may end
		defer close(done)
		defer func() { _ = recover() }()
		_, _ = traced.HandleTask(ctx, delivery)
	}()
	<-done
	return only(t, spans, "process q")
}

func returns(err error) consumer.HandlerFunc {
	return func(context.Context, consumer.Delivery) ([]byte, error) { return nil, err }
}

// TestOutcomes: how an attempt ended can be told from its span.
func TestOutcomes(t *testing.T) {
	declined := &url.Error{Op: "charge", URL: "x", Err: errPlain}
	for name, c := range map[string]struct {
		h      consumer.HandlerFunc
		cause  error
		want   []string // attributes
		status codes.Code
		text   string // in the status
		events string
	}{
		"success":     {returns(nil), nil, []string{"claimq.outcome=completed", "claimq.reason=", "error.type="}, codes.Unset, "", ""},
		"failure":     {returns(errPlain), nil, []string{"claimq.outcome=retried", "claimq.reason=error", "error.type=*errors.errorString"}, codes.Error, "connection reset", "exception"},
		"wrapped":     {returns(fmt.Errorf("a: %w", declined)), nil, []string{"claimq.outcome=retried", "error.type=*url.Error"}, codes.Error, "a: charge", "exception"},
		"retry after": {returns(consumer.RetryAfter(time.Second, declined)), nil, []string{"claimq.outcome=retried", "claimq.reason=error", "error.type=*url.Error"}, codes.Error, "charge", "exception"},
		"dead letter": {returns(consumer.DeadLetter(declined)), nil, []string{"claimq.outcome=dead", "claimq.reason=error", "error.type=*url.Error"}, codes.Error, "charge", "exception"},
		"release":     {returns(consumer.Release(declined)), nil, []string{"claimq.outcome=released", "claimq.reason=", "error.type="}, codes.Unset, "", "exception"},
		"timeout":     {returns(errPlain), consumer.ErrTaskTimeout, []string{"claimq.outcome=retried", "claimq.reason=timeout"}, codes.Error, "connection reset", "exception"},
		"drain":       {returns(errPlain), consumer.ErrDraining, []string{"claimq.outcome=released", "claimq.reason=canceled", "error.type="}, codes.Unset, "", "exception"},
		"lost":        {returns(errPlain), queue.ErrLeaseLost, []string{"claimq.outcome=lost", "claimq.reason=canceled"}, codes.Error, "connection reset", "claimq.lease_lost exception"},
		"lost, done":  {returns(nil), queue.ErrLeaseLost, []string{"claimq.outcome=completed"}, codes.Unset, "", "claimq.lease_lost"},
		"too large": {func(context.Context, consumer.Delivery) ([]byte, error) { return make([]byte, 1025), nil }, nil,
			[]string{"claimq.outcome=dead", "claimq.reason=error", "error.type=result_too_large"}, codes.Error, "1025", ""},
		"caught panic": {returns(&consumer.PanicError{Value: "oh", Stack: "main.go:1"}), nil,
			[]string{"claimq.outcome=retried", "claimq.reason=panic", "error.type=panic"}, codes.Error, "panicked: oh", "exception"},
		"panic":  {func(context.Context, consumer.Delivery) ([]byte, error) { panic("oh") }, nil, []string{"claimq.outcome=retried", "claimq.reason=panic", "error.type=panic"}, codes.Error, "panicked", ""},
		"goexit": {func(context.Context, consumer.Delivery) ([]byte, error) { runtime.Goexit(); return nil, nil }, nil, []string{"error.type=panic"}, codes.Error, "Goexit", ""},
		"rude":   {returns(consumer.DeadLetter(rude{})), nil, []string{"claimq.outcome=dead", "error.type=tracing_test.rude"}, codes.Error, "Error method panicked", "exception"},
	} {
		t.Run(name, func(t *testing.T) {
			s := attempt(t, nil, c.cause, c.h)
			has(t, s, append(c.want, "claimq.attempt=3", "claimq.failures=1", "claimq.interruptions=1", "claimq.fence=7",
				"claimq.reclaimed=true", "messaging.destination.partition.id=2", "messaging.message.id=t")...)
			status(t, s, c.status, c.text)
			var events []string
			for _, e := range s.Events {
				events = append(events, e.Name)
			}
			if got := strings.Join(events, " "); got != c.events {
				t.Errorf("events %q, want %q", got, c.events)
			}
			if s.EndTime.IsZero() {
				t.Error("the span has no end")
			}
		})
	}
}

// TestPanicGoesOn: to the worker, with its value.
func TestPanicGoesOn(t *testing.T) {
	_, cfg := recording()
	h := tracing.Middleware(cfg)(consumer.HandlerFunc(func(context.Context, consumer.Delivery) ([]byte, error) { panic("oh") }))
	defer func() {
		if v := recover(); v != "oh" {
			t.Errorf("recovered %v", v)
		}
	}()
	_, _ = h.HandleTask(t.Context(), delivery)
	t.Error("the panic is gone")
}

// TestReturnsAreUntouched: what the handler returned reaches the worker.
func TestReturnsAreUntouched(t *testing.T) {
	_, cfg := recording()
	want := consumer.DeadLetter(errPlain)
	h := tracing.Middleware(cfg)(consumer.HandlerFunc(func(context.Context, consumer.Delivery) ([]byte, error) { return []byte("r"), want }))
	if result, err := h.HandleTask(t.Context(), delivery); string(result) != "r" || err != want {
		t.Errorf("%q, %v", result, err)
	}
}

// TestErrorTexts: they are cut, and can be left out.
func TestErrorTexts(t *testing.T) {
	long := errors.New("\xff" + strings.Repeat("é", queue.MaxErrorBytes))
	for name, err := range map[string]error{"plain": long, "panic": &consumer.PanicError{Value: "secret", Stack: "secret"}} {
		s := attempt(t, nil, nil, returns(err))
		message := attr(s.Events[0].Attributes, "exception.message")
		if len(message) == 0 || len(message) > queue.MaxErrorBytes || message != s.Status.Description || !utf8.ValidString(message) {
			t.Errorf("%s: a message of %d bytes, a status of %d", name, len(message), len(s.Status.Description))
		}
		if got := attr(s.Events[0].Attributes, "exception.stacktrace"); (got != "") != (name == "panic") {
			t.Errorf("%s: stack %q", name, got)
		}
		s = attempt(t, func(c *tracing.Config) { c.OmitErrorText = true }, nil, returns(err))
		if text := everything(s); strings.Contains(text, "é") || strings.Contains(text, "secret") || !strings.Contains(text, "error.type") {
			t.Errorf("%s: with texts omitted: %s", name, text)
		}
	}
}
