// Package embedded is an in-process Redis for trying claimq out without
// installing anything. It is not for tasks that matter: it keeps everything in
// memory, loses it when the process ends, knows no limit on memory, and is
// slower than a redis-server by a factor of five to ten.
package embedded

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// tickEvery is how often expiry times are moved. Each move visits every key
// under the server's one lock (milliseconds for ten thousand keys), so it is
// not more often; a key set in the middle of a tick expires up to one tick
// early. The server's own moving clock would sort all keys at every command.
const tickEvery = time.Second

// ErrNotLoopback means that the address can be reached from other machines.
// Use 127.0.0.1 or localhost.
var ErrNotLoopback = errors.New("address is not a loopback address")

// Server is a running in-process Redis.
type Server struct {
	m    *miniredis.Miniredis
	addr string
	stop chan struct{}
	once sync.Once
	wg   sync.WaitGroup
}

// Start runs a server on a loopback address, "127.0.0.1:0" for any free port.
// Other addresses are refused: the server knows no password.
func Start(addr string) (*Server, error) { return start(addr, tickEvery) }

func start(addr string, tick time.Duration) (*Server, error) {
	if err := checkLoopback(addr); err != nil {
		return nil, err
	}
	s := &Server{m: miniredis.NewMiniRedis(), stop: make(chan struct{})}
	if err := s.m.StartAddr(addr); err != nil {
		return nil, fmt.Errorf("embedded Redis: %w", err)
	}
	s.addr = s.m.Addr()
	s.wg.Go(func() { s.expire(tick) })
	return s, nil
}

func checkLoopback(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("embedded Redis: %w", err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("embedded Redis: %w: %q", ErrNotLoopback, addr)
	}
	return nil
}

// expire moves expiry times by the time that has really passed, however late a
// tick comes.
func (s *Server) expire(tick time.Duration) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-s.stop:
			return
		case <-ticker.C:
			now := time.Now()
			s.m.FastForward(now.Sub(last))
			last = now
		}
	}
}

// Addr returns host and port.
func (s *Server) Addr() string { return s.addr }

// URL returns the address as redis.ParseURL takes it.
func (s *Server) URL() string { return "redis://" + s.addr + "/0" }

// Close ends the server, its connections and its goroutines. A second call
// does nothing.
func (s *Server) Close() {
	s.once.Do(func() {
		close(s.stop)
		s.wg.Wait()
		s.m.Close()
	})
}
