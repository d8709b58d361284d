package faultredis

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"
)

const (
	chunkBytes   = 32 << 10
	portAttempts = 50

	// Below the range from which the kernel numbers outgoing connections: a
	// proxy that refuses dials has given its port up and must get it back.
	portLow, portHigh = 12000, 20000
)

// Proxy passes TCP connections on to a server and breaks them when told to.
type Proxy struct {
	tb   testing.TB
	addr string

	mu       sync.Mutex
	target   string
	listener net.Listener // nil while dials are refused
	links    map[*link]struct{}
	requests *gate
	replies  *gate
	wg       sync.WaitGroup
}

// gate holds one direction of all connections back while it is shut.
type gate struct {
	mu    sync.Mutex
	open  chan struct{} // closed while the gate is open
	delay time.Duration
}

func openGate() *gate {
	g := &gate{open: make(chan struct{})}
	close(g.open)
	return g
}

func (g *gate) passage() (open <-chan struct{}, delay time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open, g.delay
}

func (g *gate) setDelay(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.delay = d
}

// pass waits until the gate lets something through, and reports false when cut
// comes first.
func (g *gate) pass(cut <-chan struct{}) bool {
	open, delay := g.passage()
	if delay > 0 {
		late := time.NewTimer(delay)
		defer late.Stop()
		select {
		case <-late.C:
		case <-cut:
			return false
		}
	}
	select {
	case <-open:
		return true
	case <-cut:
		return false
	}
}

func (g *gate) set(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
		if !open {
			g.open = make(chan struct{})
		}
	default:
		if open {
			close(g.open)
		}
	}
}

// link is one connection through the proxy.
type link struct {
	client, server net.Conn
	cut            chan struct{}
	once           sync.Once
}

func (k *link) close() {
	k.once.Do(func() {
		close(k.cut)
		k.client.Close()
		k.server.Close()
	})
}

// NewProxy starts a proxy to target on a loopback port; it ends with the test.
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	p := &Proxy{tb: tb, target: target, links: map[*link]struct{}{}, requests: openGate(), replies: openGate()}
	if err := p.listen(); err != nil {
		tb.Fatalf("faultredis: %v", err)
	}
	tb.Cleanup(p.close)
	return p
}

// Addr returns host and port; they stay the same whatever is done to the proxy.
func (p *Proxy) Addr() string { return p.addr }

// listen takes a port, or again the one it had. The caller holds mu, or is the
// only one that knows p.
func (p *Proxy) listen() error {
	var err error
	for range portAttempts {
		addr := p.addr
		if addr == "" {
			addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(portLow+rand.IntN(portHigh-portLow)))
		}
		var l net.Listener
		if l, err = net.Listen("tcp4", addr); err == nil {
			p.addr, p.listener = addr, l
			p.wg.Go(func() { p.accept(l) })
			return nil
		}
	}
	return fmt.Errorf("no port to listen on: %w", err)
}

func (p *Proxy) accept(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return // closed by Refuse or at the end
		}
		p.wg.Go(func() { p.serve(l, client) })
	}
}

func (p *Proxy) serve(l net.Listener, client net.Conn) {
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	server, err := net.Dial("tcp", target)
	if err != nil {
		client.Close()
		return
	}
	k := &link{client: client, server: server, cut: make(chan struct{})}
	defer k.close()
	p.mu.Lock()
	// One accepted just before Refuse belongs to the time before: it is cut.
	current := p.listener == l
	if current {
		p.links[k] = struct{}{}
	}
	p.mu.Unlock()
	if !current {
		return
	}
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.links, k)
	}()
	var both sync.WaitGroup
	both.Go(func() { k.pump(server, client, p.requests) })
	both.Go(func() { k.pump(client, server, p.replies) })
	both.Wait()
}

// pump copies one direction. What was read when the gate shut is kept, and
// what comes later stays in the kernel's buffers, until the gate opens; so a
// partition that heals delivers what was sent into it, as TCP does.
func (k *link) pump(dst, src net.Conn, g *gate) {
	buf := make([]byte, chunkBytes)
	for {
		n, readErr := src.Read(buf)
		if !g.pass(k.cut) {
			return
		}
		if n > 0 {
			if _, err := dst.Write(buf[:n]); err != nil {
				k.close()
				return
			}
		}
		if readErr != nil {
			// The other direction may still have something to say.
			if half, ok := dst.(*net.TCPConn); !ok || !errors.Is(readErr, io.EOF) || half.CloseWrite() != nil {
				k.close()
			}
			return
		}
	}
}

// Cut closes all connections, and with them what a blackhole holds back. New
// ones are accepted.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := range p.links {
		k.close()
	}
}

// Refuse makes new dials fail with "connection refused". Connections that
// exist stay; see Cut.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
}

// BlackholeRequests holds back what clients send, without closing anything:
// the server sees nothing and the client waits until it gives up. New
// connections are accepted and held too.
//
// After Heal the server gets what was held, and applies it, even though the
// client has given up by then. Cut first for requests that never arrive.
func (p *Proxy) BlackholeRequests() { p.requests.set(false) }

// BlackholeReplies holds back what the server sends: it applies requests, and
// no client learns of it.
func (p *Proxy) BlackholeReplies() { p.replies.set(false) }

// Retarget sends connections that come from now on to another server, and cuts
// those that exist, as an address does that is moved.
func (p *Proxy) Retarget(target string) {
	p.mu.Lock()
	p.target = target
	p.mu.Unlock()
	p.Cut()
}

// Delay holds everything back for d, in both directions; zero ends it.
func (p *Proxy) Delay(d time.Duration) {
	p.requests.setDelay(d)
	p.replies.setDelay(d)
}

// Connections returns the number of connections that are up.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Heal undoes Refuse, Delay and both blackholes.
func (p *Proxy) Heal() {
	p.tb.Helper()
	p.Delay(0)
	p.requests.set(true)
	p.replies.set(true)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		return
	}
	if err := p.listen(); err != nil {
		p.tb.Errorf("faultredis: %v", err)
	}
}

func (p *Proxy) close() {
	p.Refuse()
	p.Cut()
	p.wg.Wait()
}
