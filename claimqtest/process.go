package claimqtest

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/queue"
)

// ErrKilled is what a handler gets that goes on after its worker was killed.
var ErrKilled = errors.New("claimqtest: this worker was killed")

// What callers of a broken network get.
var (
	errRequest = &net.OpError{Op: "write", Net: "claimqtest", Err: syscall.EPIPE}
	errReply   = &net.OpError{Op: "read", Net: "claimqtest", Err: os.ErrDeadlineExceeded}
	errRefused = &net.OpError{Op: "dial", Net: "claimqtest", Err: syscall.ECONNREFUSED}
)

// process is what a worker shares with others and can be cut off from.
type process struct {
	tr *trial

	mu      sync.Mutex
	dead    bool
	resumed chan struct{} // not nil: paused
	conns   map[seam][]net.Conn
	away    map[seam]time.Time // a server is not reached until then

	clients []*redis.Client
	queue   *queue.Queue
}

func newProcess(tr *trial) *process {
	return &process{tr: tr, conns: map[seam][]net.Conn{}, away: map[seam]time.Time{}}
}

// newQueue makes the queue as this process sees it. hooks see its commands,
// but not the reads.
func (p *process) newQueue(cfg queue.Config, hooks ...redis.Hook) (*queue.Queue, error) {
	client, reader := p.tr.server.client(p), p.tr.server.client(p)
	for _, h := range hooks {
		client.AddHook(h)
	}
	p.clients = append(p.clients, client, reader)
	cfg.Client, cfg.ReadClient = client, reader
	q, err := queue.New(cfg)
	p.queue = q
	return q, err
}

// gate waits while the process is paused. An error means that it is dead.
func (p *process) gate() error {
	for {
		p.mu.Lock()
		dead, resumed := p.dead, p.resumed
		p.mu.Unlock()
		switch {
		case dead:
			return ErrKilled
		case resumed == nil:
			return nil
		}
		<-resumed
	}
}

func (p *process) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.resumed == nil && !p.dead {
		p.resumed = make(chan struct{})
	}
}

func (p *process) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.resumed != nil {
		close(p.resumed)
		p.resumed = nil
	}
}

func (p *process) isPaused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.resumed != nil
}

func (p *process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// kill ends the process as far as others can see.
func (p *process) kill() {
	p.mu.Lock()
	p.dead = true
	p.mu.Unlock()
	p.cut(seamRedis)
	p.cut(seamPostgres)
	p.resume()
}

// leave takes a server away for d.
func (p *process) leave(s seam, d time.Duration) {
	p.mu.Lock()
	p.away[s] = time.Now().Add(d)
	p.mu.Unlock()
	p.cut(s)
}

// cut closes the connections to a server.
func (p *process) cut(s seam) {
	p.mu.Lock()
	conns := p.conns[s]
	p.conns[s] = nil
	p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}

// dial makes a connection through which the process can be stopped.
func (p *process) dial(s seam, dial func() (net.Conn, error)) (*gatedConn, error) {
	if p.gate() != nil || p.isAway(s) {
		return nil, errRefused
	}
	c, err := dial()
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead || time.Now().Before(p.away[s]) { // meanwhile
		_ = c.Close()
		return nil, errRefused
	}
	p.conns[s] = append(p.conns[s], c)
	return &gatedConn{Conn: c, p: p}, nil
}

func (p *process) isAway(s seam) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Before(p.away[s])
}

// close gives up what the process had.
func (p *process) close() {
	p.kill()
	if p.queue != nil {
		_ = p.queue.Close()
	}
	for _, c := range p.clients {
		_ = c.Close()
	}
}

// gatedConn is a connection that stands still with its process.
type gatedConn struct {
	net.Conn
	p *process
}

func (c *gatedConn) Read(b []byte) (int, error) {
	if err := c.p.gate(); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(b)
	if dead := c.p.gate(); dead != nil {
		return 0, dead
	}
	return n, err
}

func (c *gatedConn) Write(b []byte) (int, error) {
	if err := c.p.gate(); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// refusedConn is a connection that was refused. The Redis client logs refused
// dials by itself, but not this.
type refusedConn struct{ net.Conn }

func (refusedConn) Read([]byte) (int, error)         { return 0, errRefused }
func (refusedConn) Write([]byte) (int, error)        { return 0, errRefused }
func (refusedConn) Close() error                     { return nil }
func (refusedConn) SetDeadline(time.Time) error      { return nil }
func (refusedConn) SetReadDeadline(time.Time) error  { return nil }
func (refusedConn) SetWriteDeadline(time.Time) error { return nil }
func (refusedConn) LocalAddr() net.Addr              { return &net.UnixAddr{} }
func (refusedConn) RemoteAddr() net.Addr             { return &net.UnixAddr{} }
