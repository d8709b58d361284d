package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/claimq/claimq/queue"
)

// Delivery is what a handler is given: the task and the lease under which it
// runs.
type Delivery struct {
	Task   queue.Task
	Lease  queue.Lease
	Source Source // how the task came to this worker
}

// Handler runs one task. It settles by what it returns: nil completes the
// task and keeps result beside its done mark (nil, or at most
// queue.MaxResultBytes); an error made by DeadLetter, RetryAfter or Release
// does what its name says; any other error is a failure and the task is tried
// again with backoff.
//
// ctx ends, with a cause, once the worker may no longer act for the task:
// queue.ErrLeaseLost, ErrTaskTimeout or ErrDraining.
type Handler interface {
	HandleTask(ctx context.Context, d Delivery) (result []byte, err error)
}

// HandlerFunc is a function that is a Handler.
type HandlerFunc func(ctx context.Context, d Delivery) (result []byte, err error)

// HandleTask calls f.
func (f HandlerFunc) HandleTask(ctx context.Context, d Delivery) ([]byte, error) { return f(ctx, d) }

// Router is a Handler that knows which kinds it has handlers for. A task of
// any other kind is put off for a worker that has one. A Handler that is not a
// Router is given every kind.
type Router interface {
	Handler
	// Route returns the handler of a kind. It is called for every delivery,
	// possibly at the same time.
	Route(kind string) (Route, bool)
}

// Route is how tasks of one kind are run.
type Route struct {
	Handler Handler
	Timeout time.Duration // zero: Config.Timeout
}

// KindConfig is what may differ by kind.
type KindConfig struct {
	Timeout time.Duration // of one handler run; zero: Config.Timeout
}

// Mux sends each task to the handler of its kind. The zero value is ready for
// use; it must not be copied. What is wrong with a registration is kept and
// reported by New, all at once.
type Mux struct {
	mu         sync.RWMutex
	kinds      map[string]Route
	fallback   *Route
	middleware []func(Handler) Handler
	errs       []error

	built         map[string]Route // with middleware; nil: to be built again
	builtFallback *Route
}

// Handle registers a typed handler for a kind: the payload is decoded as JSON
// into a T, except that []byte, string and json.RawMessage take it as it is
// (see queue.NewTask). A payload that does not decode is a dead letter at
// once, with an error that says where but quotes nothing of it. At most one
// KindConfig may be given.
func Handle[T any](m *Mux, kind string, h func(ctx context.Context, l queue.Lease, in T) error, opts ...KindConfig) {
	if h == nil {
		m.problem(kind, "the handler is nil")
		return
	}
	HandleTask(m, kind, func(ctx context.Context, d Delivery) ([]byte, error) {
		var in T
		if err := decode(d.Task.Payload, &in); err != nil {
			return nil, err
		}
		return nil, h(ctx, d.Lease, in)
	}, opts...)
}

// HandleTask registers a handler for a kind that gets the task as it is and
// may return a result. At most one KindConfig may be given.
func HandleTask(m *Mux, kind string, h HandlerFunc, opts ...KindConfig) {
	switch {
	case kind == "" || len(kind) > queue.MaxKindBytes:
		m.problem(kind, fmt.Sprintf("a kind has 1 to %d bytes", queue.MaxKindBytes))
		return
	case h == nil:
		m.problem(kind, "the handler is nil")
		return
	}
	r, ok := m.route(kind, h, opts)
	if !ok {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.kinds[kind]; ok {
		m.errs = append(m.errs, muxError(kind, "registered twice"))
		return
	}
	if m.kinds == nil {
		m.kinds = make(map[string]Route)
	}
	m.kinds[kind] = r
	m.built = nil
}

// Default registers a handler for every kind that has none of its own.
func (m *Mux) Default(h HandlerFunc, opts ...KindConfig) {
	const kind = "(default)"
	if h == nil {
		m.problem(kind, "the handler is nil")
		return
	}
	r, ok := m.route(kind, h, opts)
	if !ok {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fallback != nil {
		m.errs = append(m.errs, muxError(kind, "registered twice"))
		return
	}
	m.fallback = &r
	m.built = nil
}

// Use adds middleware around every handler, also those registered before. The
// first added is the outermost. A panic of a handler reaches it as an error
// (*PanicError); runtime.Goexit runs only its deferred functions.
func (m *Mux) Use(middleware func(Handler) Handler) {
	if middleware == nil {
		m.problem("(middleware)", "it is nil")
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.middleware = append(m.middleware, middleware)
	m.built = nil
}

// Handles reports whether the mux has a handler for a kind, its default
// included.
func (m *Mux) Handles(kind string) bool {
	_, ok := m.Route(kind)
	return ok
}

// Route returns the handler of a kind with its middleware.
func (m *Mux) Route(kind string) (Route, bool) {
	m.mu.RLock()
	if m.built != nil {
		defer m.mu.RUnlock()
		return m.lookUp(kind)
	}
	m.mu.RUnlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.built == nil {
		m.build()
	}
	return m.lookUp(kind)
}

// HandleTask runs d by the handler of its kind.
func (m *Mux) HandleTask(ctx context.Context, d Delivery) ([]byte, error) {
	r, ok := m.Route(d.Task.Kind)
	if !ok {
		return nil, fmt.Errorf("no handler for kind %q", d.Task.Kind)
	}
	return r.Handler.HandleTask(ctx, d)
}

func (m *Mux) lookUp(kind string) (Route, bool) {
	if r, ok := m.built[kind]; ok {
		return r, true
	}
	if m.builtFallback != nil {
		return *m.builtFallback, true
	}
	return Route{}, false
}

func (m *Mux) build() {
	wrap := func(r Route) Route {
		r.Handler = recovering{r.Handler} // so that middleware sees a panic as an error
		for i := len(m.middleware) - 1; i >= 0; i-- {
			r.Handler = m.middleware[i](r.Handler)
		}
		return r
	}
	m.built, m.builtFallback = make(map[string]Route, len(m.kinds)), nil
	for kind, r := range m.kinds {
		m.built[kind] = wrap(r)
	}
	if m.fallback != nil {
		r := wrap(*m.fallback)
		m.builtFallback = &r
	}
}

func (m *Mux) route(kind string, h Handler, opts []KindConfig) (Route, bool) {
	if len(opts) > 1 {
		m.problem(kind, "more than one KindConfig")
		return Route{}, false
	}
	r := Route{Handler: h}
	for _, o := range opts {
		r.Timeout = o.Timeout
	}
	if r.Timeout < 0 {
		m.problem(kind, fmt.Sprintf("Timeout: use a positive duration, got %v", r.Timeout))
		return Route{}, false
	}
	return r, true
}

func (m *Mux) problem(kind, what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.errs = append(m.errs, muxError(kind, what))
}

func muxError(kind, what string) error {
	return &queue.FieldError{Field: fmt.Sprintf("Handler: kind %q", kind), Remedy: what, Kind: queue.ErrInvalidConfig}
}

func (m *Mux) problems() error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	errs := m.errs
	if len(m.kinds) == 0 && m.fallback == nil {
		errs = append(errs[:len(errs):len(errs)], &queue.FieldError{Field: "Handler", Remedy: "the mux has no handlers", Kind: queue.ErrInvalidConfig})
	}
	return errors.Join(errs...)
}
