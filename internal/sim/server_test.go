package sim

import (
	"bufio"
	"bytes"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	mini "github.com/alicebob/miniredis/v2/server"
)

// server is the in-process Redis: one command at a time, blocked readers served
// in the order they came (by itself it wakes them all and lets them race).
type server struct {
	w       *world
	mini    *miniredis.Miniredis
	scripts scripts
	watch   *observer
	bug     *bug
	proc    func(name string) *proc

	mu      sync.Mutex
	ours    sync.Map // *mini.Peer whose command is being run by run
	waiting []*blocked
	refuse  map[string]time.Time // kind of error -> until
}

func newServer(w *world, b *bug) *server {
	s := &server{w: w, mini: miniredis.NewMiniRedis(), scripts: loadScripts(), bug: b, refuse: map[string]time.Time{}}
	s.mini.Seed(int(w.seed & 0x7fffffff))
	s.mini.ClockTTL(true)
	c, err := s.mini.Dial() // starts it without a listener
	if err != nil {
		panic(err)
	}
	_ = c.Close()
	s.mini.Server().SetPreHook(s.hook)
	return s
}

func (s *server) close() {
	s.mu.Lock()
	for _, b := range s.waiting {
		b.served = true
		close(b.done)
	}
	s.waiting = nil
	s.mu.Unlock()
	s.mini.Close()
}

// nested reports whether a command comes from a script.
func nested(p *mini.Peer) bool {
	return p.Ctx != nil && reflect.ValueOf(p.Ctx).Elem().FieldByName("nested").Bool()
}

func (s *server) hook(p *mini.Peer, cmd string, args ...string) bool {
	if _, ok := s.ours.Load(p); ok {
		return false
	}
	if nested(p) {
		s.watch.nested(cmd, args)
		return false
	}
	if at := blockArg(cmd, args); at >= 0 {
		s.block(p, cmd, args, at)
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run(p, cmd, args)
	s.serve()
	return true
}

// run runs one command for a client. The caller holds mu.
func (s *server) run(p *mini.Peer, cmd string, args []string) {
	name, text := s.scripts.of(cmd, args)
	what := cmd
	if name != "" {
		what = name
		if cmd == "EVAL" {
			what += " (whole)"
		}
	}
	s.w.log(p.ClientName, what, args[min(1, len(args)):]...)
	if name == "" && (cmd == "EVAL" || cmd == "EVALSHA") {
		s.w.report("", "a script that is not in %s", scriptDir)
	}
	if text := s.refused(p.ClientName, cmd, name); text != "" {
		p.WriteError(text)
		return
	}
	if s.bug != nil && name != "" {
		if s.bug.drop != nil && s.bug.drop(s, p.ClientName, name) {
			p.WriteError("ERR dropped")
			return
		}
		if mutant := s.bug.rewrite(s.w, name, text); mutant != text {
			cmd, args = "EVAL", append([]string{mutant}, args[1:]...)
		}
	}
	s.watch.before(name, p.ClientName, args)
	s.dispatch(p, cmd, args)
	if p.ClientName == observerName && cmd == "XADD" {
		s.watch.addedByHand(args[0])
	}
	s.watch.after()
}

func (s *server) dispatch(p *mini.Peer, cmd string, args []string) {
	s.ours.Store(p, true)
	s.mini.Server().Dispatch(p, append([]string{cmd}, args...))
	s.ours.Delete(p)
}

// serverErrors are errors that the server gives for a while, by the commands
// that they are given to.
var serverErrors = map[string]struct {
	text string
	hits func(cmd, script string) bool
}{
	"OOM":      {"OOM command not allowed when used memory > 'maxmemory'.", func(_, script string) bool { return script == "enqueue" }},
	"LOADING":  {"LOADING Redis is loading the dataset in memory", func(cmd, _ string) bool { return true }},
	"READONLY": {"READONLY You can't write against a read only replica.", func(cmd, script string) bool { return script != "" || cmd == "XREADGROUP" }},
	"BUSY":     {"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", func(cmd, _ string) bool { return true }},
	"NOGROUP":  {"NOGROUP No such key or consumer group", func(cmd, _ string) bool { return cmd == "XREADGROUP" }},
	"NOSCRIPT": {"NOSCRIPT No matching script. Please use EVAL.", func(cmd, _ string) bool { return cmd == "EVALSHA" }},
}

// fails makes the server answer with an error for d.
func (s *server) fails(kind string, d time.Duration) {
	who := ""
	if kind == "NOSCRIPT" || kind == "OOM" {
		who = "scripts" // takes no lease from anybody
	}
	s.w.fault(who, "server says "+kind, d)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse[kind] = time.Now().Add(d)
}

func (s *server) refused(who, cmd, script string) string {
	if s.w.isCalm() || who == observerName || cmd == "CLIENT" {
		return ""
	}
	for _, kind := range []string{"BUSY", "LOADING", "NOGROUP", "NOSCRIPT", "OOM", "READONLY"} {
		if e := serverErrors[kind]; time.Now().Before(s.refuse[kind]) && e.hits(cmd, script) {
			return e.text
		}
	}
	return ""
}

// blocked is a client in a blocking read.
type blocked struct {
	try    func() bool
	done   chan struct{}
	served bool
}

// blockArg is where the block time of a read stands, -1 for other commands.
func blockArg(cmd string, args []string) int {
	if cmd == "XREADGROUP" {
		for i, a := range args {
			switch strings.ToUpper(a) {
			case "BLOCK":
				return i + 1
			case "STREAMS":
				return -1
			}
		}
	}
	return -1
}

// serve gives what has come in to those who wait. The caller holds mu.
func (s *server) serve() {
	var left []*blocked
	for _, b := range s.waiting {
		if b.try() {
			b.served = true
			close(b.done)
		} else {
			left = append(left, b)
		}
	}
	s.waiting = left
}

func (s *server) block(p *mini.Peer, cmd string, args []string, at int) {
	ms, _ := strconv.Atoi(args[at])
	plain := append(append([]string(nil), args[:at-1]...), args[at+1:]...)
	s.mu.Lock()
	s.w.log(p.ClientName, cmd, args...)
	if text := s.refused(p.ClientName, cmd, ""); text != "" {
		s.mu.Unlock()
		p.WriteError(text)
		return
	}
	b := &blocked{done: make(chan struct{})}
	b.try = func() bool {
		if p.Closed() {
			return true
		}
		var reply bytes.Buffer
		out := bufio.NewWriter(&reply)
		stand := mini.NewPeer(out) // answers in its place
		stand.Resp3 = p.Resp3
		s.dispatch(stand, cmd, plain)
		_ = out.Flush()
		if r := reply.String(); r != "*-1\r\n" && r != "_\r\n" {
			p.WriteRaw(r)
			s.w.log(p.ClientName, "READ", r)
			return true
		}
		return false
	}
	if b.try() {
		s.mu.Unlock()
		return
	}
	s.waiting = append(s.waiting, b)
	s.mu.Unlock()
	t := time.NewTimer(s.w.delay(time.Duration(ms) * time.Millisecond))
	defer t.Stop()
	select {
	case <-b.done:
	case <-t.C:
		s.mu.Lock()
		defer s.mu.Unlock()
		if !b.served {
			for i, o := range s.waiting {
				if o == b {
					s.waiting = append(s.waiting[:i:i], s.waiting[i+1:]...)
					break
				}
			}
			p.WriteRaw("*-1\r\n")
		}
	}
}
