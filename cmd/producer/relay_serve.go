package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/lmittmann/tint"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/redis/go-redis/v9"
	"golang.org/x/term"

	"github.com/claimq/claimq/internal/config"
	"github.com/claimq/claimq/internal/ops"
	"github.com/claimq/claimq/metrics"
	"github.com/claimq/claimq/producer/outbox"
	"github.com/claimq/claimq/queue"
)

// serveRelay runs one relay for each queue until stop ends, or until one of
// them finds something that no waiting mends.
func serveRelay(stop, abort context.Context, cfg config.Relay, pool *pgxpool.Pool, client *redis.Client, queues []*queue.Queue, log *slog.Logger) int {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	metrics.Client(reg, client)
	rc := relayConfig(cfg)
	rc.Producer.Observer = metrics.NewProducer(reg, queues...)
	seen := newRounds(reg, log, queues, 2*rc.Timeout+rc.Poll)
	var relays []*outbox.Relay
	for _, q := range queues {
		rc.Observer = seen.of(q.Name())
		relay, err := outbox.NewRelay(pool, q, rc)
		if err != nil {
			log.Error("cannot relay", "error", err)
			return exitUsage
		}
		relays = append(relays, relay)
	}
	reg.MustRegister(newBacklog(func(ctx context.Context) ([]standing, error) { return standings(ctx, cfg, pool) }))
	if cfg.Ops.Addr != "" {
		listener, err := ops.Start(string(cfg.Ops.Addr), ops.Config{
			Live: seen.live, Ready: seen.ready, Gatherer: reg, Pprof: cfg.Ops.Pprof, Logger: log,
		})
		if err != nil {
			log.Error("cannot serve metrics and health checks; set OPS_ADDR to a free address", "error", err)
			return exitFailed
		}
		defer listener.Close()
		log.Info("serving metrics and health checks", "addr", listener.Addr())
	}
	log.Info("relaying", "queues", seen.names, "database", cfg.Postgres.URL, "server", cfg.Redis.URL)
	warnOfOthers(stop, cfg, pool, log)
	err := runAll(stop, abort, relays)
	seen.sumUp()
	switch {
	case errors.Is(err, errAborted):
		log.Warn("stopped at once; batches in hand are sent again")
		return exitFailed
	case err != nil:
		log.Error("cannot go on", "error", err)
		return exitCode(exitFailed, err)
	}
	log.Info("stopped")
	return exitDone
}

var errAborted = errors.New("told twice to stop")

// runAll runs the relays and returns when all have ended; with the first error
// when one had any, after which the others are stopped too.
func runAll(stop, abort context.Context, relays []*outbox.Relay) error {
	ctx, cancel := context.WithCancelCause(stop)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, relay := range relays {
		wg.Go(func() {
			if err := relay.Run(ctx); err != nil {
				cancel(err)
			}
		})
	}
	ended := make(chan struct{})
	go func() {
		wg.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-abort.Done():
		return errAborted
	}
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// warnOfOthers names queues that have tasks in the outbox and no relay here:
// their names may be misspelt. The database being away is seen by the relays.
func warnOfOthers(ctx context.Context, cfg config.Relay, pool *pgxpool.Pool, log *slog.Logger) {
	list, err := standings(ctx, cfg, pool)
	if err != nil {
		return
	}
	for _, s := range list {
		if !s.Relayed {
			log.Warn("the outbox has tasks for a queue that is not in QUEUES", "queue", s.Queue, "unsent", s.Unsent,
				"oldest", time.Duration(s.LagSeconds*float64(time.Second)).Round(time.Second).String())
		}
		if s.Refused > 0 {
			log.Warn("the outbox has refused tasks; see outbox_refused", "queue", s.Queue, "refused", s.Refused)
		}
	}
}

// newLogger writes text on a terminal and JSON elsewhere, unless told which.
func newLogger(w io.Writer, c config.Log) *slog.Logger {
	f, ok := w.(*os.File)
	tty := ok && term.IsTerminal(int(f.Fd()))
	if c.Format == config.LogText || c.Format == config.LogAuto && tty {
		return slog.New(tint.NewTextHandler(w, &tint.Options{Level: c.Level, TimeFormat: time.TimeOnly, NoColor: !tty}))
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: c.Level}))
}

// logLines logs what is written, line by line.
type logLines struct{ log *slog.Logger }

func (l logLines) Write(b []byte) (int, error) {
	l.log.Info(strings.TrimSpace(string(b)))
	return len(b), nil
}
