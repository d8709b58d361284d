package sim

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/claimq/claimq/queue"
)

// odds are the chances of a message.
type odds struct{ cut, lost, slow float64 }

// proc is a process. Whatever others can see of it (what it sends, reads and
// effects) waits while it is paused and fails once it is dead.
type proc struct {
	w      *world
	srv    *server
	name   string
	faulty bool
	odds   odds

	mu     sync.Mutex
	resume chan struct{} // not nil: paused
	died   chan struct{}
	dead   bool
	conns  []*conn
	holes  [2]time.Time // until then replies (0), requests (1) are lost
	dials  int

	draining atomic.Bool
	client   *redis.Client
	queue    *queue.Queue
}

func newProc(w *world, srv *server, name string, faulty bool, o odds, cfg queue.Config) *proc {
	p := &proc{w: w, srv: srv, name: name, faulty: faulty, odds: o, died: make(chan struct{})}
	p.client = redis.NewClient(&redis.Options{
		Addr:                     "127.0.0.1:6379",
		ClientName:               name,
		Protocol:                 2,
		Dialer:                   p.dial,
		DialerRetries:            1,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		ContextTimeoutEnabled:    true,
		MaxRetries:               -1,
		PoolSize:                 64,
	})
	cfg.Client = p.client
	cfg.Rand = w.source("tokens/" + name)
	q, err := queue.New(cfg)
	if err != nil {
		panic(err)
	}
	p.queue = q
	return p
}

func (p *proc) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	refused := &net.OpError{Op: "dial", Net: "sim", Err: syscall.ECONNREFUSED}
	if p.gate() != nil {
		return nil, refused
	}
	if p.faulty && !p.w.isCalm() && (p.inHole(true) || p.inHole(false)) {
		_ = p.sleep(ctx, p.w.between(900*time.Millisecond, time.Second, "dial", p.name, strconv.FormatInt(int64(p.w.now()), 10)))
		return nil, refused
	}
	p.mu.Lock()
	p.dials++
	c := p.connect(fmt.Sprintf("%s/%d", p.name, p.dials))
	p.conns = append(p.conns, c)
	p.mu.Unlock()
	p.srv.mini.Server().ServeConn(c.peer)
	return c, nil
}

// gate waits while the process is paused; an error means that it is dead.
func (p *proc) gate() error {
	for {
		p.mu.Lock()
		dead, resume := p.dead, p.resume
		p.mu.Unlock()
		if dead {
			return errDead
		}
		if resume == nil {
			return nil
		}
		<-resume
	}
}

// sleep is a wait by the process's own clock.
func (p *proc) sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(p.w.delay(d))
	defer t.Stop()
	select {
	case <-t.C:
		return p.awake(d)
	case <-p.died:
		return errDead
	case <-ctx.Done():
		if err := p.awake(d); err != nil {
			return err
		}
		return context.Cause(ctx)
	}
}

// awake is gate for one of many: what waited for the end of a pause goes on one
// after the other, in the order of the seed.
func (p *proc) awake(d time.Duration) error {
	before := time.Now()
	err := p.gate()
	if err == nil && time.Now().After(before) {
		<-time.After(p.w.delay(p.w.between(0, time.Millisecond, "awake", p.name, d.String())))
		return p.gate()
	}
	return err
}

func (p *proc) inHole(request bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	way := 0
	if request {
		way = 1
	}
	return time.Now().Before(p.holes[way])
}

// hole loses everything in one direction for a while.
func (p *proc) hole(request bool, d time.Duration) {
	way, name := 0, "black hole for replies"
	if request {
		way, name = 1, "black hole for requests"
	}
	p.w.fault(p.name, name, d+5*time.Second)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holes[way] = time.Now().Add(d)
}

// cut resets all connections, one after the other.
func (p *proc) cut() {
	p.w.fault(p.name, "connections cut", time.Second)
	for i, c := range p.connections() {
		p.w.after(time.Duration(i)*7*time.Microsecond, c.reset)
	}
}

func (p *proc) connections() []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*conn(nil), p.conns...)
}

// pause stops the process for d.
func (p *proc) pause(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead || p.resume != nil {
		return
	}
	resume := make(chan struct{})
	p.resume = resume
	p.w.fault(p.name, "pause", d+time.Second)
	p.w.after(d, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.resume == resume {
			p.resume = nil
			close(resume)
		}
	})
}

// crash ends the process: with its connections closed, or, as a machine that
// loses its power, without a word.
func (p *proc) crash(silent bool) {
	kind := "crash"
	if silent {
		kind = "silent crash"
	}
	if p.die(silent) {
		p.w.fault(p.name, kind, forever)
	}
}

// die reports whether it lived.
func (p *proc) die(silent bool) bool {
	p.mu.Lock()
	if p.dead {
		p.mu.Unlock()
		return false
	}
	p.dead = true
	resume := p.resume
	p.resume = nil
	p.mu.Unlock()
	for _, c := range p.connections() {
		if silent {
			c.vanish()
		} else {
			_ = c.Close()
		}
	}
	if resume != nil {
		close(resume)
	}
	close(p.died)
	return true
}

// close gives up what is left of an ended process.
func (p *proc) close() {
	p.die(false)
	_ = p.queue.Close()
	_ = p.client.Close()
}

// bury ends the server's side of connections that vanished.
func (p *proc) bury() {
	for _, c := range p.connections() {
		c.peer.in.end(net.ErrClosed)
	}
}
