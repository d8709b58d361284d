package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/claimq/claimq/internal/config"
	"github.com/claimq/claimq/internal/ops"
	"github.com/claimq/claimq/metrics"
	"github.com/claimq/claimq/queue"
)

const exporterAbout = `Serves the metrics of the queues in QUEUES on OPS_ADDR, as they stand on the
server, and runs no tasks: for queues whose workers are all away at times, and
for one place to scrape instead of each worker. It only reads: it makes no
queue, and no consumer. Besides OPS_ADDR it heeds the settings of Redis, queues
and logs in config.example.env.

/healthz answers 200 while the process runs, /readyz while the last look at the
server did not fail.
`

func exporterVerb(s std, args []string) int {
	fs := flag.NewFlagSet("exporter", flag.ContinueOnError)
	untilEOF := fs.Bool("until-eof", false, "stop at the end of standard input too: for a parent process that may die")
	if code, done := parse(s, fs, args, exporterAbout); done {
		return code
	}
	cfg, err := config.LoadWorker(nil)
	if err == nil && cfg.Redis.Embedded() {
		err = errors.New("REDIS_URL: not set; name the server that the workers use, for instance redis://localhost:6379/0")
	}
	if err == nil && cfg.Ops.Addr == "" {
		err = errors.New("OPS_ADDR: off; name the address to serve metrics on, for instance 127.0.0.1:9090")
	}
	if err != nil {
		sayProblems(s, "exporter", err)
		return exitUsage
	}
	log := newLogger(s.err, cfg.Log)
	useClientLog(log)
	qs, err := openQueues(cfg)
	if err != nil {
		sayProblems(s, "exporter", err)
		return exitUsage
	}
	defer func() {
		if err := qs.close(); err != nil {
			log.Warn("closing the connections to the server", "error", err)
		}
	}()
	reg := newRegistry(qs.rdb)
	state := metrics.NewState(qs.list...)
	reg.MustRegister(state)
	if code := lookAtQueues(s, qs.list); code != exitOK {
		return code
	}
	listener, err := listenOps(string(cfg.Ops.Addr), log, ops.Config{
		Live:     func() []ops.Check { return []ops.Check{{Name: "running", OK: true}} },
		Ready:    exporterReady(state),
		Gatherer: reg, Pprof: cfg.Ops.Pprof, Logger: log,
	})
	if err != nil {
		log.Error("cannot serve metrics and health checks; set OPS_ADDR to a free address", "error", err)
		return exitFailed
	}
	defer listener.Close()
	log.Info("serving metrics and health checks", "addr", listener.Addr(), "queues", names(qs.list), "server", cfg.Redis.URL)
	ctx, stop := untilSignal(log, func() {}, s.in, *untilEOF)
	defer stop()
	<-ctx.Done()
	return exitOK
}

// lookAtQueues refuses settings that contradict what is on the server: of a
// queue with more partitions it would report a part only. A server that is away
// is waited for.
func lookAtQueues(s std, list []*queue.Queue) int {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	for _, q := range list {
		if _, err := q.Stats(ctx); errors.Is(err, queue.ErrMismatch) {
			fmt.Fprintf(s.err, "worker exporter: %v\n", err)
			return exitUsage
		}
	}
	return exitOK
}

// exporterReady says how the last look at each queue ended. One that nobody has
// asked for yet is no failure: who scrapes may wait for readiness.
func exporterReady(state *metrics.State) func() []ops.Check {
	return func() []ops.Check {
		var list []ops.Check
		for _, r := range state.Reads() {
			c := ops.Check{Name: "queue " + r.Queue, OK: r.Err == nil, Detail: "not read yet"}
			switch {
			case r.Err != nil:
				c.Detail = r.Err.Error()
			case !r.At.IsZero():
				c.Detail = fmt.Sprintf("read %v ago", time.Since(r.At).Round(time.Millisecond))
			}
			list = append(list, c)
		}
		return list
	}
}
