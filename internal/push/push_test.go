package push_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/dedupe"
	"github.com/claimq/claimq/internal/push"
	"github.com/claimq/claimq/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ledger is a dedupe.Ledger in memory.
type ledger struct {
	mu        sync.Mutex
	steps     map[string]queue.Step
	intendErr error
	recordErr error
}

func (l *ledger) NewCall() queue.Token { return "call" }

func (l *ledger) Intend(_ context.Context, lease queue.Lease, name string, key dedupe.Key, _ queue.Token) (queue.Step, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.intendErr != nil {
		return queue.Step{}, l.intendErr
	}
	was := l.steps[name]
	if was.State != queue.StepDone {
		l.steps[name] = queue.Step{Name: name, State: queue.StepSent, Key: key.String(), Calls: was.Calls + 1, Fence: lease.Fence}
	}
	return was, nil
}

func (l *ledger) Record(_ context.Context, _ queue.Lease, name string, state queue.StepState, result []byte) (queue.Step, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.recordErr != nil {
		return queue.Step{}, l.recordErr
	}
	s := l.steps[name]
	s.State, s.Result = state, result
	l.steps[name] = s
	return s, nil
}

func (l *ledger) Steps(context.Context, queue.TaskID) ([]queue.Step, error) { return nil, nil }

func (l *ledger) step() queue.Step {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.steps[push.StepName]
}

// rig is a receiver and a pusher that delivers to it.
type rig struct {
	t      *testing.T
	srv    *httptest.Server
	ledger *ledger
	pusher *push.Pusher

	mu   sync.Mutex
	got  []*http.Request
	body [][]byte
}

func newRig(t *testing.T, answer http.HandlerFunc, edit ...func(*push.Config)) *rig {
	t.Helper()
	r := &rig{t: t, ledger: &ledger{steps: map[string]queue.Step{}}}
	r.srv = httptest.NewServer(r.record(answer))
	t.Cleanup(r.srv.Close)
	r.pusher = r.build(r.srv.URL+"/hook", edit...)
	return r
}

func (r *rig) record(answer http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		b, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		r.got, r.body = append(r.got, req), append(r.body, b)
		r.mu.Unlock()
		answer(w, req)
	})
}

func (r *rig) build(url string, edit ...func(*push.Config)) *push.Pusher {
	r.t.Helper()
	cfg := push.Config{Routes: []push.Route{{Pattern: "mail.*", URL: url}}, Ledger: r.ledger, Timeout: 10 * time.Second}
	for _, f := range edit {
		f(&cfg)
	}
	p, err := push.New(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(p.Close)
	return p
}

func (r *rig) requests() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.got)
}

func (r *rig) send() (string, error) { return send(r.t.Context(), r.pusher, task()) }

func task() queue.Task {
	return queue.Task{ID: "invoice.4821-send", Kind: "mail.send", Payload: []byte(`{"n": 1}`)}
}

