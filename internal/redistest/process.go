package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	startTimeout = 30 * time.Second // generous: a loaded two-core machine, a long append-only file
	stopTimeout  = 10 * time.Second // after SIGTERM, before SIGKILL
	pollEvery    = 5 * time.Millisecond
	portAttempts = 20
	logTail      = 4 << 10

	// Ports are taken from below the range from which the kernel gives ports
	// to outgoing connections. From inside that range a client's own
	// connection could take the port of a server that is down for a moment.
	portLow, portHigh = 20000, 32000
)

// process is one redis-server: its port and directory stay the same over
// restarts, the operating system's process does not.
type process struct {
	binary string
	dir    string
	port   int
	env    []string // added to that of the test
	args   []string

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has ended and was waited for
}

func newProcess(env, args []string) (*process, error) {
	binary, err := findBinary()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "claimq-redis-")
	if err != nil {
		return nil, err
	}
	p := &process{binary: binary, dir: dir, env: env, args: args}
	// The port is only free at the moment of asking, so a lost race is
	// answered with another port, and only a repeated one is an error.
	for range portAttempts {
		if p.port, err = freePort(); err != nil {
			break
		}
		if err = p.start(); err == nil {
			return p, nil
		}
		if !strings.Contains(p.log(), "Address already in use") {
			break
		}
	}
	err = fmt.Errorf("%w\nlog of redis-server:\n%s", err, p.log())
	return nil, errors.Join(err, os.RemoveAll(dir))
}

func findBinary() (string, error) {
	name := os.Getenv("CLAIMQ_REDIS_SERVER")
	if name == "" {
		name = "redis-server"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("redis-server is needed and was not found (%w): "+
			"run 'make deps', or 'apt-get install redis-server', or set CLAIMQ_REDIS_SERVER to its path", err)
	}
	return path, nil
}

func freePort() (int, error) {
	var err error
	for range portAttempts {
		port := portLow + rand.IntN(portHigh-portLow)
		var l net.Listener
		if l, err = net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("no free port: %w", err)
}

func (p *process) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

// start runs the server and returns once it answers.
func (p *process) start() error {
	logFile, err := os.OpenFile(p.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer logFile.Close()

	args := append([]string{
		"--port", strconv.Itoa(p.port),
		"--bind", "127.0.0.1",
		"--dir", p.dir,
		"--save", "",
		"--daemonize", "no",
	}, p.args...)
	cmd := exec.Command(p.binary, args...)
	// A file, not a pipe: a pipe costs a goroutine that outlives a killed server.
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.SysProcAttr = sysProcAttr()
	if len(p.env) > 0 {
		cmd.Env = append(os.Environ(), p.env...)
	}

	started := make(chan error, 1)
	done := make(chan struct{})
	go supervise(cmd, started, done)
	if err := <-started; err != nil {
		return err
	}
	p.mu.Lock()
	p.cmd, p.done = cmd, done
	p.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := p.waitReady(ctx, cmd.Process.Pid, done); err != nil {
		return errors.Join(err, p.kill())
	}
	return nil
}

// supervise starts the process and waits for it, both on one thread that
// belongs to nobody else: on Linux the death signal is sent when the thread
// that started the child ends, and a thread of the pool may end early.
func supervise(cmd *exec.Cmd, started chan<- error, done chan<- struct{}) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(done)
	err := cmd.Start()
	started <- err
	if err == nil {
		_ = cmd.Wait() // how it ended is in its log
	}
}

func (p *process) waitReady(ctx context.Context, pid int, done <-chan struct{}) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	var last error
	for {
		if last = p.ask(pid); last == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-done:
			return errors.New("redis-server ended while starting")
		case <-ctx.Done():
			return fmt.Errorf("redis-server does not answer: %w; last: %w", ctx.Err(), last)
		}
	}
}

// ask reports nil when the server with the given process ID answers commands.
// The ID matters: where two test binaries race for a port, the loser would
// otherwise take the winner's answer for its own server's.
func (p *process) ask(pid int) error {
	conn, err := net.DialTimeout("tcp4", p.addr(), time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "PING\r\nINFO server\r\n"); err != nil {
		return err
	}
	r := bufio.NewReader(conn)
	pong, err := r.ReadString('\n')
	if err != nil {
		return err
	}
	if strings.HasPrefix(pong, "-NOAUTH") {
		return nil // started with a password, which only the test knows
	}
	if pong != "+PONG\r\n" {
		return errors.New(strings.TrimSpace(pong))
	}
	want := fmt.Sprintf("process_id:%d\r\n", pid)
	for {
		line, err := r.ReadString('\n')
		switch {
		case err != nil:
			return err
		case line == want:
			return nil
		case strings.HasPrefix(line, "process_id:"):
			return fmt.Errorf("another server has port %d", p.port)
		}
	}
}

func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// signal sends sig by process ID; a process that has ended is not an error.
func (p *process) signal(sig os.Signal) (done <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		ended := make(chan struct{})
		close(ended)
		return ended, nil
	}
	if err = p.cmd.Process.Signal(sig); errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	return p.done, err
}

// kill ends the process at once and waits until it is gone. SIGKILL also ends
// a process that SIGSTOP holds.
func (p *process) kill() error {
	done, err := p.signal(syscall.SIGKILL)
	if err != nil {
		return err
	}
	<-done
	return nil
}

// shutdown lets the server write what it is configured to write.
func (p *process) shutdown() error {
	done, err := p.signal(syscall.SIGTERM)
	if err != nil {
		return err
	}
	late := time.NewTimer(stopTimeout)
	defer late.Stop()
	select {
	case <-done:
		return nil
	case <-late.C:
		return errors.Join(errors.New("redis-server ignored SIGTERM"), p.kill())
	}
}

func (p *process) close() error {
	return errors.Join(p.kill(), os.RemoveAll(p.dir))
}

func (p *process) logPath() string { return filepath.Join(p.dir, "redis.log") }

func (p *process) log() string {
	b, err := os.ReadFile(p.logPath())
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-logTail):])
}
