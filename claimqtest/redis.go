package claimqtest

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"net"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/claimq/claimq/queue"
)

// server is the Redis of one run.
type server struct {
	mini *miniredis.Miniredis

	mu     sync.Mutex
	loaded map[string]bool // digests of scripts
}

func newServer() *server { return &server{mini: miniredis.NewMiniRedis(), loaded: map[string]bool{}} }

func (s *server) close() { s.mini.Close() }

// forget loses everything that was stored.
func (s *server) forget() { s.mini.FlushAll() }

// client makes a client whose connections are those of a process.
func (s *server) client(p *process) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:     "claimqtest",
		Protocol: 2,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			c, err := p.dial(seamRedis, s.mini.Dial)
			if err != nil {
				return refusedConn{}, nil
			}
			return c, nil
		},
		DialerRetries:            1,
		MaxRetries:               -1,
		DisableIdentity:          true,
		ContextTimeoutEnabled:    true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// transitions are the scripts that are points, and what they are called.
func transition(script string) string {
	switch script {
	case "begin":
		return "the lease of the task"
	case "start":
		return "the start on record"
	case "complete":
		return "the completion of the task"
	case "retry", "release", "dead":
		return "the " + script + " of the task"
	case "step_intent":
		return "the intent"
	case "step_result":
		return "the result"
	}
	return ""
}

// hook makes points of the commands of a worker that move its task.
type hook struct{ w *Worker }

func (h hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		name := transition(queue.CommandOf(cmd).Name)
		if name == "" {
			return next(ctx, cmd)
		}
		// A script is a point once: not once by its digest and again, since
		// the server did not know it, by its text.
		if h.w.tr.server.lacks(cmd) {
			return unknownScript{}
		}
		if s, ok := ctx.Value(stepKey{}).(step); ok {
			name += " of step " + s.name
		}
		var reply error
		lost := h.w.cross(name, seamRedis, func(replyLost bool) error {
			sent := cmd
			if replyLost {
				sent = cmd.Clone() // who looks must not find the reply
			}
			reply = next(ctx, sent)
			return nil
		})
		if lost != nil {
			return lost
		}
		return reply
	}
}

// ProcessPipelineHook lets all pass: with one task in one partition no
// transition is sent in a pipeline.
func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// unknownScript is the answer of a server to the digest of a script that it
// does not have.
type unknownScript struct{}

func (unknownScript) Error() string { return "NOSCRIPT No matching script. Please use EVAL." }
func (unknownScript) RedisError()   {}

// lacks reports whether a command names a script that was never sent whole, and
// notes those that are.
func (s *server) lacks(cmd redis.Cmder) bool {
	args := cmd.Args()
	if len(args) < 2 {
		return false
	}
	text, _ := args[1].(string)
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.EqualFold(cmd.Name(), "eval") {
		sum := sha1.Sum([]byte(text))
		s.loaded[hex.EncodeToString(sum[:])] = true
		return false
	}
	return !s.loaded[text]
}
