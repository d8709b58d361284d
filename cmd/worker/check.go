package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"time"

	"github.com/claimq/claimq/internal/config"
	"github.com/claimq/claimq/queue"
)

const checkAbout = `Reads the settings from the environment, looks at the server and tries to reach
the receivers. Says what is wrong and how to mend it, and from how long handlers
ran which leases are too short or needlessly long. Changes nothing but one
scratch key on the server, which it removes.

Exit code 0: this worker can run; 1: the server is away or cannot do it;
2: the settings are wrong.
`

// dialTimeout bounds the try to reach a receiver.
const dialTimeout = 2 * time.Second

// problem is one thing that check has to say.
type problem struct {
	Where  string `json:"where"` // "settings", "server", "queue NAME", "receiver"
	What   string `json:"what"`
	Detail string `json:"detail,omitempty"`
	Remedy string `json:"remedy,omitempty"`
	Fatal  bool   `json:"fatal"`
}

// queueState is one queue as check found it.
type queueState struct {
	Name      string `json:"name"`
	Waiting   int64  `json:"waiting"`
	Pending   int64  `json:"pending"`
	Scheduled int64  `json:"scheduled"`
	Dead      int64  `json:"dead"`
	Consumers int64  `json:"consumers"`
}

// checkup is the whole answer; its JSON form is a contract.
type checkup struct {
	OK      bool   `json:"ok"`
	Server  string `json:"server,omitempty"` // without password
	Version string `json:"version,omitempty"`
	// Database is that of POSTGRES_URL, without password.
	Database string       `json:"database,omitempty"`
	Queues   []queueState `json:"queues,omitempty"`
	// Leases is what handler times say about lease lengths, LeaseSettings the
	// variables that would follow it, by name.
	Leases        []leaseAdvice     `json:"leases,omitempty"`
	LeaseSettings map[string]string `json:"lease_settings,omitempty"`
	Problems      []problem         `json:"problems,omitempty"`

	code int
}

func (c *checkup) fatal(code int, p problem) {
	p.Fatal = true
	c.code = max(c.code, code)
	c.Problems = append(c.Problems, p)
}

func (c *checkup) warn(p problem) { c.Problems = append(c.Problems, p) }

