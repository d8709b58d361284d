// Package ops serves what an operator and a scheduler ask of a process, on one
// private listener:
//
//	/healthz        200 while every loop moves, else 503. Never asks Redis: a
//	                fleet must not be restarted because its server is down.
//	/readyz         200 while work is accepted and the server answers, else 503.
//	/metrics        Prometheus.
//	/debug/pprof/   only when enabled.
//
// The probes list their checks with ?verbose, and always when one fails.
//
// The listener belongs on a private address: none of it asks who is calling.
package ops

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Time limits of the listener. A probe answers from memory, so the write limit
// is that of a scrape (and of a profile, which asks for its own time).
const (
	readTimeout     = 5 * time.Second
	writeTimeout    = 15 * time.Second
	idleTimeout     = 2 * time.Minute
	maxHeaderBytes  = 16 << 10
	shutdownTimeout = 2 * time.Second
	maxScrapes      = 4 // at a time; more are refused
)

// Check is one thing that a probe looks at.
type Check struct {
	Name   string
	OK     bool
	Detail string // why not, or how it stands
}

// Config says what is served. Live and Ready must answer from memory, without
// waiting for anything.
type Config struct {
	Live     func() []Check
	Ready    func() []Check
	Gatherer prometheus.Gatherer
	Pprof    bool
	Logger   *slog.Logger // default: none
}

// Handler returns the handler for the listener.
func Handler(cfg Config) http.Handler {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", probe(cfg.Live))
	mux.Handle("GET /readyz", probe(cfg.Ready))
	if cfg.Gatherer != nil {
		mux.Handle("GET /metrics", promhttp.HandlerFor(cfg.Gatherer, promhttp.HandlerOpts{
			MaxRequestsInFlight: maxScrapes,
			EnableOpenMetrics:   true, // the only text form with exemplars
			CoalesceGather:      true,
			ErrorLog:            slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelWarn),
			ErrorHandling:       promhttp.ContinueOnError, // one failing collector must not blind the rest
			Timeout:             writeTimeout - time.Second,
		}))
	}
	if cfg.Pprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", unhurried(pprof.Profile))
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", unhurried(pprof.Trace))
	}
	return mux
}

// probe answers 200 when every check is OK, else 503 with the list.
func probe(checks func() []Check) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var list []Check
		if checks != nil {
			list = checks()
		}
		ok := true
		var b strings.Builder
		for _, c := range list {
			mark := "+"
			if !c.OK {
				mark, ok = "-", false
			}
			fmt.Fprintf(&b, "[%s] %s", mark, c.Name)
			if c.Detail != "" {
				fmt.Fprintf(&b, ": %s", c.Detail)
			}
			b.WriteByte('\n')
		}
		h := w.Header()
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("Cache-Control", "no-store")
		if !ok {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		if _, verbose := r.URL.Query()["verbose"]; verbose || !ok {
			fmt.Fprint(w, b.String())
		}
		if ok {
			fmt.Fprintln(w, "ok")
		}
	})
}

// unhurried lifts the write limit for a handler that is asked to take its
// time. The profile package reads the request's "seconds" itself.
func unhurried(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		// An error means that there was no limit to lift.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
		h(w, r)
	}
}

// Server is a running listener.
type Server struct {
	ln   net.Listener
	srv  *http.Server
	done chan error
}

// Start listens on addr and serves in one goroutine, which ends with Close.
func Start(addr string, cfg Config) (*Server, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("ops listener: %w", err)
	}
	s := &Server{
		ln: ln,
		srv: &http.Server{
			Handler:           Handler(cfg),
			ReadTimeout:       readTimeout,
			ReadHeaderTimeout: readTimeout,
			WriteTimeout:      writeTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeaderBytes,
		},
		done: make(chan error, 1),
	}
	logger := cfg.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	s.srv.ErrorLog = slog.NewLogLogger(logger.Handler(), slog.LevelWarn)
	go func() { s.done <- s.srv.Serve(ln) }()
	return s, nil
}

// Addr is the address listened on, with the port that the system chose.
func (s *Server) Addr() string { return s.ln.Addr().String() }

// Close stops listening, gives running answers a moment, and returns when the
// goroutine has ended.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if err := s.srv.Shutdown(ctx); err != nil {
		s.srv.Close()
	}
	if err := <-s.done; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