func send(ctx context.Context, p *push.Pusher, t queue.Task) (string, error) {
	b, err := p.HandleTask(ctx, consumer.Delivery{Task: t, Lease: queue.Lease{
		Queue: "q", TaskID: t.ID, Kind: t.Kind, Fence: 1700000000000123, Attempt: 3,
	}})
	return string(b), err
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// asks names what an error asks of the worker. Package consumer keeps its
// types to itself, so a test can only ask for their names.
func asks(err error) string {
	for ; err != nil; err = errors.Unwrap(err) {
		if name, ok := strings.CutPrefix(fmt.Sprintf("%T", err), "*consumer."); ok {
			return name
		}
	}
	return "retry"
}

func TestRequestAsTheReceiverSeesIt(t *testing.T) {
	r := newRig(t, status(204))
	tk := task()
	tk.Payload = []byte("{ \"n\":\t1 }\n\x00\xff")
	tk.ContentType = "application/x-thing"
	tk.Headers = map[string]string{
		"Traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"tracestate":  "a=1\r\nX-Evil: 1",
		"x-internal":  "not forwarded",
	}
	if _, err := send(t.Context(), r.pusher, tk); err != nil {
		t.Fatal(err)
	}
	req := r.got[0]
	key := dedupe.KeyFor("q", tk.ID, push.StepName).String()
	for name, want := range map[string]string{
		"Content-Type":      "application/x-thing",
		"Claimq-Task-Id":    "invoice.4821-send",
		"Claimq-Kind":       "mail.send",
		"Claimq-Attempt":    "3",
		"Claimq-Fence":      "1700000000000123",
		"Claimq-Queue":      "q",
		"Idempotency-Key":   `"` + key + `"`,
		"Traceparent":       "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"Tracestate":        "",
		"X-Internal":        "",
		"X-Evil":            "",
		"Webhook-Id":        "",
		"Webhook-Signature": "",
		"User-Agent":        "claimq",
	} {
		if got := req.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if req.Method != http.MethodPost || req.URL.Path != "/hook" || !bytes.Equal(r.body[0], tk.Payload) {
		t.Errorf("%s %s with body %q", req.Method, req.URL.Path, r.body[0])
	}
	if req.ContentLength != int64(len(tk.Payload)) {
		t.Errorf("content length %d", req.ContentLength)
	}
}

func TestContentTypeWhereTheTaskHasNone(t *testing.T) {
	r := newRig(t, status(200))
	for i, tc := range []struct{ payload, contentType, want string }{
		{`{"n":1}`, "", "application/json"},
		{"plain text", "", "application/octet-stream"},
		{"", "", "application/octet-stream"},
		{"x", "text/plain\r\nX-Evil: 1", "application/octet-stream"},
	} {
		tk := task()
		tk.ID = queue.TaskID(fmt.Sprintf("t-%d", i))
		tk.Payload, tk.ContentType = []byte(tc.payload), tc.contentType
		r.ledger.steps = map[string]queue.Step{}
		if _, err := send(t.Context(), r.pusher, tk); err != nil {
			t.Fatal(err)
		}
		if got := r.got[i].Header.Get("Content-Type"); got != tc.want || string(r.body[i]) != tc.payload {
			t.Errorf("%q: content type %q, body %q", tc.payload, got, r.body[i])
		}
	}
}

func TestWhatTheAnswerMeans(t *testing.T) {
	for _, tc := range []struct {
		code  int
		after string
		asks  string
		text  string
		state queue.StepState
	}{
		{200, "", "", "", queue.StepDone},
		{201, "", "", "", queue.StepDone},
		{299, "", "", "", queue.StepDone},
		{410, "", "deadLetter", "receiver answered 410 Gone: why not", queue.StepSent},
		{422, "60", "deadLetter", "receiver answered 422", queue.StepSent},
		{429, "60", "retryAfter", "receiver answered 429", queue.StepSent},
		{503, "60", "retryAfter", "receiver answered 503", queue.StepSent},
		{409, "60", "retryAfter", "receiver answered 409", queue.StepSent},
		{425, "60", "retryAfter", "receiver answered 425", queue.StepSent},
		{429, "", "retry", "receiver answered 429", queue.StepSent},
		{500, "60", "retry", "receiver answered 500", queue.StepSent},
		{404, "", "retry", "receiver answered 404 Not Found", queue.StepSent},
		{302, "", "retry", "redirects are refused", queue.StepSent},
		{307, "", "retry", "redirects are refused", queue.StepSent},
		{308, "", "retry", "redirects are refused", queue.StepSent},
		{599, "", "retry", "receiver answered 599", queue.StepSent},
	} {
		r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
			if tc.after != "" {
				w.Header().Set("Retry-After", tc.after)
			}
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(tc.code)
			fmt.Fprint(w, "why not")
		})
		_, err := r.send()
		if (err == nil) != (tc.asks == "") || err != nil && asks(err) != tc.asks {
			t.Errorf("%d: %v asks for %s, want %s", tc.code, err, asks(err), tc.asks)
		}
		if err != nil && !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%d: %v, want %q in it", tc.code, err, tc.text)
		}
		if s := r.ledger.step(); s.State != tc.state || s.Calls != 1 {
			t.Errorf("%d: step %+v, want %s", tc.code, s, tc.state)
		}
		if n := r.requests(); n != 1 {
			t.Errorf("%d: %d requests", tc.code, n)
		}
	}
}

func TestStatusListsAreConfigurable(t *testing.T) {
	r := newRig(t, status(404), func(c *push.Config) { c.DeadStatus, c.RetryStatus = []int{404}, []int{} })
	if _, err := r.send(); asks(err) != "deadLetter" {
		t.Errorf("404 asks for %s", asks(err))
	}
	r = newRig(t, status(410), func(c *push.Config) { c.DeadStatus = []int{} })
	if _, err := r.send(); asks(err) != "retry" {
		t.Errorf("410 asks for %s", asks(err))
	}
}

func TestResult(t *testing.T) {
	long := strings.Repeat("é", 100_000)
	for name, tc := range map[string]struct {
		header, body string
		want         func(string) bool
	}{
		"external ID":      {"ch_1", "ignored", func(s string) bool { return s == "ch_1" }},
		"body":             {"", `{"id":"ch_2"}`, func(s string) bool { return s == `{"id":"ch_2"}` }},
		"nothing":          {"", "", func(s string) bool { return s == "" }},
		"body at limit":    {"", long[:1024], func(s string) bool { return s == long[:1024] }},
		"body over limit":  {"", long[:1026], cut},
		"huge body":        {"", long, cut},
		"huge, but an ID":  {"ch_3", long, func(s string) bool { return s == "ch_3" }},
		"huge external ID": {long[:4000], "", cut},
	} {
		r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
			if tc.header != "" {
				w.Header().Set("X-External-Id", tc.header)
			}
			io.WriteString(w, tc.body)
		})
		got, err := r.send()
		if err != nil || !tc.want(got) || string(r.ledger.step().Result) != got {
			t.Errorf("%s: %v, %d bytes: %.60q", name, err, len(got), got)
		}
		again, err := r.send()
		if err != nil || again != got || r.requests() != 1 {
			t.Errorf("%s: a second run: %v, %.60q, %d requests", name, err, again, r.requests())
		}
	}
}

