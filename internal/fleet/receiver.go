package fleet

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Request is one POST as the receiver saw it.
type Request struct {
	Worker  string
	Task    string
	Attempt int
	Fence   uint64
	Key     string
	Body    string
	At      time.Time
	Ended   time.Time // answered, or given up by the sender
	Status  int       // 0 while it waits
}

// Answer is what the receiver says to a request, and until when it waits
// before it does; nil: it does not wait.
type Answer func(Request) (status int, wait <-chan struct{})

// Receiver is the other side. It keeps every request.
type Receiver struct {
	srv  *httptest.Server
	quit chan struct{}

	mu       sync.Mutex
	requests int
	byTask   map[string][]*Request
	answer   Answer
}

// NewReceiver starts a receiver that says 200 at once; it ends with the test.
func NewReceiver(tb testing.TB) *Receiver {
	tb.Helper()
	r := &Receiver{
		quit: make(chan struct{}), byTask: map[string][]*Request{},
		answer: func(Request) (int, <-chan struct{}) { return http.StatusOK, nil },
	}
	r.srv = httptest.NewServer(r)
	tb.Cleanup(func() {
		close(r.quit)
		r.srv.Close()
	})
	return r
}

// URL is where the worker of that name pushes to.
func (r *Receiver) URL(worker string) string { return r.srv.URL + "/" + worker }

// Answers sets what the receiver says from now on.
func (r *Receiver) Answers(f Answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
}

func (r *Receiver) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	body, err := io.ReadAll(hr.Body)
	if err != nil {
		return
	}
	attempt, _ := strconv.Atoi(hr.Header.Get("Claimq-Attempt"))
	fence, _ := strconv.ParseUint(hr.Header.Get("Claimq-Fence"), 10, 64)
	req := &Request{
		Worker: strings.TrimPrefix(hr.URL.Path, "/"), Task: hr.Header.Get("Claimq-Task-Id"), Attempt: attempt, Fence: fence,
		Key: hr.Header.Get("Idempotency-Key"), Body: string(body), At: time.Now(),
	}
	r.mu.Lock()
	r.requests++
	r.byTask[req.Task] = append(r.byTask[req.Task], req)
	answer := r.answer
	copied := *req
	r.mu.Unlock()

	status, wait := answer(copied)
	if wait != nil {
		select {
		case <-wait:
		case <-hr.Context().Done():
		case <-r.quit:
		}
	}
	r.mu.Lock()
	req.Ended, req.Status = time.Now(), status
	r.mu.Unlock()
	w.Header().Set("X-External-Id", "ext-"+copied.Task)
	w.WriteHeader(status)
}

// Of returns the requests for a task, in order of arrival.
func (r *Receiver) Of(task string) []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return copies(r.byTask[task])
}

// ByTask returns all requests, by task and in order of arrival.
func (r *Receiver) ByTask() map[string][]Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string][]Request, len(r.byTask))
	for task, all := range r.byTask {
		out[task] = copies(all)
	}
	return out
}

// Count returns the number of requests so far.
func (r *Receiver) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests
}

func copies(all []*Request) []Request {
	out := make([]Request, len(all))
	for i, q := range all {
		out[i] = *q
	}
	return out
}
