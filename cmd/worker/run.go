package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/internal/config"
	"github.com/claimq/claimq/internal/ops"
	"github.com/claimq/claimq/metrics"
	"github.com/claimq/claimq/queue"
)

const runAbout = `Takes tasks from the queues in QUEUES and POSTs each to the URL that PUSH_URLS
has for its kind. The answer decides: 2xx completes it, 410 and 422 make it a
dead letter, anything else is tried again. config.example.env lists every
setting.

Without REDIS_URL it starts a Redis in its own process, which keeps nothing and
is for trying things out only.

SIGTERM or SIGINT: fetches nothing more, finishes what it has, ends. A second
one: ends the running deliveries at once.
`

// probeTimeout bounds the look at the server before the start.
const probeTimeout = 5 * time.Second

func runVerb(s std, args []string) int {
	fs := flag.NewFlagSet("run", flag.ContinueOnError)
	untilEOF := fs.Bool("until-eof", false, "stop at the end of standard input too: for a parent process that may die")
	if code, done := parse(s, fs, args, runAbout); done {
		return code
	}
	cfg, err := config.LoadWorker(nil)
	if err != nil {
		sayProblems(s, "run", err)
		return exitUsage
	}
	log := newLogger(s.err, cfg.Log)
	useClientLog(log)
	for _, w := range cfg.Warnings {
		log.Warn(w)
	}
	if cfg.Redis.Embedded() {
		srv, err := useEmbedded(&cfg)
		if err != nil {
			log.Error("cannot start the embedded Redis", "error", err)
			return exitFailed
		}
		defer srv.Close()
		fmt.Fprintf(s.err, "worker run: REDIS_URL is not set: using a Redis in this process, for trying things out only; it keeps nothing\n"+
			"worker run: a producer on this machine can use REDIS_URL=%s\n", srv.URL())
		return serve(s, cfg, log, tryOut(log), *untilEOF)
	}
	return serve(s, cfg, log, nil, *untilEOF)
}

// tryOut completes tasks without delivering them, so that the embedded Redis
// can be tried without a receiver. Never with a server that keeps tasks.
func tryOut(log *slog.Logger) consumer.Handler {
	return consumer.HandlerFunc(func(_ context.Context, d consumer.Delivery) ([]byte, error) {
		log.Info("task completed without delivery, PUSH_URLS is not set",
			"task", d.Task.ID, "kind", d.Task.Kind, "bytes", len(d.Task.Payload), "attempt", d.Lease.Attempt)
		return nil, nil
	})
}

// serve builds the worker and its listener, runs them, and returns the exit
// code. Without PUSH_URLS tasks go to fallback, if there is one.
func serve(s std, cfg config.Worker, log *slog.Logger, fallback consumer.Handler, untilEOF bool) int {
	if len(cfg.Push.URLs) == 0 && fallback == nil {
		fmt.Fprintln(s.err, "worker run: PUSH_URLS: not set; say where tasks go, for instance *=http://localhost:8080/tasks")
		return exitUsage
	}
	qs, err := openQueues(cfg)
	if err != nil {
		sayProblems(s, "run", err)
		return exitUsage
	}
	defer func() {
		if err := qs.close(); err != nil {
			log.Warn("closing the connections to the server", "error", err)
		}
	}()
	db, code := useDatabase(s, cfg, log)
	if code != exitOK {
		return code
	}
	defer db.close()
	defer db.sweep(log)()
	reg := newRegistry(qs.rdb)
	observer := metrics.New(reg, qs.list...)
	handler := fallback
	if len(cfg.Push.URLs) > 0 {
		pusher, err := newPusher(cfg, observer.Ledger(db.ledger(qs.list)))
		if err != nil {
			sayProblems(s, "run", err)
			return exitUsage
		}
		defer pusher.Close()
		handler = pusher
		observer.Kinds(namedKinds(cfg.Push.URLs)...)
	}
	w, err := newWorker(cfg, qs, handler, observer, log)
	if err != nil {
		sayProblems(s, "run", err)
		return exitUsage
	}
	observer.Watch(w.Status)
	if fallback == nil { // the embedded Redis has nothing to say for itself
		if code := lookAtServer(qs.list[0], log); code != exitOK {
			return code
		}
	}
	if code := makeQueues(s, qs.list, log); code != exitOK {
		return code
	}
	if cfg.Ops.Addr != "" {
		listener, err := listenOps(string(cfg.Ops.Addr), log, ops.Config{
			Live: liveness(w.Status), Ready: readiness(w.Status), Gatherer: reg, Pprof: cfg.Ops.Pprof, Logger: log,
		})
		if err != nil {
			log.Error("cannot serve metrics and health checks; set OPS_ADDR to a free address or off", "error", err)
			return exitFailed
		}
		defer listener.Close()
		log.Info("serving metrics and health checks", "addr", listener.Addr())
	}
	ctx, stop := untilSignal(log, w.Abort, s.in, untilEOF)
	defer stop()
	st := w.Status()
	log.Info("worker started", "consumer", st.Consumer, "slots", st.Slots, "queues", names(qs.list), "server", cfg.Redis.URL)
	return ended(s, log, w.Run(ctx))
}

