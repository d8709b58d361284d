package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/claimq/claimq/internal/pgtest"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/queue"
)

type suite struct{ m *testing.M }

func (s suite) Run() int { return pgtest.Main(s.m) }

func TestMain(m *testing.M) {
	testscript.Main(suite{m}, map[string]func(){"producer": main})
}

// patience is how long a test waits for something that should have happened
// long before.
const patience = 20 * time.Second

// TestScripts runs testdata/*.txt, each with keys of its own on a real server.
func TestScripts(t *testing.T) {
	server := redistest.Shared(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("REDIS_URL", server.URL())
			env.Setenv("REDIS_KEY_PREFIX", redistest.Prefix(t))
			env.Setenv("GORACE", "atexit_sleep_ms=0") // else a second for each run
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"code":      code,
			"lines":     lines,
			"waiting":   waiting,
			"payload":   payload,
			"interrupt": interrupt,
		},
	})
}

// code N args…: runs the producer and wants exit code N.
func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: code N args...")
	}
	err := ts.Exec("producer", args[1:]...)
	got := 0
	if exit, ok := err.(*exec.ExitError); ok {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}

// lines FILE N BYTES: writes N tasks with payloads of so many bytes.
func lines(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: lines FILE N BYTES")
	}
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	size, err := strconv.Atoi(args[2])
	ts.Check(err)
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, `{"id":"t-%d","kind":"k","payload":"%s"}`+"\n", i, strings.Repeat("x", size-2))
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b.Bytes(), 0o644))
}

// open returns the queue of a script.
func open(ts *testscript.TestScript, name string) *queue.Queue {
	opt, err := redis.ParseURL(ts.Getenv("REDIS_URL"))
	ts.Check(err)
	opt.MaxRetries = -1
	client := redis.NewClient(opt)
	ts.Defer(func() { _ = client.Close() })
	q, err := queue.New(queue.Config{Name: name, Prefix: ts.Getenv("REDIS_KEY_PREFIX"), Client: client, ReadClient: client})
	ts.Check(err)
	return q
}

func stats(ts *testscript.TestScript, name string) queue.Stats {
	s, err := open(ts, name).Stats(context.Background())
	ts.Check(err)
	return s
}

// waiting QUEUE N [SCHEDULED]: wants so many tasks there.
func waiting(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: waiting QUEUE N [SCHEDULED]")
	}
	s := stats(ts, args[0])
	got := []string{args[0], fmt.Sprint(s.Waiting), fmt.Sprint(s.Scheduled)}
	if strings.Join(got[:len(args)], " ") != strings.Join(args, " ") {
		ts.Fatalf("waiting %d, scheduled %d", s.Waiting, s.Scheduled)
	}
}

// payload QUEUE ID FILE: wants that payload, byte for byte but for the line
// end of the file.
func payload(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: payload QUEUE ID FILE")
	}
	info, err := open(ts, args[0]).Inspect(context.Background(), queue.TaskID(args[1]))
	ts.Check(err)
	want := strings.TrimSuffix(ts.ReadFile(args[2]), "\n")
	if got := string(info.Task.Payload); got != want {
		ts.Fatalf("payload %q, want %q", got, want)
	}
}

// interrupt SIGNAL FILE N: feeds the first N lines of a file through a pipe
// that stays open, waits until their tasks are in the queue, and sends the
// signal. After term, the summary has to say that it was stopped.
func interrupt(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: interrupt kill|term FILE N")
	}
	n, err := strconv.Atoi(args[2])
	ts.Check(err)
	signal := map[string]os.Signal{"kill": os.Kill, "term": syscall.SIGTERM}[args[0]]
	all := strings.SplitAfter(ts.ReadFile(args[1]), "\n")
	path, err := exec.LookPath(filepath.Join(strings.Split(ts.Getenv("PATH"), string(os.PathListSeparator))[0], "producer"))
	ts.Check(err)
	cmd := exec.Command(path, "-file", "-", "-json")
	cmd.Env = []string{"REDIS_URL=" + ts.Getenv("REDIS_URL"), "REDIS_KEY_PREFIX=" + ts.Getenv("REDIS_KEY_PREFIX")}
	var out bytes.Buffer
	cmd.Stdout = &out
	before := stats(ts, "default").Waiting
	in, err := cmd.StdinPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	_, err = io.WriteString(in, strings.Join(all[:n], "")+all[n][:5]) // and a piece of the next; Wait closes it
	ts.Check(err)
	q := open(ts, "default")
	until(ts, func() bool {
		s, err := q.Stats(context.Background())
		ts.Check(err)
		return s.Waiting == before+int64(n)
	})
	ts.Check(cmd.Process.Signal(signal))
	_ = cmd.Wait() // its exit code is looked at by what it says
	if signal == os.Kill {
		return
	}
	var r report
	ts.Check(json.Unmarshal(out.Bytes(), &r))
	if r.Added != n || !r.Stopped || cmd.ProcessState.ExitCode() != exitFailed {
		ts.Fatalf("exit code %d, %s", cmd.ProcessState.ExitCode(), out.String())
	}
}

func until(ts *testscript.TestScript, done func() bool) {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-limit.C:
			ts.Fatalf("not within %v", patience)
		}
	}
}
