// Package push delivers tasks over HTTP: each task is POSTed to the URL that
// its kind is routed to, and the status of the answer decides what becomes of
// the task.
//
//	2xx                 complete; the external ID or the body is kept as the result
//	Config.DeadStatus   dead letter, with the status and a piece of the answer as reason
//	Config.RetryStatus  retry, not before Retry-After says so
//	anything else       retry with the worker's own backoff
//
// Redirects are refused: a receiver that moved is a matter for the operator,
// and following one would send payload and signature where nobody configured.
//
// Each POST is a recorded step named "deliver", so that intent, idempotency
// key and result can be seen by task ID. The same key goes out on every
// attempt: a receiver that remembers it applies the effect once.
//
// The package reads no environment, logs nothing and starts no goroutine of
// its own; net/http keeps its connections until Close.
package push

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/claimq/claimq/dedupe"
	"github.com/claimq/claimq/queue"
)

// Defaults and limits of Config.
const (
	DefaultTimeout          = 15 * time.Second
	DefaultMaxResponseBytes = 64 << 10
	DefaultMaxConnsPerHost  = 128
	DefaultExternalIDHeader = "X-External-Id"

	// MaxRetryAfter caps what a receiver may ask for with Retry-After.
	MaxRetryAfter = time.Hour
	// maxReasonBytes is how much of a refusal's body goes into the reason.
	maxReasonBytes = 256
)

// StepName is the name of the recorded step of a delivery.
const StepName = "deliver"

// Config says where tasks go and what the answers mean. The zero value of
// every field but Routes and Ledger is a good default.
type Config struct {
	Routes []Route
	// Ledger records each POST before it is sent and its result after it.
	Ledger dedupe.Ledger

	Timeout time.Duration // of one POST, connecting and reading the answer included; default 15 s
	// KindTimeouts bound the handler run of some kinds; the others have
	// consumer.Config.Timeout.
	KindTimeouts     map[string]time.Duration
	MaxResponseBytes int64 // of the answer that are read; default 64 KiB
	MaxConnsPerHost  int   // connections to one receiver; default 128

	DeadStatus  []int // end as a dead letter; default 410 and 422
	RetryStatus []int // retried, honouring Retry-After; default 409, 425, 429 and 503

	// ExternalIDHeader is the header of the answer that names what the
	// receiver made of the task, kept as the result; default "X-External-Id".
	ExternalIDHeader string
	// ForwardHeaders are the task's own headers that are passed on; default
	// traceparent, tracestate and baggage.
	ForwardHeaders []string

	// SigningSecrets add the Standard Webhooks headers, one signature for
	// each ("whsec_" and base64 of 24 to 64 bytes). Empty: not signed.
	SigningSecrets []string

	// RootCAs are trusted instead of the system's, for https URLs.
	RootCAs *x509.CertPool
	// Proxy chooses a proxy for a request; nil: none.
	Proxy func(*http.Request) (*url.URL, error)

	UserAgent string           // default "claimq"
	Now       func() time.Time // the clock of webhook-timestamp and Retry-After; default time.Now
}

// Pusher delivers tasks. It is safe for concurrent use.
type Pusher struct {
	cfg    Config
	routes routes
	keys   [][]byte // what the signing secrets hold
	client *http.Client
}

// New checks cfg, reports every problem at once, and returns a Pusher. It
// connects to nothing.
func New(cfg Config) (*Pusher, error) {
	cfg = cfg.withDefaults()
	errs := cfg.check()
	p := &Pusher{cfg: cfg, routes: slices.Clone(cfg.Routes)}
	for i, s := range cfg.SigningSecrets {
		key, err := parseSecret(s)
		if err != nil {
			errs = append(errs, problem(fmt.Sprintf("SigningSecrets[%d]", i), "%v", err))
		}
		p.keys = append(p.keys, key)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	p.client = &http.Client{
		Transport:     cfg.transport(),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return p, nil
}

// Close closes idle connections. Call it when no delivery is running.
func (p *Pusher) Close() { p.client.CloseIdleConnections() }

func (c Config) withDefaults() Config {
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.MaxResponseBytes == 0 {
		c.MaxResponseBytes = DefaultMaxResponseBytes
	}
	if c.MaxConnsPerHost == 0 {
		c.MaxConnsPerHost = DefaultMaxConnsPerHost
	}
	if c.DeadStatus == nil {
		c.DeadStatus = []int{http.StatusGone, http.StatusUnprocessableEntity}
	}
	if c.RetryStatus == nil {
		c.RetryStatus = []int{http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests, http.StatusServiceUnavailable}
	}
	if c.ExternalIDHeader == "" {
		c.ExternalIDHeader = DefaultExternalIDHeader
	}
	if c.ForwardHeaders == nil {
		c.ForwardHeaders = []string{"traceparent", "tracestate", "baggage"}
	}
	if c.UserAgent == "" {
		c.UserAgent = "claimq"
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

func (c Config) check() []error {
	errs := checkRoutes(c.Routes)
	bad := func(ok bool, field, remedy string, args ...any) {
		if !ok {
			errs = append(errs, problem(field, remedy, args...))
		}
	}
	bad(c.Ledger != nil, "Ledger", "give a ledger, for instance dedupe.NewRedisLedger")
	bad(c.Timeout > 0, "Timeout", "use a positive duration, got %v", c.Timeout)
	bad(c.MaxResponseBytes > 0, "MaxResponseBytes", "use a positive number, got %d", c.MaxResponseBytes)
	bad(c.MaxConnsPerHost > 0, "MaxConnsPerHost", "use a positive number, got %d", c.MaxConnsPerHost)
	bad(len(c.SigningSecrets) <= MaxSecrets, "SigningSecrets", "use at most %d, got %d", MaxSecrets, len(c.SigningSecrets))
	for _, s := range c.DeadStatus {
		bad(statusOK(s), "DeadStatus", "use statuses from 300 to 599, got %d", s)
		bad(!slices.Contains(c.RetryStatus, s), "DeadStatus", "%d is among RetryStatus too; choose one", s)
	}
	for _, s := range c.RetryStatus {
		bad(statusOK(s), "RetryStatus", "use statuses from 300 to 599, got %d", s)
	}
	return errs
}

func statusOK(s int) bool { return s >= 300 && s <= 599 }

// transport is one pool for all receivers. Connections are kept as long as a
// receiver keeps them; nothing is retried behind our back (see body).
func (c Config) transport() *http.Transport {
	return &http.Transport{
		Proxy:               c.Proxy,
		MaxConnsPerHost:     c.MaxConnsPerHost,
		MaxIdleConnsPerHost: c.MaxConnsPerHost,
		IdleConnTimeout:     90 * time.Second,
		TLSHandshakeTimeout: c.Timeout,
		DisableCompression:  true, // a bound on bytes read is a bound on bytes kept
		ForceAttemptHTTP2:   true,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.RootCAs},
	}
}

func problem(field, remedy string, args ...any) error {
	return &queue.FieldError{Field: "push." + field, Remedy: fmt.Sprintf(remedy, args...), Kind: queue.ErrInvalidConfig}
}