// cut reports whether s is a marked prefix in whole characters.
func cut(s string) bool {
	head, marked := strings.CutSuffix(s, " [truncated]")
	return marked && len(s) <= queue.MaxResultBytes && len(s) > queue.MaxResultBytes-4 && strings.Trim(head, "é") == ""
}

func TestRefusalIsBoundedAndPrintable(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(422)
		io.WriteString(w, "bad\nline\x1b[31m "+strings.Repeat("x", 1<<20))
	}, func(c *push.Config) { c.MaxResponseBytes = 4096 })
	_, err := r.send()
	if err == nil || len(err.Error()) > 400 || strings.ContainsAny(err.Error(), "\n\x1b") || !strings.Contains(err.Error(), "bad line") {
		t.Errorf("%d bytes: %.500q", len(err.Error()), err)
	}
}

func TestRetryAfterForms(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	for after, want := range map[string]time.Duration{
		"0":                             0,
		"1":                             time.Second,
		" 90 ":                          90 * time.Second,
		"7200":                          time.Hour,
		"99999999999999999999999999":    time.Hour,
		"-5":                            0,
		"soon":                          0,
		"1.5":                           0,
		"Mon, 04 May 2026 12:01:00 GMT": time.Minute,
		"Mon, 04 May 2026 11:00:00 GMT": 0,
		"Tue, 05 May 2026 12:00:00 GMT": time.Hour,
	} {
		r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", after)
			w.WriteHeader(503)
		}, func(c *push.Config) { c.Now = func() time.Time { return now } })
		_, err := r.send()
		refused, ok := errors.AsType[*push.RefusedError](err)
		if !ok || refused.RetryAfter != want || refused.Status != 503 {
			t.Errorf("%q: %+v, want %v", after, refused, want)
		}
		if wantAsk := map[bool]string{true: "retryAfter", false: "retry"}[want > 0]; asks(err) != wantAsk {
			t.Errorf("%q asks for %s, want %s", after, asks(err), wantAsk)
		}
	}
}

// verify is how a receiver checks a signature, written from the specification.
func verify(h http.Header, body, key []byte) bool {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", h.Get("webhook-id"), h.Get("webhook-timestamp"), body)
	want := mac.Sum(nil)
	for part := range strings.SplitSeq(h.Get("webhook-signature"), " ") {
		version, sig, _ := strings.Cut(part, ",")
		got, err := base64.StdEncoding.DecodeString(sig)
		if version == "v1" && err == nil && hmac.Equal(got, want) {
			return true
		}
	}
	return false
}

func TestSignature(t *testing.T) {
	old, next := bytes.Repeat([]byte{1}, 24), bytes.Repeat([]byte{2}, 64)
	codes := []int{500, 200}
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(codes[0])
		codes = codes[1:]
	}, func(c *push.Config) {
		c.SigningSecrets = []string{
			"whsec_" + base64.StdEncoding.EncodeToString(next), "whsec_" + base64.StdEncoding.EncodeToString(old),
		}
		c.Now = func() time.Time { return time.Unix(1700000000, 999) }
	})
	for range 2 {
		// The first is answered with 500; the second stands for a later attempt.
		_, _ = r.send()
	}
	if len(r.got) != 2 {
		t.Fatalf("%d requests", len(r.got))
	}
	for i, req := range r.got {
		if !verify(req.Header, r.body[i], old) || !verify(req.Header, r.body[i], next) {
			t.Errorf("request %d is not signed with both keys: %v", i, req.Header)
		}
		if verify(req.Header, r.body[i], bytes.Repeat([]byte{3}, 24)) || verify(req.Header, []byte("other"), old) {
			t.Errorf("request %d: anything verifies", i)
		}
		if req.Header.Get("Webhook-Timestamp") != "1700000000" {
			t.Errorf("timestamp %s", req.Header.Get("Webhook-Timestamp"))
		}
	}
	if a, b := r.got[0].Header.Get("Webhook-Id"), r.got[1].Header.Get("Webhook-Id"); a != b || a == "" || strings.Contains(a, ".") {
		t.Errorf("message IDs %q and %q", a, b)
	}
	if a, b := r.got[0].Header.Get("Idempotency-Key"), r.got[1].Header.Get("Idempotency-Key"); a != b {
		t.Errorf("keys %q and %q", a, b)
	}
}
