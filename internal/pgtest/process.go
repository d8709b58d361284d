package pgtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	startTimeout = 60 * time.Second // generous: a loaded two-core machine, recovery after a kill
	stopTimeout  = 15 * time.Second // after a signal to stop, before SIGKILL
	pollEvery    = 10 * time.Millisecond
	portAttempts = 20
	logTail      = 4 << 10

	// Below the range from which the kernel gives ports to outgoing
	// connections, and apart from those of redistest and faultredis.
	portLow, portHigh = 10000, 12000
)

// process is one server: its port and directory stay the same over restarts,
// the operating system's processes do not.
type process struct {
	bin      string // directory of initdb and postgres
	dir      string // holds data and log; belongs to whom the server runs as
	port     int
	settings []string

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has ended and was waited for
}

func newProcess(settings []string) (*process, error) {
	bin, err := findBinaries()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "claimq-pg-")
	if err != nil {
		return nil, err
	}
	p := &process{bin: bin, dir: dir, settings: settings}
	if err = p.initdb(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
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
	err = fmt.Errorf("%w\nlog of postgres:\n%s", err, p.log())
	return nil, errors.Join(err, os.RemoveAll(dir))
}

// findBinaries returns the directory of the newest server there is. Debian
// keeps them off the PATH, one directory for each version.
func findBinaries() (string, error) {
	if dir := os.Getenv("CLAIMQ_POSTGRES_BIN"); dir != "" {
		_, err := os.Stat(filepath.Join(dir, "initdb"))
		return dir, err
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return "", err
	}
	if len(found) > 0 {
		version := func(path string) int {
			n, _ := strconv.Atoi(strings.Split(path, "/")[4])
			return n
		}
		return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })), nil
	}
	path, err := exec.LookPath("initdb")
	if err != nil {
		return "", errors.New("PostgreSQL is needed and was not found: run 'make deps', or 'apt-get install postgresql', " +
			"or set CLAIMQ_POSTGRES_BIN to the directory of initdb and postgres")
	}
	return filepath.Dir(path), nil
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

func (p *process) data() string { return filepath.Join(p.dir, "data") }

func (p *process) dsn(database string) string {
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Host: p.addr(), Path: database, RawQuery: "sslmode=disable"}
	return u.String()
}

func (p *process) initdb() error {
	if err := giveAway(p.dir); err != nil {
		return err
	}
	cmd := exec.Command(filepath.Join(p.bin, "initdb"), "--pgdata", p.data(), "--username", "postgres",
		"--auth", "trust", "--no-sync", "--encoding", "UTF8", "--no-locale")
	cmd.Dir, cmd.SysProcAttr = p.dir, sysProcAttr()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

// start runs the server and returns once it answers.
func (p *process) start() error {
	logFile, err := os.OpenFile(p.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer logFile.Close()

	args := []string{"-D", p.data()}
	for _, s := range append([]string{
		"listen_addresses=127.0.0.1",
		"port=" + strconv.Itoa(p.port),
		"unix_socket_directories=",
		"max_connections=200",
		"fsync=off",
		"full_page_writes=off",
	}, p.settings...) {
		args = append(args, "-c", s)
	}
	cmd := exec.Command(filepath.Join(p.bin, "postgres"), args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = logFile, logFile, p.dir
	cmd.SysProcAttr = sysProcAttr()

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
	if err := p.waitReady(ctx, done); err != nil {
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

func (p *process) waitReady(ctx context.Context, done <-chan struct{}) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	var last error
	for {
		if last = p.ask(ctx); last == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-done:
			return errors.New("postgres ended while starting")
		case <-ctx.Done():
			return fmt.Errorf("postgres does not answer: %w; last: %w", ctx.Err(), last)
		}
	}
}

// ask reports nil when this server answers, and not another that has the port.
func (p *process) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.dsn("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	var dir string
	if err := conn.QueryRow(ctx, "show data_directory").Scan(&dir); err != nil {
		return err
	}
	if dir != p.data() {
		return fmt.Errorf("another server has port %d", p.port)
	}
	return nil
}

func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// kill ends the server's processes at once and waits until the first is gone.
func (p *process) kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return nil
	}
	// Frozen, it starts no further ones while they are looked for.
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		if errors.Is(err, os.ErrProcessDone) {
			return nil
		}
		return err
	}
	own := children(p.cmd.Process.Pid)
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.done
	return killAll(own)
}

// shutdown ends the server in an orderly way, whoever is connected.
func (p *process) shutdown() error { return p.end(syscall.SIGINT) }

// close ends the server without a checkpoint. Unlike SIGKILL this lets it give
// its shared memory back.
func (p *process) close() error {
	return errors.Join(p.end(syscall.SIGQUIT), os.RemoveAll(p.dir))
}

func (p *process) end(sig syscall.Signal) error {
	p.mu.Lock()
	cmd, done := p.cmd, p.done
	p.mu.Unlock()
	if cmd == nil {
		return nil
	}
	if err := cmd.Process.Signal(sig); err != nil {
		if errors.Is(err, os.ErrProcessDone) {
			return nil
		}
		return err
	}
	late := time.NewTimer(stopTimeout)
	defer late.Stop()
	select {
	case <-done:
		return nil
	case <-late.C:
		return errors.Join(fmt.Errorf("postgres ignored %v", sig), p.kill())
	}
}

func (p *process) logPath() string { return filepath.Join(p.dir, "postgres.log") }

func (p *process) log() string {
	b, err := os.ReadFile(p.logPath())
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-logTail):])
}