func checkVerb(s std, args []string) int {
	fs := flag.NewFlagSet("check", flag.ContinueOnError)
	asJSON := fs.Bool("json", false, "print the findings as JSON")
	if code, done := parse(s, fs, args, checkAbout); done {
		return code
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var c checkup
	c.run(ctx)
	c.OK = c.code == exitOK
	if *asJSON {
		if code := printJSON(s, c); code != exitOK {
			return code
		}
		return c.code
	}
	c.print(s)
	return c.code
}

func (c *checkup) run(ctx context.Context) {
	cfg, err := config.LoadWorker(nil)
	if err != nil {
		for _, e := range flatten(err) {
			c.settings(e)
		}
		return
	}
	for _, w := range cfg.Warnings {
		c.warn(problem{Where: "settings", What: w})
	}
	if cfg.Redis.Embedded() {
		c.warn(problem{Where: "settings", What: "REDIS_URL", Detail: "not set: the worker would use a Redis in its own process, which keeps nothing",
			Remedy: "set it to your server, for instance redis://localhost:6379/0"})
	} else if len(cfg.Push.URLs) == 0 {
		c.fatal(exitUsage, problem{Where: "settings", What: "PUSH_URLS", Detail: "not set: the worker would not know where tasks go",
			Remedy: "set it, for instance *=http://localhost:8080/tasks"})
	}
	c.receivers(ctx, cfg.Push.URLs)
	c.database(ctx, cfg)
	if cfg.Redis.Embedded() {
		return
	}
	c.Server = cfg.Redis.URL.String()
	qs, err := openQueues(cfg)
	if err != nil {
		for _, e := range flatten(err) {
			c.settings(e)
		}
		return
	}
	defer qs.close()
	if !c.server(ctx, qs.list[0]) {
		return
	}
	for _, q := range qs.list {
		c.queue(ctx, q)
	}
	c.LeaseSettings = leaseSettings(c.Leases, cfg.Queue)
}

func (c *checkup) settings(err error) {
	p := problem{Where: "settings", What: err.Error()}
	if f, ok := errors.AsType[*queue.FieldError](err); ok {
		p.What, p.Remedy = f.Field, f.Remedy
	}
	c.fatal(exitUsage, p)
}

// server reports whether it makes sense to go on.
func (c *checkup) server(ctx context.Context, q *queue.Queue) bool {
	report, err := q.Probe(ctx)
	if err != nil {
		c.fatal(exitFailed, problem{Where: "server", What: "cannot be asked", Detail: err.Error(),
			Remedy: "see that it runs and that REDIS_URL has the right address, user and password"})
		return false
	}
	c.Version = report.Server + " " + report.Version
	for _, f := range report.Findings {
		p := problem{Where: "server", What: f.What, Detail: f.Detail, Remedy: f.Remedy}
		if f.Fatal {
			c.fatal(exitFailed, p)
		} else {
			c.warn(p)
		}
	}
	return true
}

// queue looks at one queue. One that does not exist is nothing to mend: the
// first worker or producer makes it.
func (c *checkup) queue(ctx context.Context, q *queue.Queue) {
	s, err := q.Stats(ctx)
	if err == nil && s.Unfinished()+s.Dead+s.Consumers > 0 {
		err = q.Ensure(ctx) // it is there, so this only compares
	}
	switch {
	case errors.Is(err, queue.ErrMismatch):
		c.fatal(exitUsage, problem{Where: "queue " + q.Name(), What: "settings contradict the server", Detail: err.Error()})
	case err != nil:
		c.fatal(exitFailed, problem{Where: "queue " + q.Name(), What: "cannot be read", Detail: err.Error()})
	default:
		c.Queues = append(c.Queues, queueState{q.Name(), s.Waiting, s.Pending, s.Scheduled, s.Dead, s.Consumers})
		c.advise(ctx, q)
	}
}

// advise looks at the queue's lease lengths. What it finds is advice: nothing
// fails for it.
func (c *checkup) advise(ctx context.Context, q *queue.Queue) {
	advice, err := adviseOn(ctx, q)
	if err != nil {
		c.warn(problem{Where: "queue " + q.Name(), What: "handler times cannot be read", Detail: err.Error()})
	}
	c.Leases = append(c.Leases, advice...)
}

// receivers tries to connect to each host that tasks go to. A receiver that is
// away now is a warning: tasks wait for it.
func (c *checkup) receivers(ctx context.Context, routes config.PushRoutes) {
	tried := map[string]bool{}
	for _, r := range routes {
		u, err := url.Parse(r.URL)
		if err != nil {
			continue // the settings have been read, so it does parse
		}
		addr := hostPort(u)
		if tried[addr] {
			continue
		}
		tried[addr] = true
		d := net.Dialer{Timeout: dialTimeout}
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			c.warn(problem{Where: "receiver", What: addr, Detail: err.Error(), Remedy: "start it, or correct PUSH_URLS; tasks wait until it answers"})
			continue
		}
		conn.Close()
	}
}

func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

func (c *checkup) print(s std) {
	if c.Server != "" {
		fmt.Fprintf(s.out, "server %s %s\n", c.Server, c.Version)
	}
	if c.Database != "" {
		fmt.Fprintf(s.out, "database %s\n", c.Database)
	}
	for _, q := range c.Queues {
		fmt.Fprintf(s.out, "queue %s: waiting %d, pending %d, scheduled %d, dead %d, consumers %d\n",
			q.Name, q.Waiting, q.Pending, q.Scheduled, q.Dead, q.Consumers)
		printAdvice(s.out, slices.DeleteFunc(slices.Clone(c.Leases), func(a leaseAdvice) bool { return a.Queue != q.Name }))
	}
	for _, name := range slices.Sorted(maps.Keys(c.LeaseSettings)) {
		fmt.Fprintf(s.out, "advice: leases: set %s=%s for all workers and producers\n", name, c.LeaseSettings[name])
	}
	for _, p := range c.Problems {
		level := "warning"
		if p.Fatal {
			level = "problem"
		}
		fmt.Fprintf(s.out, "%s: %s: %s", level, p.Where, p.What)
		if p.Detail != "" {
			fmt.Fprintf(s.out, ": %s", p.Detail)
		}
		if p.Remedy != "" {
			fmt.Fprintf(s.out, "\n  remedy: %s", p.Remedy)
		}
		fmt.Fprintln(s.out)
	}
	if c.OK {
		fmt.Fprintln(s.out, "check: ok")
	} else {
		fmt.Fprintln(s.out, "check: failed")
	}
}
