package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// request is one POST as the receiver saw it. Every one is kept, also those
// that break off.
type request struct {
	seq     int // from 1, in the order of arrival
	at      time.Time
	worker  string // by the URL that was given to it alone
	task    string
	fence   uint64
	attempt int
	key     string // idempotency key
	payload bool   // arrived whole
	done    bool   // answered
}

// receiver stands for the other side: it counts every request and applies the
// effect once for each idempotency key.
type receiver struct {
	ln    net.Listener
	srv   *http.Server
	ended chan struct{}
	quit  chan struct{} // ends every wait

	// arrived is asked about each request and may have it held until the
	// returned channel is closed. It must not block.
	arrived func(request) <-chan struct{}

	mu       sync.Mutex
	rng      *rand.Rand
	min, max time.Duration // how long an answer takes
	requests []*request
	byTask   map[string][]*request
	effects  map[string]string // idempotency key → external ID
	keys     map[string]int    // task → effects
	odd      []string          // requests that are none of ours
}

// startReceiver serves on a port of the system's choice, until close.
func startReceiver(seed uint64, low, high time.Duration, arrived func(request) <-chan struct{}) (*receiver, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("receiver: %w", err)
	}
	r := &receiver{
		ln:      ln,
		ended:   make(chan struct{}),
		quit:    make(chan struct{}),
		arrived: arrived,
		rng:     rand.New(rand.NewPCG(seed, 2)),
		min:     low, max: high,
		byTask:  make(map[string][]*request),
		effects: make(map[string]string),
		keys:    make(map[string]int),
	}
	r.srv = &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second}
	go func() {
		defer close(r.ended)
		// Serve ends with an error that says that close was called.
		_ = r.srv.Serve(ln)
	}()
	return r, nil
}

// url is where one worker delivers to; the path tells workers apart.
func (r *receiver) url(worker string) string {
	return "http://" + r.ln.Addr().String() + "/" + worker
}

// close ends every request and the goroutine.
func (r *receiver) close() {
	close(r.quit)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := r.srv.Shutdown(ctx); err != nil {
		r.srv.Close()
	}
	<-r.ended
}

// ServeHTTP counts, applies the effect, and only then waits: whoever dies
// while it waits leaves an effect behind that nobody has recorded yet.
func (r *receiver) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	req, latency, err := r.note(hr)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, err = io.Copy(io.Discard, hr.Body)
	if err != nil {
		return // the sender is gone; the request stays counted, without effect
	}
	id := r.apply(req)
	hold := r.arrived(*req)
	timer := time.NewTimer(latency)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.quit:
	}
	if hold != nil {
		select {
		case <-hold:
		case <-r.quit:
		}
	}
	w.Header().Set("X-External-Id", id)
	w.WriteHeader(http.StatusOK)
	r.mu.Lock()
	defer r.mu.Unlock()
	req.done = true
}

// note records a request as soon as its head is there.
func (r *receiver) note(hr *http.Request) (*request, time.Duration, error) {
	req := &request{
		at:     time.Now(),
		worker: strings.TrimPrefix(hr.URL.Path, "/"),
		task:   hr.Header.Get("Claimq-Task-Id"),
		key:    hr.Header.Get("Idempotency-Key"),
	}
	fence, errF := strconv.ParseUint(hr.Header.Get("Claimq-Fence"), 10, 64)
	attempt, errA := strconv.Atoi(hr.Header.Get("Claimq-Attempt"))
	req.fence, req.attempt = fence, attempt
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := errors.Join(errF, errA); err != nil || req.task == "" || req.key == "" || hr.Method != http.MethodPost {
		r.odd = append(r.odd, hr.Method+" "+hr.URL.Path)
		return nil, 0, fmt.Errorf("not a task: id %q, key %q: %w", req.task, req.key, err)
	}
	r.requests = append(r.requests, req)
	req.seq = len(r.requests)
	r.byTask[req.task] = append(r.byTask[req.task], req)
	return req, r.min + time.Duration(r.rng.Int64N(int64(r.max-r.min)+1)), nil
}

// apply makes the effect happen unless its key is known, and names it.
func (r *receiver) apply(req *request) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	req.payload = true
	id, known := r.effects[req.key]
	if !known {
		id = fmt.Sprintf("effect-%d", len(r.effects)+1)
		r.effects[req.key] = id
		r.keys[req.task]++
	}
	return id
}

// counts returns how many requests and effects there were.
func (r *receiver) counts() (requests, effects int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.requests), len(r.effects)
}

// sentBy returns the requests of one worker.
func (r *receiver) sentBy(worker string) []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []request
	for _, req := range r.requests {
		if req.worker == worker {
			out = append(out, *req)
		}
	}
	return out
}

// snapshot returns a copy of everything, for the report.
func (r *receiver) snapshot() (byTask map[string][]request, effects map[string]int, odd []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	byTask = make(map[string][]request, len(r.byTask))
	effects = make(map[string]int, len(r.keys))
	for id, list := range r.byTask {
		for _, req := range list {
			byTask[id] = append(byTask[id], *req)
		}
	}
	for id, n := range r.keys {
		effects[id] = n
	}
	return byTask, effects, append([]string(nil), r.odd...)
}
