package claimqtest

import (
	"context"

	"github.com/claimq/claimq/consumer"
)

// around makes points of a handler's start and return.
func (w *Worker) around(h consumer.Handler) consumer.Handler {
	if r, ok := h.(consumer.Router); ok {
		return watchedRouter{watched{w, h}, r}
	}
	return watched{w, h}
}

// watched is a handler whose runs are seen.
type watched struct {
	w *Worker
	consumer.Handler
}

func (h watched) HandleTask(ctx context.Context, d consumer.Delivery) ([]byte, error) {
	h.w.begins(ctx)
	defer h.w.ends(ctx)
	nothing := func(bool) error { return nil }
	if err := h.w.cross("the start of the handler", seamHandler, nothing); err != nil {
		return nil, err
	}
	result, err := h.Handler.HandleTask(ctx, d)
	if dead := h.w.cross("the return of the handler", seamHandler, nothing); dead != nil {
		return nil, dead
	}
	return result, err
}

// watchedRouter is a Router whose handlers are.
type watchedRouter struct {
	watched
	router consumer.Router
}

func (r watchedRouter) Route(kind string) (consumer.Route, bool) {
	route, ok := r.router.Route(kind)
	if ok {
		route.Handler = watched{r.w, route.Handler}
	}
	return route, ok
}

func (w *Worker) begins(ctx context.Context) {
	tr := w.tr
	tr.handlers.Add(1)
	tr.mu.Lock()
	w.running++
	if !tr.judged {
		tr.runs++
	}
	tr.mu.Unlock()
	w.contextsMu.Lock()
	w.contexts[ctx] = true
	w.contextsMu.Unlock()
}

func (w *Worker) ends(ctx context.Context) {
	tr := w.tr
	w.contextsMu.Lock()
	delete(w.contexts, ctx)
	w.contextsMu.Unlock()
	tr.mu.Lock()
	w.running--
	tr.mu.Unlock()
	tr.handlers.Done()
}
