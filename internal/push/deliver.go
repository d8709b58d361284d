package push

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptrace"
	"net/url"
	"slices"
	"sync/atomic"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/dedupe"
	"github.com/claimq/claimq/queue"
)

var _ consumer.Router = (*Pusher)(nil)

// Route implements consumer.Router: a kind without a URL is left for a worker
// that has one.
func (p *Pusher) Route(kind string) (consumer.Route, bool) {
	_, ok := p.routes.find(kind)
	return consumer.Route{Handler: p, Timeout: p.cfg.KindTimeouts[kind]}, ok
}

// HandleTask implements consumer.Handler: it POSTs the task as its recorded
// step and returns the result to keep.
func (p *Pusher) HandleTask(ctx context.Context, d consumer.Delivery) ([]byte, error) {
	target, ok := p.routes.find(d.Task.Kind)
	if !ok {
		return nil, fmt.Errorf("no route for kind %q", d.Task.Kind)
	}
	accepted := false
	result, err := dedupe.Step(ctx, p.cfg.Ledger, d.Lease, StepName, func(ctx context.Context, key dedupe.Key) (string, error) {
		result, err := p.post(ctx, target, d, key.String())
		accepted = err == nil
		return result, err
	})
	if accepted && queue.IsRetryable(err) {
		// The receiver has it, only the ledger could not be told. Completing
		// keeps the result too; to fail here would send it again.
		err = nil
	}
	refused, isRefusal := errors.AsType[*RefusedError](err)
	switch {
	case err == nil:
		return []byte(result), nil
	case isRefusal && slices.Contains(p.cfg.DeadStatus, refused.Status):
		return nil, consumer.DeadLetter(err)
	case isRefusal && slices.Contains(p.cfg.RetryStatus, refused.Status) && refused.RetryAfter > 0:
		return nil, consumer.RetryAfter(refused.RetryAfter, err)
	default:
		return nil, err
	}
}

// post sends the request once. An error of type *RefusedError carries an
// answer; one that dedupe knows as not sent means that no byte of the request
// left this process; any other leaves the outcome unknown.
func (p *Pusher) post(ctx context.Context, target string, d consumer.Delivery, key string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.cfg.Timeout, &timeoutError{p})
	defer cancel()
	var connected atomic.Bool // until then nothing can have been written
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	req, err := p.request(traced, target, d, key)
	if err != nil {
		return "", dedupe.NotSent(withoutURL(err))
	}
	resp, err := p.client.Do(req)
	if err != nil {
		err = withoutURL(err)
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		if !connected.Load() {
			return "", dedupe.NotSent(err)
		}
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return p.result(resp), nil
	}
	return "", p.refusal(resp)
}

// timeoutError is the cause that ends a POST after Config.Timeout.
type timeoutError struct{ p *Pusher }

func (e *timeoutError) Error() string {
	return fmt.Sprintf("no answer from the receiver within %v", e.p.cfg.Timeout)
}

// Timeout marks it as a timeout to those who ask.
func (e *timeoutError) Timeout() bool { return true }

// withoutURL drops the URL that net/http puts into its errors: it may hold a
// token, and errors are kept with the task.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}
