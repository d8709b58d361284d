package fleet

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Build compiles the worker into dir and returns its path.
func Build(dir string) (string, error) {
	path := filepath.Join(dir, "worker")
	out, err := exec.Command("go", "build", "-o", path, "github.com/claimq/claimq/cmd/worker").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building the worker: %w\n%s", err, out)
	}
	return path, nil
}

// Worker is one worker process.
type Worker struct {
	Name   string
	Log    *Log
	Exited chan struct{} // closed when the process is gone

	cmd *exec.Cmd

	mu     sync.Mutex
	killed time.Time
}

// Start runs the worker at path with env as its whole environment. It is
// killed with the test at the latest.
func Start(tb testing.TB, path, name string, env []string) *Worker {
	tb.Helper()
	return Run(tb, name, env, path, "run")
}

// Run runs any program as Start runs a worker.
func Run(tb testing.TB, name string, env []string, path string, args ...string) *Worker {
	tb.Helper()
	w := &Worker{Name: name, Exited: make(chan struct{}), Log: &Log{}}
	w.cmd = exec.Command(path, args...)
	w.cmd.Env = env
	w.cmd.Stderr, w.cmd.Stdout = w.Log, w.Log
	w.cmd.SysProcAttr = sysProcAttr()
	if err := w.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	go func() {
		_ = w.cmd.Wait() // how it ended is asked of ExitCode
		close(w.Exited)
	}()
	tb.Cleanup(func() {
		_ = w.cmd.Process.Kill()
		<-w.Exited
		if tb.Failed() {
			tb.Logf("%s:\n%s", name, w.Log.Tail(30))
		}
	})
	return w
}

// DiedAt is when Kill was called; zero: it was not.
func (w *Worker) DiedAt() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.killed
}

// Kill ends the worker as a crash would.
func (w *Worker) Kill() {
	w.mu.Lock()
	w.killed = time.Now()
	w.mu.Unlock()
	_ = w.cmd.Process.Kill() // an error: it has ended already
	<-w.Exited
}

// Signal sends sig to a process that runs.
func (w *Worker) Signal(tb testing.TB, sig syscall.Signal) {
	tb.Helper()
	if err := w.cmd.Process.Signal(sig); err != nil {
		tb.Fatalf("%s: %v: %v\n%s", w.Name, sig, err, w.Log.Tail(30))
	}
}

// Terminate asks for a drain and gives the exit code.
func (w *Worker) Terminate(within time.Duration) (int, error) {
	if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return 0, err
	}
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case <-w.Exited:
		return w.ExitCode(), nil
	case <-late.C:
		return 0, fmt.Errorf("%s did not stop within %v\n%s", w.Name, within, w.Log.Tail(30))
	}
}

// ExitCode is that of a process that has ended.
func (w *Worker) ExitCode() int { return w.cmd.ProcessState.ExitCode() }

// Log keeps what a worker logs.
type Log struct {
	mu   sync.Mutex
	text []byte
}

func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, b...)
	return len(b), nil
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

// Tail returns the last lines.
func (l *Log) Tail(lines int) string {
	all := strings.Split(strings.TrimSpace(l.String()), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Says reports whether the worker has logged a message.
func (l *Log) Says(message string) bool { return strings.Contains(l.String(), `"msg":"`+message) }
