package faultredis

import (
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// Match says whether a fault concerns a command. nil concerns every command
// but those with which the client sets a connection up.
type Match func(cmd redis.Cmder) bool

// setUp are the commands that a new connection begins with. They pass through
// the hook as well, and a fault meant for "the next command" must not be used
// up by them.
var setUp = Command("hello", "auth", "client", "select", "readonly")

func (f Fault) concerns(cmd redis.Cmder) bool {
	if f.match == nil {
		return !setUp(cmd)
	}
	return f.match(cmd)
}

// Command matches commands by name, in lower case.
func Command(names ...string) Match {
	return func(cmd redis.Cmder) bool { return slices.Contains(names, cmd.Name()) }
}

// Script matches the runs of a Lua script given by its source, whether they
// name it by digest or carry it.
func Script(source string) Match {
	digest := redis.NewScript(source).Hash()
	return func(cmd redis.Cmder) bool {
		args := cmd.Args()
		if len(args) < 2 {
			return false
		}
		switch cmd.Name() {
		case "evalsha", "evalsha_ro":
			return args[1] == digest
		case "eval", "eval_ro":
			return args[1] == source
		}
		return false
	}
}

// Mentions matches commands one of whose string arguments contains s: a key
// prefix, a task ID.
func Mentions(s string) Match {
	return func(cmd redis.Cmder) bool {
		return slices.ContainsFunc(cmd.Args(), func(arg any) bool {
			if text, ok := arg.(*string); ok { // as package queue passes texts
				return strings.Contains(*text, s)
			}
			text, ok := arg.(string)
			return ok && strings.Contains(text, s)
		})
	}
}

// All matches what every one of the matches does.
func All(matches ...Match) Match {
	return func(cmd redis.Cmder) bool {
		return !slices.ContainsFunc(matches, func(m Match) bool { return !m(cmd) })
	}
}

// After lets the first n matching commands pass.
func After(n int, m Match) Match {
	var mu sync.Mutex
	return func(cmd redis.Cmder) bool {
		if !(Fault{match: m}).concerns(cmd) {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		n--
		return n < 0
	}
}

type action int

const (
	failBefore action = iota
	loseReply
	replyError
	holdBefore
	holdAfter
	failDial
)

// Fault is what is to go wrong. It acts until it is removed, or as often as
// Once or Times say.
type Fault struct {
	do    action
	match Match
	err   error
	times int // 0: no limit
}

// Once limits the fault to the next command that matches.
func (f Fault) Once() Fault { return f.Times(1) }

// Times limits the fault to the next n commands that match.
func (f Fault) Times(n int) Fault {
	f.times = n
	return f
}

// With replaces the error that the caller gets.
func (f Fault) With(err error) Fault {
	f.err = err
	return f
}

// The errors that a client of a broken network returns, in its own types.
var (
	ErrTimeout = &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
	ErrRefused = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
)

// FailBefore keeps the command from being sent. The caller gets ErrTimeout,
// which tells it nothing about whether the command was applied; use
// With(ErrRefused) for a failure that does.
//
// A pipeline with a matching command is not sent at all.
func FailBefore(m Match) Fault { return Fault{do: failBefore, match: m, err: ErrTimeout} }

// LoseReply lets the server apply the command and gives the caller ErrTimeout
// in place of the reply.
//
// A pipeline is applied as a whole; the replies from the first matching
// command on are lost, as on a connection that breaks while they arrive.
func LoseReply(m Match) Fault { return Fault{do: loseReply, match: m, err: ErrTimeout} }

// ReplyError answers the command with a Redis error, "OOM command not
// allowed", without sending it. In a pipeline the other commands are sent; in
// a transaction nothing is.
func ReplyError(m Match, text string) Fault {
	return Fault{do: replyError, match: m, err: redisError(text)}
}

// HoldBefore keeps the command from being sent until Release or Remove, or
// until its context ends.
func HoldBefore(m Match) Fault { return Fault{do: holdBefore, match: m} }

// HoldAfter lets the server apply the command and keeps its reply from the
// caller until Release or Remove. When the command's context ends first, the
// reply is lost.
func HoldAfter(m Match) Fault { return Fault{do: holdAfter, match: m} }

// FailDial makes new connections fail with ErrRefused. The client dials
// several times for one command (Options.DialerRetries), and each counts.
func FailDial() Fault { return Fault{do: failDial, err: ErrRefused} }

// redisError is an error reply. The client's own types for it are internal to
// it, but it recognises them by this method and the text.
type redisError string

func (e redisError) Error() string { return string(e) }
func (e redisError) RedisError()   {}
