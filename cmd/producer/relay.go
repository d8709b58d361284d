package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/internal/config"
	"github.com/claimq/claimq/producer/outbox"
	"github.com/claimq/claimq/queue"
)

const relayUsage = `usage:
  producer relay                      move tasks from the outbox to the queues in QUEUES, until told to stop
  producer relay -migrate             make the tables of the outbox, or bring them up to date
  producer relay -sql                 print what -migrate runs on a database without an outbox
  producer relay -status [-json]      show what waits in the outbox, and what was refused
  producer relay -resend-since D      send what was sent within the last D (such as 10m) again, after
      [-json]                         Redis has forgotten something; what it still knows is not added
  producer relay -retry-refused       put refused tasks back, after what they were refused for was changed

An outbox is a table in PostgreSQL to which transactions add tasks; see docs/outbox.md. Any
number of relays may run at once. The servers and queues come from the environment: POSTGRES_URL,
REDIS_URL and what config.example.env lists. Metrics and health checks are on OPS_ADDR.

Exit code: 0 done, 1 failed, 2 usage or configuration, 3 some tasks may or may not have been added
(run it again).

flags:
`

// askTimeout is how long one question to the database may take.
const askTimeout = 15 * time.Second

type relayOptions struct {
	migrate, sql, status, retry, json bool
	resend                            time.Duration
}

func parseRelayFlags(args []string, stdout io.Writer) (*relayOptions, error) {
	o := &relayOptions{}
	fs := flag.NewFlagSet("producer relay", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // errors are returned
	fs.BoolVar(&o.migrate, "migrate", false, "make the tables, or bring them up to date")
	fs.BoolVar(&o.sql, "sql", false, "print the statements that make the tables")
	fs.BoolVar(&o.status, "status", false, "show how the outbox stands")
	fs.BoolVar(&o.retry, "retry-refused", false, "put refused tasks of QUEUES back into the outbox")
	fs.DurationVar(&o.resend, "resend-since", 0, "send what was sent within this time again, such as 10m")
	fs.BoolVar(&o.json, "json", false, "print the answer as JSON")
	err := fs.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, relayUsage)
		fs.SetOutput(stdout)
		fs.PrintDefaults()
		return nil, errHelp
	}
	if err != nil {
		return nil, fmt.Errorf("%w; see producer relay -help", err)
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("%q is not a flag; see producer relay -help", fs.Arg(0))
	}
	modes := 0
	for _, on := range []bool{o.migrate, o.sql, o.status, o.retry, o.resend != 0} {
		if on {
			modes++
		}
	}
	if modes > 1 {
		return nil, errors.New("-migrate, -sql, -status, -retry-refused and -resend-since exclude each other")
	}
	if o.resend < 0 {
		return nil, errors.New("-resend-since: use a positive duration such as 10m")
	}
	return o, nil
}

// relayVerb is `producer relay`.
func relayVerb(args []string, stdout, stderr io.Writer) int {
	opt, err := parseRelayFlags(args, stdout)
	if errors.Is(err, errHelp) {
		return exitDone
	}
	if err != nil {
		return fail(stderr, exitUsage, err)
	}
	cfg, err := config.LoadRelay(nil)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return exitUsage
	}
	for _, w := range cfg.Warnings {
		fmt.Fprintln(stderr, "warning:", w)
	}
	if opt.sql {
		return printSQL(cfg, stdout, stderr)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg.Postgres.PoolConfig(2*len(cfg.Queue.Queues)+2))
	if err != nil {
		return fail(stderr, exitUsage, err)
	}
	log := newLogger(stderr, cfg.Log)
	stop, abort, release := signals(logLines{log})
	defer release()
	defer func() {
		if abort.Err() == nil { // else it would wait for batches in hand
			pool.Close()
		}
	}()
	switch {
	case opt.migrate:
		return migrate(stop, cfg, pool, stdout, stderr)
	case opt.status:
		return status(stop, cfg, pool, opt.json, stdout, stderr)
	case opt.retry:
		return retryRefused(stop, cfg, pool, stdout, stderr)
	}
	redis.SetLogger(quiet{})
	client := redis.NewClient(cfg.RedisOptions())
	defer client.Close()
	queues, err := openQueues(cfg, client)
	if err != nil {
		return fail(stderr, exitUsage, err)
	}
	defer func() {
		for _, q := range queues {
			_ = q.Close() // the process ends
		}
	}()
	if opt.resend > 0 {
		return resend(stop, cfg, pool, queues, opt, stdout, stderr)
	}
	return serveRelay(stop, abort, cfg, pool, client, queues, log)
}

// openQueues makes those of QUEUES.
func openQueues(cfg config.Relay, client *redis.Client) ([]*queue.Queue, error) {
	var list []*queue.Queue
	for _, named := range cfg.Queue.Queues {
		q, err := queue.New(cfg.Queue.For(named.Name, cfg.Redis.KeyPrefix, client))
		if err != nil {
			return nil, err
		}
		list = append(list, q)
	}
	return list, nil
}

// relayConfig is what RelayConfig is told from outside.
func relayConfig(cfg config.Relay) outbox.RelayConfig {
	keep := cfg.Move.Keep
	if keep == 0 {
		keep = -1 // none; zero would be the default
	}
	return outbox.RelayConfig{
		Schema: cfg.Postgres.Schema, Batch: cfg.Move.Batch, Poll: cfg.Move.Poll, PollOnly: !cfg.Move.Listen,
		Timeout: cfg.Move.Timeout, Keep: keep, Producer: policy(cfg.Produce),
	}
}

// fail says what went wrong.
func fail(stderr io.Writer, code int, err error) int {
	fmt.Fprintln(stderr, "producer relay:", err)
	return exitCode(code, err)
}

// exitCode is code, unless the configuration cannot work.
func exitCode(code int, err error) int {
	if errors.Is(err, queue.ErrInvalidConfig) || errors.Is(err, queue.ErrMismatch) || errors.Is(err, outbox.ErrSchema) {
		return exitUsage
	}
	return code
}
