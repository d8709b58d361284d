// Command bench measures claimq and its peers on the same work, on servers that
// it starts itself, and says for each target whether it is met.
//
//	go run .             a short run, about four minutes
//	go run . -full       everything, within an hour
//	go run . -run drain  one section
//
// Each contender is a program of its own (see contenders), so that what its
// process costs is its own. The server's cost is read from the server's
// accounts. A contender that does not build or run is named and left out.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type config struct {
	full     bool
	sections []string
	only     []string
	aof      bool
	server   string // redis-server, by name or path
	verbose  bool
}

func flags() (config, error) {
	var c config
	var sections, only string
	flag.BoolVar(&c.full, "full", false, "run everything, within an hour")
	flag.StringVar(&sections, "run", "", "sections, with commas between them (default all): "+strings.Join(sectionNames(), ", "))
	flag.StringVar(&only, "only", "", "contenders, with commas between them (default all)")
	flag.StringVar(&c.server, "server", "redis-server", "redis-server or valkey-server, by name or path")
	flag.BoolVar(&c.aof, "aof", false, "run redis-server with an append-only file, synced every second")
	flag.BoolVar(&c.verbose, "v", false, "print each result as it comes")
	flag.Parse()
	c.sections, c.only = list(sections), list(only)
	for _, s := range c.sections {
		if !slices.Contains(sectionNames(), s) {
			return c, fmt.Errorf("no section %q: there are %s", s, strings.Join(sectionNames(), ", "))
		}
	}
	return c, nil
}

func list(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}

// section is a part of the benchmark.
type section struct {
	name  string
	run   func(*bench) error
	show  func(*bench, io.Writer)
	named bool // runs only when it is asked for by name
}

func sections() []section {
	return []section{
		{name: "cycle", run: (*bench).cycle, show: (*bench).showCycle},
		{name: "drain", run: (*bench).drain, show: (*bench).showDrain},
		{name: "enqueue", run: (*bench).enqueue, show: (*bench).showEnqueue},
		{name: "both", run: (*bench).both, show: (*bench).showBoth},
		{name: "steady", run: (*bench).steady, show: (*bench).showSteady},
		{name: "quiet", run: (*bench).quiet, show: (*bench).showQuiet},
		{name: "growth", run: (*bench).growth, show: (*bench).showGrowth},
		{name: "instructions", run: (*bench).instructions, show: (*bench).showInstructions, named: true},
	}
}

func sectionNames() []string {
	var names []string
	for _, s := range sections() {
		names = append(names, s.name)
	}
	return names
}

func run(ctx context.Context, out io.Writer) error {
	cfg, err := flags()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "claimq-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{ctx: ctx, config: cfg, dir: dir, results: results{}}
	b.build()
	if err := b.startServers(); err != nil {
		return err
	}
	defer b.stopServers()
	b.header(out)
	began := time.Now()
	for _, s := range sections() {
		if (s.named || len(cfg.sections) > 0) && !slices.Contains(cfg.sections, s.name) {
			continue
		}
		at := time.Now()
		if err := s.run(b); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		b.title(out, s.name)
		s.show(b, out)
		b.note("%s took %s", s.name, time.Since(at).Round(time.Second))
	}
	b.showLeftOut(out)
	fmt.Fprintf(out, "\nTook %s. Load when it ended: %s.\n\n", time.Since(began).Round(time.Second), load())
	for _, t := range b.targets() {
		fmt.Fprintln(out, t)
	}
	return nil
}

// title names a section and the command that makes its figures.
func (b *bench) title(out io.Writer, name string) {
	command := "go run . -run " + name
	if b.full {
		command = "go run . -full -run " + name
	}
	if b.aof {
		command += " -aof"
	}
	fmt.Fprintf(out, "\n## %s\n\n`%s`\n\n", name, command)
}

// note tells whoever waits how far it is.
func (b *bench) note(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
}
