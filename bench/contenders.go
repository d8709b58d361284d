package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// contender is a program, or a variant of one, that takes part.
type contender struct {
	name    string
	program string // its directory under contenders
	variant string
	module  string  // whose version is printed
	rate    float64 // tasks per second it is expected to drain at 64 handlers: sizes the work
	batch   bool    // it can enqueue many tasks with one call
	inner   bool    // a yardstick, not a peer
	node    bool
	server  string // "" for redis
	best    string // its settings, named
}

const (
	us        = "claimq"
	bare      = "claimq, no safety"
	floor     = "floor"
	single    = "floor, single commands"
	asynq     = "asynq"
	watermill = "watermill-redisstream"
	riverName = "river"
)

func contenders() []contender {
	return []contender{
		{name: us, program: "claimq", rate: 30000, batch: true, best: "defaults"},
		{name: bare, program: "claimq", variant: "bare", rate: 30000, batch: true, inner: true, best: "the same code, scripts replaced by XADD, XACK and XDEL"},
		{name: floor, program: "floor", rate: 100000, batch: true, inner: true, best: "stream commands in batches of 100"},
		{name: single, program: "floor", variant: "single", rate: 8000, inner: true, best: "one stream command in a round trip"},
		{name: asynq, program: "asynq", module: "github.com/hibiken/asynq", rate: 6000, best: "task IDs, no retention; an empty queue is looked at every 5 ms"},
		{name: "rmq", program: "rmq", module: "github.com/adjust/rmq/v5", rate: 10000, batch: true, best: "1,000 fetched ahead, polls every 10 ms, cleaner each second"},
		{name: "machinery", program: "machinery", module: "github.com/RichardKnop/machinery/v2", rate: 10000, best: "go-redis broker, no result backend"},
		{name: watermill, program: "watermill", module: "github.com/ThreeDotsLabs/watermill-redisstream", rate: 12000, batch: true, best: "a subscriber for each handler"},
		{name: "taskq", program: "taskq", module: "github.com/vmihailenco/taskq/v3", rate: 12000, best: "100 reserved at once, 200 buffered, task names"},
		{name: riverName, program: "river", module: "github.com/riverqueue/river", rate: 8000, batch: true, server: "postgres", best: "COPY for batches, fetches every 1 ms; PostgreSQL without fsync"},
		{name: "bullmq", program: "bullmq", module: "bullmq", rate: 5000, batch: true, node: true, best: "job IDs, removed on completion"},
	}
}

// build compiles the contenders. What fails is left out.
func (b *bench) build() {
	built := map[string]error{}
	for _, c := range contenders() {
		if len(b.only) > 0 && !slices.Contains(b.only, c.program) {
			continue
		}
		if _, ok := built[c.program]; !ok {
			b.note("building %s", c.program)
			built[c.program] = b.buildProgram(c)
		}
		if err := built[c.program]; err != nil {
			b.leaveOut(c.name, err)
			continue
		}
		b.contenders = append(b.contenders, c)
	}
}

func (b *bench) buildProgram(c contender) error {
	if !c.node {
		return output(exec.CommandContext(b.ctx, "go", "build", "-mod=mod", "-o", filepath.Join(b.dir, c.program), "./contenders/"+c.program))
	}
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is not there", tool)
		}
	}
	dir := filepath.Join(b.dir, c.program)
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("contenders", c.program))); err != nil {
		return err
	}
	install := exec.CommandContext(b.ctx, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	install.Dir = dir
	return output(install)
}

// output runs a command and puts the end of what it printed into its error.
func output(cmd *exec.Cmd) error {
	text, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return fmt.Errorf("%s %s: %w: %s", cmd.Args[0], cmd.Args[1], err, strings.Join(lines[max(0, len(lines)-3):], " / "))
}

func (b *bench) leaveOut(name string, reason error) {
	b.note("%s is left out: %v", name, reason)
	b.leftOut = append(b.leftOut, name+": "+reason.Error())
	b.contenders = slices.DeleteFunc(b.contenders, func(c contender) bool { return c.name == name })
}

func (b *bench) showLeftOut(out io.Writer) {
	fmt.Fprintln(out, "\n## left out")
	fmt.Fprintln(out)
	if len(b.leftOut) == 0 {
		fmt.Fprintln(out, "Nobody.")
	}
	for _, l := range b.leftOut {
		fmt.Fprintln(out, "-", l)
	}
}
