package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Bounds on worker processes.
const (
	stopTimeout = 8 * time.Second // from SIGTERM to SIGKILL
	keptLines   = 20              // of a worker's log, shown when it fails
)

// process is one worker process. It is only ever signalled by its own handle.
type process struct {
	name   string
	cmd    *exec.Cmd
	stdin  io.Closer     // its end makes the worker stop, should this process die
	exited chan struct{} // closed when it has ended and err is set
	err    error
	log    *logTail

	mu     sync.Mutex
	state  string // "running", "killed", "frozen", "stopped"
	counts counters
}

// fleet starts worker processes and sees to it that none outlives it.
type fleet struct {
	command []string // path, then arguments
	arg0    string   // what the worker sees as its own name
	env     func(worker string) []string

	mu   sync.Mutex
	list []*process
}

// start runs one more worker.
func (f *fleet) start() (*process, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := &process{
		name:   fmt.Sprintf("worker-%d", len(f.list)+1),
		exited: make(chan struct{}),
		state:  "running",
		log:    &logTail{addr: make(chan string, 1)},
	}
	p.cmd = exec.Command(f.command[0], f.command[1:]...)
	p.cmd.Args[0] = f.arg0
	p.cmd.Env = f.env(p.name)
	p.cmd.Stderr = p.log
	// A pipe nobody writes to: it ends when we do, also by SIGKILL.
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.stdin = stdin
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	f.list = append(f.list, p)
	return p, nil
}

func (f *fleet) all() []*process {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*process(nil), f.list...)
}

func (f *fleet) byName(name string) *process {
	for _, p := range f.all() {
		if p.name == name {
			return p
		}
	}
	return nil
}

// failed returns an error when a worker ended that nobody killed.
func (f *fleet) failed() error {
	for _, p := range f.all() {
		if p.ended() && p.is("running", "frozen") {
			return fmt.Errorf("%s ended by itself: %w%s", p.name, orClean(p.err), p.log)
		}
	}
	return nil
}

// stop asks every worker to drain and waits; one that does not end in time, or
// ends with an error, is an error.
func (f *fleet) stop() error {
	var errs []error
	for _, p := range f.all() {
		if p.is("running") && !p.ended() {
			errs = append(errs, p.signal(syscall.SIGTERM))
		}
	}
	limit := time.NewTimer(stopTimeout)
	defer limit.Stop()
	for _, p := range f.all() {
		if !p.is("running") {
			continue
		}
		select {
		case <-p.exited:
			p.set("stopped")
			if p.err != nil {
				errs = append(errs, fmt.Errorf("%s stopped with %w%s", p.name, p.err, p.log))
			}
		case <-limit.C:
			return errors.Join(append(errs, fmt.Errorf("%s did not stop within %v%s", p.name, stopTimeout, p.log))...)
		}
	}
	return errors.Join(errs...)
}

// close kills whatever still lives, frozen ones too, and waits for it.
func (f *fleet) close() {
	for _, p := range f.all() {
		if !p.ended() {
			// An error means that it ended in this moment.
			_ = p.cmd.Process.Kill()
		}
	}
	for _, p := range f.all() {
		<-p.exited
		p.stdin.Close()
	}
}

func (p *process) signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("%s: %v: %w", p.name, sig, err)
	}
	return nil
}

func (p *process) ended() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

func (p *process) set(state string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = state
}

func (p *process) is(states ...string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range states {
		if p.state == s {
			return true
		}
	}
	return false
}

// kill ends the process as a crash would, and waits until it is gone.
func (p *process) kill() error {
	p.set("killed")
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.exited
	return nil
}

// stoppedAfter is how long a process may go on after SIGSTOP was sent to it: the
// signal is taken when each of its threads is next interrupted.
const stoppedAfter = 50 * time.Millisecond

func (p *process) freeze(ctx context.Context) error {
	if sigStop == nil {
		return errors.New("a process cannot be frozen on this system")
	}
	p.set("frozen")
	if err := p.signal(sigStop); err != nil {
		return err
	}
	return pause(ctx, stoppedAfter)
}

func (p *process) thaw() error {
	if err := p.signal(sigCont); err != nil {
		return err
	}
	p.set("running")
	return nil
}

// logTail keeps the last lines of a worker's log and finds in it where the
// worker serves its metrics.
type logTail struct {
	addr chan string

	mu      sync.Mutex
	partial []byte
	lines   [][]byte
}

func (l *logTail) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.partial = append(l.partial, b...)
	for {
		line, rest, ok := bytes.Cut(l.partial, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		l.partial = append([]byte(nil), rest...)
		l.lines = append(l.lines, append([]byte(nil), line...))
		if len(l.lines) > keptLines {
			l.lines = l.lines[1:]
		}
		var entry struct{ Addr string }
		if json.Unmarshal(line, &entry) == nil && entry.Addr != "" {
			select {
			case l.addr <- entry.Addr:
			default:
			}
		}
	}
}

// String is for the end of an error message.
func (l *logTail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) == 0 {
		return ""
	}
	return "\nits log ends:\n  " + string(bytes.Join(l.lines, []byte("\n  ")))
}

func orClean(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// pause waits for d unless ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
