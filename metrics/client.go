package metrics

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/queue"
)

// Client registers the metrics of a Redis client: the time of its round trips
// and those that failed, through a hook that it adds to the client, and its
// pool. What a client says by itself on a new connection is left out, and
// blocking reads go through clients of their own and are not seen. Call it
// before the client is used, once for each registry.
func Client(reg prometheus.Registerer, c *redis.Client) {
	h := clientHook{duration: histogram(reg, "redis_command_duration_seconds"), series: &table[prometheus.Observer]{}, failures: closed{}}
	failures := counter(reg, "redis_command_failures_total")
	for _, reason := range family("redis_command_failures_total").values() {
		h.failures[reason] = failures.WithLabelValues(reason)
	}
	c.AddHook(h)
	reg.MustRegister(newPool(c))
}

// pipelineCommand is the label of a pipeline of different commands.
const pipelineCommand = "pipeline"

// maxCommands bounds the table of commands; their names are few, see
// queue.CommandOf.
const maxCommands = 200

// clientHook times round trips.
type clientHook struct {
	duration *prometheus.HistogramVec
	series   *table[prometheus.Observer] // by command
	failures closed
}

var _ redis.Hook = clientHook{}

// DialHook implements redis.Hook: what comes of a failure to connect is seen
// in the command that needed the connection.
func (h clientHook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (h clientHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		began := time.Now()
		err := next(ctx, cmd)
		h.seen(queue.CommandOf(cmd), time.Since(began), err)
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (h clientHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		began := time.Now()
		err := next(ctx, cmds)
		h.seen(pipelineOf(cmds), time.Since(began), err)
		return err
	}
}

// pipelineOf is the command of which a pipeline consists.
func pipelineOf(cmds []redis.Cmder) queue.Command {
	var first queue.Command
	for i, cmd := range cmds {
		c := queue.CommandOf(cmd)
		switch {
		case i == 0:
			first = c
		case c != first:
			return queue.Command{Name: pipelineCommand}
		}
	}
	return first
}

// seen notes one round trip.
func (h clientHook) seen(c queue.Command, took time.Duration, err error) {
	if c.Setup {
		return
	}
	if !c.Waits {
		s, ok := h.series.get(c.Name)
		if !ok {
			s, ok = h.series.put(c.Name, maxCommands, func() prometheus.Observer { return h.duration.WithLabelValues(c.Name) })
		}
		if ok {
			s.Observe(took.Seconds())
		}
	}
	if reason := clientFailure(err); reason != "" {
		h.failures.add(reason, 1)
	}
}

// clientFailure is how a round trip failed; empty if it did not, or was given
// up by its caller.
func clientFailure(err error) string {
	if err == nil || errors.Is(err, redis.Nil) || errors.Is(err, context.Canceled) {
		return ""
	}
	var reply redis.Error
	if errors.As(err, &reply) {
		for prefix, reason := range map[string]string{
			"NOSCRIPT": "noscript", "NOGROUP": "nogroup", "OOM": "oom", "LOADING": "loading", "BUSY": "busy",
			"READONLY": "readonly", "MOVED": "moved", "ASK": "moved",
		} {
			if redis.HasErrorPrefix(err, prefix+" ") {
				return reason
			}
		}
		return "other"
	}
	var network net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, redis.ErrPoolTimeout),
		errors.As(err, &network) && network.Timeout():
		return "timeout"
	case errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return "network"
	}
	return "other"
}
