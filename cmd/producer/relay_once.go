package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/claimq/claimq/internal/config"
	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/producer/outbox"
	"github.com/claimq/claimq/queue"
)

// What `producer relay` does once and then ends.

func printSQL(cfg config.Relay, stdout, stderr io.Writer) int {
	text, err := outbox.SQL(cfg.Postgres.Schema)
	if err == nil {
		_, err = io.WriteString(stdout, text)
	}
	if err != nil {
		return fail(stderr, exitFailed, err)
	}
	return exitDone
}

func migrate(ctx context.Context, cfg config.Relay, pool *pgxpool.Pool, stdout, stderr io.Writer) int {
	names, err := outbox.Migrate(ctx, pool, cfg.Postgres.Schema)
	if err != nil {
		return fail(stderr, exitFailed, err)
	}
	if len(names) == 0 {
		fmt.Fprintln(stdout, "nothing to do")
		return exitDone
	}
	fmt.Fprintln(stdout, "applied", strings.Join(names, ", "))
	return exitDone
}

// standing is one queue of `-status`. Its JSON form is a contract.
type standing struct {
	Queue      string  `json:"queue"`
	Unsent     int64   `json:"unsent"`
	LagSeconds float64 `json:"lag_seconds"` // age of the oldest unsent task
	Refused    int64   `json:"refused"`
	Relayed    bool    `json:"relayed"` // it is among QUEUES
}

// standings lists the queues of QUEUES and all others in the outbox.
func standings(ctx context.Context, cfg config.Relay, pool *pgxpool.Pool) ([]standing, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	stats, err := outbox.ReadStats(ctx, pool, cfg.Postgres.Schema)
	if err != nil {
		return nil, err
	}
	known := map[string]outbox.Stats{}
	for _, s := range stats {
		known[s.Queue] = s
	}
	var list []standing
	add := func(name string, relayed bool) {
		s := known[name]
		delete(known, name)
		list = append(list, standing{name, s.Unsent, s.Lag.Seconds(), s.Refused, relayed})
	}
	for _, q := range cfg.Queue.Queues {
		add(q.Name, true)
	}
	for _, s := range stats {
		if _, left := known[s.Queue]; left {
			add(s.Queue, false)
		}
	}
	return list, nil
}

func status(ctx context.Context, cfg config.Relay, pool *pgxpool.Pool, asJSON bool, stdout, stderr io.Writer) int {
	list, err := standings(ctx, cfg, pool)
	if err != nil {
		return fail(stderr, exitFailed, err)
	}
	if asJSON {
		err = json.NewEncoder(stdout).Encode(list)
	} else {
		w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "queue\tunsent\tlag\trefused\t")
		for _, s := range list {
			note := ""
			if !s.Relayed {
				note = "not in QUEUES"
			}
			lag := time.Duration(s.LagSeconds * float64(time.Second)).Round(time.Millisecond)
			fmt.Fprintf(w, "%s\t%d\t%v\t%d\t%s\n", s.Queue, s.Unsent, lag, s.Refused, note)
		}
		err = w.Flush()
	}
	if err != nil {
		return fail(stderr, exitFailed, err)
	}
	return exitDone
}

func retryRefused(ctx context.Context, cfg config.Relay, pool *pgxpool.Pool, stdout, stderr io.Writer) int {
	for _, q := range cfg.Queue.Queues {
		n, err := outbox.RetryRefused(ctx, pool, cfg.Postgres.Schema, q.Name)
		if err != nil {
			return fail(stderr, exitFailed, err)
		}
		fmt.Fprintf(stdout, "%s: %d tasks put back\n", q.Name, n)
	}
	return exitDone
}

// resent is one queue of `-resend-since`. Its JSON form is a contract.
type resent struct {
	Queue string `json:"queue"`
	producerSummary
	Error string `json:"error,omitempty"`
}

type producerSummary struct {
	Added      int `json:"added"` // had been forgotten
	Duplicate  int `json:"duplicate"`
	Refused    int `json:"refused"`
	Full       int `json:"full"`
	Indefinite int `json:"indefinite"`
	Unsent     int `json:"unsent"`
}

func resend(ctx context.Context, cfg config.Relay, pool *pgxpool.Pool, queues []*queue.Queue, opt *relayOptions, stdout, stderr io.Writer) int {
	code := exitDone
	var list []resent
	for _, q := range queues {
		relay, err := outbox.NewRelay(pool, q, relayConfig(cfg))
		var sum producer.Summary
		if err == nil {
			sum, err = relay.Resend(ctx, opt.resend)
		}
		r := resent{Queue: q.Name(), producerSummary: producerSummary(sum)}
		if err != nil {
			r.Error = err.Error()
			failed := fail(stderr, exitFailed, fmt.Errorf("%s: %w", q.Name(), err))
			if failed == exitFailed && errors.Is(err, queue.ErrIndefinite) {
				failed = exitIndefinite
			}
			code = max(code, failed)
		}
		list = append(list, r)
	}
	if err := writeResent(stdout, list, opt.json); err != nil {
		return fail(stderr, max(code, exitFailed), err)
	}
	return code
}

func writeResent(stdout io.Writer, list []resent, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(stdout).Encode(list)
	}
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "queue\tadded\tduplicate\trefused\tfull\tindefinite\tunsent")
	for _, r := range list {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\n", r.Queue, r.Added, r.Duplicate, r.Refused, r.Full, r.Indefinite, r.Unsent)
	}
	return w.Flush()
}
