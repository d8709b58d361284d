package sim

import (
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

var errDead = errors.New("the process is dead")

// flow is one direction of a connection: bytes that arrive after a while, in
// order, without bound.
type flow struct {
	w *world

	mu       sync.Mutex
	buf      []byte
	err      error // after buf
	closed   bool  // nothing more is accepted
	holed    bool  // nothing more arrives
	lastAt   time.Time
	deadline time.Time
	wake     chan struct{}
}

func newFlow(w *world) *flow { return &flow{w: w, wake: make(chan struct{}, 1)} }

func (f *flow) poke() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// later runs do after d, never before what was sent before. The caller holds mu.
func (f *flow) later(d time.Duration, do func()) {
	at := time.Now().Add(d)
	if !at.After(f.lastAt) {
		at = f.lastAt.Add(1)
	}
	at = f.w.unique(at)
	f.lastAt = at
	time.AfterFunc(time.Until(at), do)
}

// end is what the reader gets after what has arrived.
func (f *flow) end(err error) {
	f.mu.Lock()
	if f.err == nil {
		f.err = err
	}
	f.closed = true
	f.mu.Unlock()
	f.poke()
}

// conn is one end of a connection.
type conn struct {
	p      *proc
	client bool
	name   string
	in     *flow
	out    *flow
	peer   *conn
	once   sync.Once
}

// connect makes a connection of the process with the server.
func (p *proc) connect(name string) *conn {
	a, b := newFlow(p.w), newFlow(p.w)
	c := &conn{p: p, client: true, name: name, in: b, out: a}
	s := &conn{p: p, name: name, in: a, out: b}
	c.peer, s.peer = s, c
	return c
}

func (c *conn) Read(b []byte) (int, error) {
	for {
		if c.client {
			if err := c.p.gate(); err != nil {
				return 0, err
			}
		}
		n, wait, err := c.in.take(b)
		if n > 0 || err != nil {
			return n, err
		}
		if wait == 0 {
			<-c.in.wake
			continue
		}
		t := time.NewTimer(wait)
		select {
		case <-c.in.wake:
		case <-t.C:
		}
		t.Stop()
	}
}

// take reads what there is, or tells how long to wait for it (0: for ever).
func (f *flow) take(b []byte) (n int, wait time.Duration, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.buf) > 0 {
		n = copy(b, f.buf)
		f.buf = f.buf[n:]
		return n, 0, nil
	}
	if f.err != nil {
		return 0, 0, f.err
	}
	if f.deadline.IsZero() {
		return 0, 0, nil
	}
	if wait = time.Until(f.deadline); wait <= 0 {
		return 0, 0, os.ErrDeadlineExceeded
	}
	return 0, wait, nil
}

func (c *conn) Write(b []byte) (int, error) {
	if c.client {
		if err := c.p.gate(); err != nil {
			return 0, err
		}
	}
	fate := c.p.fate(c.client, b)
	f := c.out
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return 0, &net.OpError{Op: "write", Net: "sim", Err: syscall.EPIPE}
	}
	f.holed = f.holed || fate.lost
	if !f.holed {
		data := append([]byte(nil), b...)
		f.later(fate.latency, func() {
			f.mu.Lock()
			f.buf = append(f.buf, data...)
			f.mu.Unlock()
			f.poke()
		})
	}
	if fate.cut {
		f.later(fate.latency, c.reset)
	}
	f.mu.Unlock()
	return len(b), nil
}

// reset ends both directions at once.
func (c *conn) reset() {
	err := &net.OpError{Op: "read", Net: "sim", Err: syscall.ECONNRESET}
	c.in.end(err)
	c.out.end(err)
}

// vanish stops both directions without a word to the other side.
func (c *conn) vanish() {
	c.out.mu.Lock()
	c.out.holed, c.out.closed = true, true
	c.out.mu.Unlock()
	c.in.end(errDead)
}

func (c *conn) Close() error {
	c.once.Do(func() {
		c.in.end(net.ErrClosed)
		f := c.out
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.closed {
			return
		}
		f.closed = true
		if !f.holed {
			f.later(c.p.w.between(100*time.Microsecond, 600*time.Microsecond, "close", c.name), func() { f.end(io.EOF) })
		}
	})
	return nil
}

func (c *conn) LocalAddr() net.Addr                { return addr(c.name) }
func (c *conn) RemoteAddr() net.Addr               { return addr("server") }
func (c *conn) SetWriteDeadline(t time.Time) error { return nil } // a write never waits
func (c *conn) SetDeadline(t time.Time) error      { return c.SetReadDeadline(t) }

func (c *conn) SetReadDeadline(t time.Time) error {
	if !t.IsZero() {
		t = t.Add(time.Duration(c.p.w.draw("deadline", c.name) % 1000)) // not the moment of a context's
	}
	c.in.mu.Lock()
	c.in.deadline = t
	c.in.mu.Unlock()
	c.in.poke()
	return nil
}

type addr string

func (addr) Network() string  { return "sim" }
func (a addr) String() string { return string(a) }

// fate is what becomes of one message.
type fate struct {
	latency   time.Duration
	lost, cut bool
}

// fate decides by what is sent, when and by whom; not by which of the process's
// connections carries it, which is a matter of chance.
func (p *proc) fate(request bool, data []byte) fate {
	w := p.w
	way := "reply"
	if request {
		way = "request"
	}
	id := []string{p.name, way, strconv.FormatInt(int64(w.now()), 10), steady(string(data[:min(len(data), 4096)]))}
	draw := func(what string) float64 { return w.unit(append(id, what)...) }
	f := fate{latency: w.between(100*time.Microsecond, 600*time.Microsecond, append(id, "latency")...)}
	if w.isCalm() || !p.faulty {
		return f
	}
	if p.inHole(request) {
		f.lost = true
		return f
	}
	switch u := draw("fate"); {
	case u < p.odds.cut:
		f.cut = true
		w.fault(p.name, way+" cut", time.Second)
	case u < p.odds.cut+p.odds.lost:
		f.lost = true
		w.fault(p.name, way+" lost", 5*time.Second)
	case u < p.odds.cut+p.odds.lost+p.odds.slow:
		f.latency = time.Duration(draw("slow") * float64(4*time.Second))
		w.fault(p.name, way+" slow", f.latency)
	}
	return f
}

// steady is the part of a text that is the same in each run: a stack has the
// numbers of goroutines and addresses in it.
func steady(s string) string {
	if i := strings.Index(s, "goroutine "); i >= 0 {
		return s[:min(i, 64)]
	}
	return s
}