// namedKinds are the kinds that the settings name in full.
func namedKinds(routes config.PushRoutes) []string {
	var kinds []string
	for _, r := range routes {
		if !strings.HasSuffix(r.Pattern, "*") {
			kinds = append(kinds, r.Pattern)
		}
	}
	return kinds
}

// ended words the end of Run.
func ended(s std, log *slog.Logger, err error) int {
	abandoned, ok := errors.AsType[*consumer.AbandonedError](err)
	switch {
	case err == nil:
		log.Info("worker stopped, nothing left in hand")
		return exitOK
	case ok:
		log.Error("worker stopped with work in hand; it comes back elsewhere when its lease ends",
			"running", abandoned.Running, "unsettled", abandoned.Unsettled)
		return exitAbandoned
	case errors.Is(err, queue.ErrMismatch), errors.Is(err, queue.ErrInvalidConfig):
		fmt.Fprintf(s.err, "worker run: %v\n", err)
		return exitUsage
	default:
		log.Error("worker failed", "error", err)
		return exitFailed
	}
}

// lookAtServer refuses a server that cannot do what is needed. One that is
// away is waited for, by the worker itself.
func lookAtServer(q *queue.Queue, log *slog.Logger) int {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	report, err := q.Probe(ctx)
	if err != nil {
		log.Warn("the server does not answer yet; going on", "error", err)
		return exitOK
	}
	for _, f := range report.Findings {
		level := slog.LevelWarn
		if f.Fatal {
			level = slog.LevelError
		}
		log.Log(ctx, level, "server: "+f.What, "detail", f.Detail, "remedy", f.Remedy)
	}
	if report.Fatal() {
		return exitFailed
	}
	return exitOK
}

// makeQueues makes what the queues need on the server, and refuses settings
// that contradict what is there. A server that is away is waited for, by the
// worker itself.
func makeQueues(s std, list []*queue.Queue, log *slog.Logger) int {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	for _, q := range list {
		switch err := q.Ensure(ctx); {
		case errors.Is(err, queue.ErrMismatch):
			fmt.Fprintf(s.err, "worker run: %v\n", err)
			return exitUsage
		case err != nil:
			log.Warn("the queue is not made yet; going on", "queue", q.Name(), "error", err)
		}
	}
	return exitOK
}

// listenOps starts the listener. A loopback address that is taken, most likely
// by another worker on this machine, is given up for a free port: nobody else
// can have been told of it. Any other address is what somebody scrapes.
func listenOps(addr string, log *slog.Logger, cfg ops.Config) (*ops.Server, error) {
	srv, err := ops.Start(addr, cfg)
	host, _, _ := net.SplitHostPort(addr)
	if !errors.Is(err, syscall.EADDRINUSE) || host != "localhost" && !net.ParseIP(host).IsLoopback() {
		return srv, err
	}
	log.Warn("OPS_ADDR is taken, using a free port; set it to an address of this worker's own, or to off", "taken", addr)
	return ops.Start(net.JoinHostPort(host, "0"), cfg)
}

func names(qs []*queue.Queue) []string {
	var out []string
	for _, q := range qs {
		out = append(out, q.Name())
	}
	return out
}
