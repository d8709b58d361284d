package e2e

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

// request is one POST as the receiver saw it.
type request struct {
	worker  string
	task    string
	attempt int
	fence   uint64
	key     string
	body    string
	at      time.Time
	ended   time.Time // answered, or given up by the sender
	status  int       // 0 while it waits
}

// receiver is the other side. It keeps every request.
type receiver struct {
	srv  *httptest.Server
	quit chan struct{}

	mu       sync.Mutex
	requests []*request
	answer   func(request) (status int, wait <-chan struct{})
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{quit: make(chan struct{}), answer: func(request) (int, <-chan struct{}) { return 200, nil }}
	r.srv = httptest.NewServer(r)
	t.Cleanup(func() {
		close(r.quit)
		r.srv.Close()
	})
	return r
}

func (r *receiver) url(worker string) string { return r.srv.URL + "/" + worker }

// answers sets what the receiver says, and until when it waits before it does.
func (r *receiver) answers(f func(request) (status int, wait <-chan struct{})) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	body, err := io.ReadAll(hr.Body)
	if err != nil {
		return
	}
	attempt, _ := strconv.Atoi(hr.Header.Get("Claimq-Attempt"))
	fence, _ := strconv.ParseUint(hr.Header.Get("Claimq-Fence"), 10, 64)
	req := &request{
		worker: strings.TrimPrefix(hr.URL.Path, "/"), task: hr.Header.Get("Claimq-Task-Id"), attempt: attempt, fence: fence,
		key: hr.Header.Get("Idempotency-Key"), body: string(body), at: time.Now(),
	}
	r.mu.Lock()
	r.requests = append(r.requests, req)
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
	req.ended, req.status = time.Now(), status
	r.mu.Unlock()
	w.Header().Set("X-External-Id", "ext-"+copied.task)
	w.WriteHeader(status)
}

// of returns the requests for a task, in order of arrival.
func (r *receiver) of(task string) []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []request
	for _, q := range r.requests {
		if q.task == task {
			out = append(out, *q)
		}
	}
	return out
}

// byTask returns all requests, by task and in order of arrival.
func (r *receiver) byTask() map[string][]request {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string][]request{}
	for _, q := range r.requests {
		out[q.task] = append(out[q.task], *q)
	}
	return out
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.requests)
}
