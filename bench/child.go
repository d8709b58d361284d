package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	bc "github.com/claimq/claimq/bench/internal/contender"
)

// patience is how long a contender may take for anything; slowPatience where
// the queue has to be filled first.
const (
	patience     = 90 * time.Second
	slowPatience = 15 * time.Minute
)

// child is a running contender.
type child struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  chan string // what it prints; closed when it ends
	stderr *bytes.Buffer
	ended  chan struct{}

	patience time.Duration
}

// start starts a contender and waits until it is connected.
func (b *bench) start(s server, c contender, mode string, args ...string) (*child, error) {
	name, first := b.path(c)
	args = append(append(first, "--mode", mode, "--addr", s.address()), args...)
	if c.variant != "" {
		args = append(args, "--variant", c.variant)
	}
	cmd := exec.CommandContext(b.ctx, name, args...)
	ch := &child{cmd: cmd, lines: make(chan string, 1000), stderr: &bytes.Buffer{}, ended: make(chan struct{}), patience: patience}
	if slow(mode) {
		ch.patience = slowPatience
	}
	var err error
	if ch.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = ch.stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go ch.read(out)
	if _, err := ch.until("ready"); err != nil {
		ch.kill()
		return nil, err
	}
	return ch, nil
}

// slow reports whether a mode fills the queue, or rests for long.
func slow(mode string) bool {
	return mode == "growth" || mode == "promote" || mode == "idle" || mode == "renew"
}

func (ch *child) read(out io.Reader) {
	defer close(ch.ended)
	defer close(ch.lines)
	for r := bufio.NewScanner(out); r.Scan(); {
		ch.lines <- r.Text()
	}
}

// until returns the next line that begins with a prefix.
func (ch *child) until(prefix string) (string, error) {
	late := time.After(ch.patience)
	for {
		select {
		case l, ok := <-ch.lines:
			if !ok {
				_ = ch.cmd.Wait()
				return "", fmt.Errorf("%s ended: %s", strings.Join(ch.cmd.Args[1:3], " "), complaint(ch.stderr.String()))
			}
			if strings.HasPrefix(l, prefix) {
				return l, nil
			}
		case <-late:
			return "", fmt.Errorf("%s: %w: %s", strings.Join(ch.cmd.Args[1:3], " "), errTimeout, complaint(ch.stderr.String()))
		}
	}
}

// complaint is the first line of what a contender printed to standard error:
// what follows is most likely a stack.
func complaint(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

// say sends a line: to begin, or to stop.
func (ch *child) say() { _, _ = io.WriteString(ch.in, "go\n") }

// result lets it work and returns what it says.
func (ch *child) result() (bc.Result, error) {
	ch.say()
	return ch.wait()
}

func (ch *child) wait() (bc.Result, error) {
	var r bc.Result
	l, err := ch.until("{")
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal([]byte(l), &r)
}

// kill ends it as kill -9 does.
func (ch *child) kill() {
	_ = ch.cmd.Process.Kill()
	go func() {
		for range ch.lines { // so that its reader ends
		}
	}()
	<-ch.ended
	_ = ch.cmd.Wait()
}

// cost is what happened between two looks at a server.
type cost struct {
	s           server
	cpu, memory float64
}

func (b *bench) look(s server) (cost, error) {
	c := cost{s: s}
	var err error
	if c.cpu, err = s.cpu(); err != nil {
		return c, err
	}
	c.memory, err = s.memory()
	return c, err
}

// since puts what n tasks cost the server into a row: µs and bytes for each.
func (c cost) since(n int, r row) error {
	cpu, err := c.s.cpu()
	if err != nil {
		return err
	}
	memory, err := c.s.memory()
	if err != nil {
		return err
	}
	r["server_us"] = (cpu - c.cpu) * 1e6 / float64(n)
	r["bytes"] = (memory - c.memory) / float64(n)
	return nil
}

// measure runs a contender to its result, and adds what the server says.
func (b *bench) measure(c contender, mode string, n int, args ...string) (row, error) {
	return b.measureOn(b.serverOf(c), c, mode, n, args...)
}

func (b *bench) measureOn(s server, c contender, mode string, n int, args ...string) (row, error) {
	ch, err := b.start(s, c, mode, append(args, "--n", fmt.Sprint(n))...)
	if err != nil {
		return nil, err
	}
	defer ch.kill()
	before, err := b.look(s)
	if err != nil {
		return nil, err
	}
	result, err := ch.result()
	if err != nil {
		return nil, err
	}
	r := rowOf(result)
	if c.node { // it cannot tell
		delete(r, "allocs")
	}
	return r, before.since(n, r)
}

// rowOf is a result as a row.
func rowOf(result bc.Result) row {
	r := row{"client_us": result.Client, "allocs": result.Allocs, "seconds": result.Seconds, "repeats": float64(result.Repeats)}
	if result.Seconds > 0 {
		r["tps"] = float64(result.N) / result.Seconds
	}
	for name, v := range result.More {
		r[name] = v
	}
	return r
}
