package push_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/claimq/claimq/dedupe"
	"github.com/claimq/claimq/internal/push"
	"github.com/claimq/claimq/queue"
)

func TestTLS(t *testing.T) {
	r := newRig(t, status(200))
	secure := httptest.NewUnstartedServer(r.record(status(200)))
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // it will not like the first client
	secure.StartTLS()
	defer secure.Close()

	if _, err := send(t.Context(), r.build(secure.URL), task()); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate nobody knows: %v", err)
	}
	if s := r.ledger.step(); s.State != queue.StepPending || r.requests() != 0 {
		t.Errorf("after a failed handshake the step is %s", s.State)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}))
	trusting := r.build(secure.URL, func(c *push.Config) { c.RootCAs = pool })
	if _, err := send(t.Context(), trusting, task()); err != nil || r.requests() != 1 {
		t.Errorf("with its certificate: %v, %d requests", err, r.requests())
	}
}

func TestTimeouts(t *testing.T) {
	release := make(chan struct{})
	t.Cleanup(func() { close(release) }) // before the server is closed
	hang := func(w http.ResponseWriter, req *http.Request) {
		select {
		case <-release:
		case <-req.Context().Done():
		}
	}
	short := func(c *push.Config) { c.Timeout = 50 * time.Millisecond }

	r := newRig(t, hang, short)
	_, err := r.send()
	if err == nil || !strings.Contains(err.Error(), "no answer from the receiver within 50ms") || asks(err) != "retry" {
		t.Errorf("a silent receiver: %v", err)
	}
	if s := r.ledger.step(); s.State != queue.StepSent {
		t.Errorf("after a request that went out the step is %s", s.State)
	}

	// A 200 whose body never ends is still a 200.
	r = newRig(t, func(w http.ResponseWriter, req *http.Request) {
		io.WriteString(w, "half an ans")
		http.NewResponseController(w).Flush()
		hang(w, req)
	}, short)
	if got, err := r.send(); err != nil || got != "half an ans [truncated]" {
		t.Errorf("an endless answer: %q, %v", got, err)
	}

	// The cause of the handler's context comes through.
	ctx, cancel := context.WithCancelCause(t.Context())
	r = newRig(t, func(w http.ResponseWriter, req *http.Request) {
		cancel(queue.ErrLeaseLost)
		hang(w, req)
	})
	if _, err := send(ctx, r.pusher, task()); !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("a lost lease: %v", err)
	}
}

func TestReceiverThatIsAway(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	r := newRig(t, status(200))
	p := r.build("http://" + addr + "/hook?token=hunter2")
	if _, err := send(t.Context(), p, task()); err == nil || !dedupe.IsNotSent(err) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("connection refused: %v", err)
	}
	if s := r.ledger.step(); s.State != queue.StepPending {
		t.Errorf("nothing was sent, the step is %s", s.State)
	}
}

// A connection that breaks after the request was written must not be mended by
// sending it again: nobody would have recorded that.
func TestNoHiddenSecondRequest(t *testing.T) {
	for _, payload := range []string{`{"n":1}`, ""} {
		n := 0
		r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
			if n++; n == 1 {
				return // so that the connection is kept and used again
			}
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			conn.Close()
		})
		tk := task()
		tk.Payload = []byte(payload)
		if _, err := send(t.Context(), r.pusher, tk); err != nil {
			t.Fatal(err)
		}
		r.ledger.steps = map[string]queue.Step{}
		_, err := send(t.Context(), r.pusher, tk)
		if err == nil || dedupe.IsNotSent(err) || r.ledger.step().State != queue.StepSent {
			t.Errorf("a broken connection: %v, step %s", err, r.ledger.step().State)
		}
		if r.requests() != 2 {
			t.Errorf("%d requests, want 2", r.requests())
		}
	}
}

func TestLedgerErrors(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-External-Id", "ch_1") })
	r.ledger.intendErr = queue.ErrLeaseLost
	if _, err := r.send(); !errors.Is(err, queue.ErrLeaseLost) || r.requests() != 0 {
		t.Errorf("without an intent: %v, %d requests", err, r.requests())
	}
	r.ledger.intendErr, r.ledger.recordErr = nil, queue.ErrUnavailable
	if got, err := r.send(); err != nil || got != "ch_1" {
		t.Errorf("accepted, but the ledger is away: %q, %v", got, err)
	}
	r.ledger.recordErr = queue.ErrStepConflict
	if _, err := r.send(); !errors.Is(err, queue.ErrStepConflict) {
		t.Errorf("a conflict: %v", err)
	}
}

func TestRouteIsTheWorkersRouter(t *testing.T) {
	r := newRig(t, status(200), func(c *push.Config) { c.KindTimeouts = map[string]time.Duration{"mail.slow": time.Hour} })
	if route, ok := r.pusher.Route("mail.slow"); !ok || route.Timeout != time.Hour || route.Handler == nil {
		t.Errorf("mail.slow: %+v, %v", route, ok)
	}
	if route, ok := r.pusher.Route("mail.send"); !ok || route.Timeout != 0 {
		t.Errorf("mail.send: %+v, %v", route, ok)
	}
	if _, ok := r.pusher.Route("report"); ok {
		t.Error("a kind without a URL has a route")
	}
}
