package queue

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua lua/include/*.lua
var luaFiles embed.FS

// script is one transition. Its header is the only list of its keys.
type script struct {
	name string
	text string
	sha  string
	keys []string // what each KEYS[n] is, in order

	shaArg any // sha, as an argument
}

var (
	keyLine     = regexp.MustCompile(`KEYS\[(\d+)\] (\w+) (\w+)`)
	includeLine = regexp.MustCompile(`(?m)^ *-- @include (.+)$`)
)

var (
	scriptEnqueue    = mustLoad("enqueue")
	scriptBegin      = mustLoad("begin")
	scriptStart      = mustLoad("start")
	scriptRenew      = mustLoad("renew")
	scriptSplit      = mustLoad("split")
	scriptReclaim    = mustLoad("reclaim")
	scriptComplete   = mustLoad("complete")
	scriptRetry      = mustLoad("retry")
	scriptRelease    = mustLoad("release")
	scriptDead       = mustLoad("dead")
	scriptQuarantine = mustLoad("quarantine")
	scriptPromote    = mustLoad("promote")
	scriptRedrive    = mustLoad("redrive")
	scriptDelete     = mustLoad("delete")
	scriptTurn       = mustLoad("turn")
	scriptTidy       = mustLoad("tidy")
	scriptEnsure     = mustLoad("ensure")
	scriptStats      = mustLoad("stats")
	scriptTimes      = mustLoad("times")
	scriptInspect    = mustLoad("inspect")
	scriptStepIntent = mustLoad("step_intent")
	scriptStepResult = mustLoad("step_result")
	scriptProbe      = mustLoad("probe")
)

// mustLoad reads a script, puts its includes where it names them and takes its
// keys from its header. What a script needs on rare occasions only it includes in
// the block that is for those: a function costs the server time to make, whether it
// is called or not. The files are embedded, so a failure is a broken build.
func mustLoad(name string) *script {
	src, err := luaFiles.ReadFile(path.Join("lua", name+".lua"))
	if err != nil {
		panic(err)
	}
	s := &script{name: name}
	header, _, _ := strings.Cut(string(src), "\n\n")
	for _, m := range keyLine.FindAllStringSubmatch(header, -1) {
		if m[1] != fmt.Sprint(len(s.keys)+1) {
			panic("script " + name + ": header names KEYS[" + m[1] + "] out of order")
		}
		s.keys = append(s.keys, m[2])
	}
	var b strings.Builder
	for line := range strings.Lines(string(src)) {
		b.WriteString(stripComments(line))
		m := includeLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		for _, inc := range strings.Fields(m[1]) {
			frag, err := luaFiles.ReadFile(path.Join("lua", "include", inc+".lua"))
			if err != nil {
				panic(err)
			}
			b.WriteString(stripComments(string(frag)))
		}
	}
	s.text = b.String()
	sum := sha1.Sum([]byte(s.text)) // the server's own name for it
	s.sha = hex.EncodeToString(sum[:])
	s.shaArg = s.sha
	return s
}

// stripComments drops whole-line comments, which the server would keep in
// memory.
func stripComments(src string) string {
	var b strings.Builder
	for line := range strings.Lines(src) {
		if t := strings.TrimSpace(line); t != "" && !strings.HasPrefix(t, "--") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// errUnmade: the settings of a partition are not on the server. Not for callers.
var errUnmade = fmt.Errorf("%w: the partition is not made", ErrUnavailable)

// refusals are the answers after which go-redis repeats a command by itself.
var refusals = []string{"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "ERR max number of clients reached"}

// repeated classifies what became of a call. Where the client repeats commands
// by itself, what it reports is the end of the last attempt, and an earlier one
// may have been applied: a failure to connect says nothing then.
func (q *Queue) repeated(what string, err error) error {
	out := classify(what, err)
	if !q.repeats || !errors.Is(out, ErrUnavailable) {
		return out
	}
	var reply redis.Error
	if errors.As(err, &reply) && !slices.ContainsFunc(refusals, func(p string) bool { return redis.HasErrorPrefix(err, p) }) {
		return out
	}
	return fmt.Errorf("%w: %s: %w", ErrIndefinite, what, err)
}

// clientRepeats reports whether a client repeats commands by itself.
func clientRepeats(c redis.UniversalClient) bool {
	plain, ok := c.(*redis.Client)
	return !ok || plain.Options().MaxRetries > 0
}

// classify says of an error whether the call may have been applied.
func classify(what string, err error) error {
	if err == nil || errors.Is(err, redis.Nil) {
		return nil
	}
	var reply redis.Error
	var op *net.OpError
	switch {
	case errors.As(err, &reply):
		if made, ok := strings.CutPrefix(reply.Error(), "MISMATCH "); ok {
			return fmt.Errorf("%w: the queue was made with %s partitions: set Partitions to that", ErrMismatch, made)
		}
		if strings.HasPrefix(reply.Error(), "UNMADE ") {
			return errUnmade
		}
		return fmt.Errorf("%w: %s: %w", ErrUnavailable, what, err)
	case errors.As(err, &op) && op.Op == "dial", errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), errors.Is(err, redis.ErrClosed):
		return fmt.Errorf("%w: %s: %w", ErrUnavailable, what, err)
	}
	return fmt.Errorf("%w: %s: %w", ErrIndefinite, what, err)
}
