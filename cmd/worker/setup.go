package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/dedupe"
	"github.com/claimq/claimq/internal/config"
	"github.com/claimq/claimq/internal/embedded"
	"github.com/claimq/claimq/internal/push"
	"github.com/claimq/claimq/metrics"
	"github.com/claimq/claimq/queue"
)

// embeddedAddr is where the embedded Redis listens if nobody else does, so
// that the URL is the same at every start.
const embeddedAddr = "127.0.0.1:6390"

// useEmbedded starts a server in this process and makes it the configured one.
func useEmbedded(cfg *config.Worker) (*embedded.Server, error) {
	srv, err := embedded.Start(embeddedAddr)
	if err != nil {
		srv, err = embedded.Start("127.0.0.1:0")
	}
	if err != nil {
		return nil, err
	}
	if err := cfg.Redis.URL.UnmarshalText([]byte(srv.URL())); err != nil {
		srv.Close()
		return nil, err
	}
	return srv, nil
}

// queues are the configured queues on one client.
type queues struct {
	rdb  *redis.Client
	list []*queue.Queue // in the order of QUEUES
}

func openQueues(cfg config.Worker) (*queues, error) {
	qs := &queues{rdb: redis.NewClient(cfg.RedisOptions())}
	var errs []error
	for _, w := range cfg.Queue.Queues {
		q, err := queue.New(cfg.Queue.For(w.Name, cfg.Redis.KeyPrefix, qs.rdb))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		qs.list = append(qs.list, q)
	}
	if len(errs) > 0 {
		return nil, errors.Join(append(errs, qs.close())...)
	}
	return qs, nil
}

// newRegistry has what every process reports: this program, and its client. It
// comes before the client is used.
func newRegistry(rdb *redis.Client) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	b := thisBuild()
	metrics.Build(reg, b.Version, b.Revision)
	metrics.Client(reg, rdb)
	return reg
}

func (qs *queues) close() error {
	var errs []error
	for _, q := range qs.list {
		errs = append(errs, q.Close())
	}
	return errors.Join(append(errs, qs.rdb.Close())...)
}

// newPusher builds the HTTP delivery.
func newPusher(cfg config.Worker, ledger dedupe.Ledger) (*push.Pusher, error) {
	p := cfg.Push
	var routes []push.Route
	for _, r := range p.URLs {
		routes = append(routes, push.Route{Pattern: r.Pattern, URL: r.URL})
	}
	return push.New(push.Config{
		Routes:           routes,
		Ledger:           ledger,
		Timeout:          p.Timeout,
		KindTimeouts:     cfg.Run.KindTimeouts,
		MaxResponseBytes: int64(p.MaxResponse),
		MaxConnsPerHost:  cfg.Run.Concurrency + 1,
		DeadStatus:       p.DeadStatus,
		RetryStatus:      p.RetryStatus,
		ExternalIDHeader: p.ExternalIDHeader,
		SigningSecrets:   p.SigningSecrets.Reveal(),
		RootCAs:          p.RootCAs,
		Proxy:            http.ProxyFromEnvironment,
		UserAgent:        "claimq/" + strings.Trim(thisBuild().Version, "()"),
	})
}

// newWorker builds the runtime.
func newWorker(cfg config.Worker, qs *queues, h consumer.Handler, o consumer.Observer, log *slog.Logger) (*consumer.Worker, error) {
	var more []consumer.Weighted
	for i, q := range qs.list[1:] {
		more = append(more, consumer.Weighted{Queue: q, Weight: cfg.Queue.Queues[i+1].Weight})
	}
	r := cfg.Run
	return consumer.New(qs.list[0], consumer.Config{
		Handler:      h,
		Concurrency:  r.Concurrency,
		Prefetch:     r.Prefetch,
		Weight:       cfg.Queue.Queues[0].Weight,
		More:         more,
		Timeout:      r.Timeout,
		Grace:        r.Grace,
		MaxStuck:     r.MaxStuck,
		Block:        r.Block,
		DrainTimeout: r.DrainTimeout,
		RetryBase:    r.RetryBase,
		RetryMax:     r.RetryMax,
		Logger:       log,
		Observer:     o,
	})
}

// sayProblems prints each problem of a joined error on a line of its own.
func sayProblems(s std, name string, err error) {
	for _, e := range flatten(err) {
		fmt.Fprintf(s.err, "worker %s: %v\n", name, e)
	}
}

// flatten takes joined errors apart.
func flatten(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var out []error
	for _, e := range joined.Unwrap() {
		out = append(out, flatten(e)...)
	}
	return out
}

// ledgers keeps the steps of each queue's tasks beside them.
type ledgers []*queue.Queue

func (ls ledgers) of(name string) (dedupe.Ledger, error) {
	for _, q := range ls {
		if q.Name() == name {
			return dedupe.NewRedisLedger(q), nil
		}
	}
	return nil, fmt.Errorf("no ledger for queue %q", name)
}

// NewCall makes a random name; which queue's makes no difference.
func (ls ledgers) NewCall() queue.Token { return ls[0].NewToken() }

func (ls ledgers) Intend(ctx context.Context, l queue.Lease, step string, key dedupe.Key, call queue.Token) (queue.Step, error) {
	ledger, err := ls.of(l.Queue)
	if err != nil {
		return queue.Step{}, err
	}
	return ledger.Intend(ctx, l, step, key, call)
}

func (ls ledgers) Record(ctx context.Context, l queue.Lease, step string, state queue.StepState, result []byte) (queue.Step, error) {
	ledger, err := ls.of(l.Queue)
	if err != nil {
		return queue.Step{}, err
	}
	return ledger.Record(ctx, l, step, state, result)
}

// Steps answers for the first queue that knows the task.
func (ls ledgers) Steps(ctx context.Context, id queue.TaskID) ([]queue.Step, error) {
	err := fmt.Errorf("%w: %s", queue.ErrNotFound, id)
	for _, q := range ls {
		var steps []queue.Step
		if steps, err = q.Steps(ctx, id); !errors.Is(err, queue.ErrNotFound) {
			return steps, err
		}
	}
	return nil, err
}
