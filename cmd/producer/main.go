// Command producer adds tasks to a queue: many from JSON Lines, one from flags,
// or, as `producer relay`, those that database transactions left in an outbox.
//
// It may be run again after it was stopped or killed: a task whose ID is known
// already is counted as a duplicate and adds nothing.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/internal/config"
	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/queue"
)

// Exit codes.
const (
	exitDone       = 0
	exitFailed     = 1 // some tasks were not added, or it was stopped early
	exitUsage      = 2 // flags or configuration
	exitIndefinite = 3 // some tasks may or may not have been added
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == "relay" {
		return relayVerb(args[1:], stdout, stderr)
	}
	opt, err := parseFlags(args, piped(stdin), stdout)
	if errors.Is(err, errHelp) {
		return exitDone
	}
	if err != nil {
		fmt.Fprintln(stderr, "producer:", err)
		return exitUsage
	}
	cfg, err := config.LoadProducer(nil)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return exitUsage
	}
	for _, w := range cfg.Warnings {
		fmt.Fprintln(stderr, "warning:", w)
	}
	if opt.queue == "" {
		opt.queue = cfg.Queue.Queues[0].Name
	}
	redis.SetLogger(quiet{})
	client := redis.NewClient(cfg.RedisOptions())
	defer client.Close()
	q, err := queue.New(cfg.Queue.For(opt.queue, cfg.Redis.KeyPrefix, client))
	if err != nil {
		fmt.Fprintln(stderr, err)
		return exitUsage
	}
	defer q.Close()
	p, err := producer.New(q, policy(cfg.Produce))
	if err != nil {
		fmt.Fprintln(stderr, err)
		return exitUsage
	}
	in, err := opt.open(stdin, int(cfg.Queue.MaxPayload))
	if err != nil {
		fmt.Fprintln(stderr, "producer:", err)
		return exitUsage
	}
	defer in.Close()

	stop, abort, release := signals(stderr)
	defer release()
	if err := ensure(stop, q, cfg.Produce); err != nil {
		fmt.Fprintf(stderr, "producer: %s: %v\n", cfg.Redis.URL, err)
		if errors.Is(err, queue.ErrMismatch) {
			return exitUsage
		}
		return exitFailed
	}
	r := &report{Queue: opt.queue, single: opt.single()}
	pub := &publisher{
		producer: p, in: in, report: r, shown: newProgress(stderr, in.size),
		batch: cfg.Produce.Batch, batchBytes: int(cfg.Produce.BatchBytes),
	}
	pub.run(stop, abort)
	if err := r.write(stdout, opt.json); err != nil {
		fmt.Fprintln(stderr, "producer: the summary could not be written:", err)
		return max(r.exitCode(), exitFailed)
	}
	return r.exitCode()
}

// piped reports whether r is a pipe or a file that the shell put there.
func piped(r io.Reader) bool {
	f, ok := r.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && (info.Mode()&os.ModeNamedPipe != 0 || info.Mode().IsRegular())
}

// quiet drops what the client would print: every error it has is returned too.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// ensure finds out before anything is read whether the server is there and the
// queue is the one that was configured.
func ensure(ctx context.Context, q *queue.Queue, c config.Produce) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	return q.Ensure(ctx)
}

func policy(c config.Produce) producer.Config {
	retries := c.MaxRetries
	if retries == 0 {
		retries = -1 // none; zero would be the default
	}
	return producer.Config{
		Timeout: c.Timeout, MaxRetries: retries, Batch: c.Batch, BatchBytes: int(c.BatchBytes),
		Durability: queue.Durability{Replicas: c.Replicas, Fsync: c.Fsync, Within: c.DurableWithin},
	}
}
