package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/claimq/claimq/cmd/worker/internal/demo"
	"github.com/claimq/claimq/internal/config"
	"github.com/claimq/claimq/internal/embedded"
	"github.com/claimq/claimq/queue"
)

const demoAbout = `Starts a Redis in this process, three worker processes and an HTTP receiver that
counts every request and applies the effect once for each idempotency key. Adds
tasks with stable IDs, a tenth of them twice. Kills one worker with SIGKILL in
the middle of a task and replaces it, freezes another past its lease and wakes
it. Ends with a report.

The last line is "demo: ok" (exit code 0) or "demo: failed: <why>" (1). It is ok
only if every task had one effect, none is left, no worker failed, and each
request beyond a task's first follows one by a worker that was killed or frozen
with that task in hand.
`

type demoFlags struct {
	tasks int
	input string
	redis string
	seed  uint64
}

func demoVerb(s std, args []string) int {
	began := time.Now()
	fs := flag.NewFlagSet("demo", flag.ContinueOnError)
	var f demoFlags
	fs.IntVar(&f.tasks, "tasks", 300, "how many tasks to make up")
	fs.StringVar(&f.input, "input", "", "run the tasks in this `file` of JSON Lines (id, kind, payload) instead")
	fs.StringVar(&f.redis, "redis", "", "use the server at this `URL` instead of one in this process; keys get a prefix of their own")
	fs.Uint64Var(&f.seed, "seed", 1, "chooses how long answers take and when the faults strike")
	if code, done := parse(s, fs, args, demoAbout); done {
		return code
	}
	if f.input == "" && (f.tasks < 1 || f.tasks > demo.MaxTasks) {
		fmt.Fprintf(s.err, "worker demo: -tasks: use 1 to %d, got %d\n", demo.MaxTasks, f.tasks)
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := runDemo(ctx, s, f, began)
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	if err != nil {
		// One line, whatever the error holds, for it is read by machines too.
		first, rest, _ := strings.Cut(err.Error(), "\n")
		if rest != "" {
			fmt.Fprintln(s.out, rest)
		}
		fmt.Fprintf(s.out, "demo: failed: %s\n", first)
		return exitFailed
	}
	fmt.Fprintln(s.out, "demo: ok")
	return exitOK
}

func runDemo(ctx context.Context, s std, f demoFlags, began time.Time) error {
	tasks, err := demoTasks(s, f)
	if err != nil {
		return err
	}
	url := f.redis
	if url == "" {
		srv, err := embedded.Start("127.0.0.1:0")
		if err != nil {
			return err
		}
		defer srv.Close()
		url = srv.URL()
	}
	env := demoEnv(url)
	// The queue as the workers will see it, by the same reading of the same
	// settings.
	cfg, err := config.LoadWorker(env)
	if err != nil {
		return err
	}
	useClientLog(newLogger(s.err, cfg.Log))
	qs, err := openQueues(cfg)
	if err != nil {
		return err
	}
	defer qs.close()
	if err := checkDemoServer(ctx, qs.list[0]); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "server %s, keys %s:*\n", cfg.Redis.URL, cfg.Redis.KeyPrefix)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	report, err := demo.Run(ctx, demo.Config{
		Tasks: tasks, Seed: f.seed, Queue: qs.list[0],
		Command: []string{self, "run", "-until-eof"}, Arg0: os.Args[0], Env: env,
		Out: s.out, Terminal: isTerminal(s.out), Began: began,
	})
	if err != nil {
		return err
	}
	report.Print(s.out, demo.Lease)
	if f.redis != "" {
		fmt.Fprintf(s.out, "what is left on the server of this run begins with %s: and may be deleted\n\n", cfg.Redis.KeyPrefix)
	}
	return report.Err()
}

func demoTasks(s std, f demoFlags) ([]queue.Task, error) {
	if f.input == "" {
		return demo.Generate(f.tasks)
	}
	file, err := os.Open(f.input)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	tasks, again, err := demo.ReadTasks(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.input, err)
	}
	fmt.Fprintf(s.out, "%s: %d tasks", f.input, len(tasks))
	if again > 0 {
		fmt.Fprintf(s.out, ", %d lines repeat an ID and were left out", again)
	}
	fmt.Fprintln(s.out)
	return tasks, nil
}

// checkDemoServer says in one error what a server lacks.
func checkDemoServer(ctx context.Context, q *queue.Queue) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	report, err := q.Probe(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range report.Findings {
		if f.Fatal {
			errs = append(errs, fmt.Errorf("server: %s: %s: %s", f.What, f.Detail, f.Remedy))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return q.Ensure(ctx)
}

// demoEnv is the environment of the demo's workers: what we were given, without
// any setting of ours but the one that a TLS server needs.
func demoEnv(url string) []string {
	var run [4]byte
	rand.Read(run[:]) // never fails
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return name != "REDIS_CA_FILE" && isSetting(name)
	})
	return append(env,
		"REDIS_URL="+url,
		"REDIS_KEY_PREFIX=claimq-demo-"+hex.EncodeToString(run[:]),
		"QUEUES=demo:1",
		"QUEUE_LEASE="+demo.Lease.String(),
		"QUEUE_RETENTION=10m",
		"QUEUE_MAX_PAYLOAD_BYTES=8MiB",
		fmt.Sprintf("WORKER_CONCURRENCY=%d", demo.Concurrency),
		"WORKER_BLOCK=500ms",
		"WORKER_DRAIN_TIMEOUT=5s",
		"OPS_ADDR=127.0.0.1:0",
		"LOG_FORMAT=json",
		"LOG_LEVEL=info",
	)
}

// isSetting reports whether a variable is one of ours, or would be taken for a
// misspelt one.
func isSetting(name string) bool {
	return slices.ContainsFunc(config.Names(), func(known string) bool {
		group, _, _ := strings.Cut(known, "_")
		return name == known || strings.HasPrefix(name, group+"_")
	})
}
