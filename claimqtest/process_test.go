package claimqtest

import (
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// TestPausedConnections: nothing leaves a paused process or reaches it, and of
// a killed one both fail.
func TestPausedConnections(t *testing.T) {
	for _, killed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := newProcess(&trial{})
			var there net.Conn
			here, err := p.dial(seamRedis, func() (c net.Conn, err error) {
				c, there = net.Pipe()
				return c, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			var arrived atomic.Int32
			go func() {
				var b [1]byte
				if n, err := there.Read(b[:]); n == 1 && err == nil {
					arrived.Add(1)
				}
				_, _ = there.Write(b[:])
			}()
			p.pause()
			var readErr, writeErr error
			var done atomic.Int32
			go func() { _, writeErr = here.Write([]byte("x")); done.Add(1) }()
			go func() { _, readErr = here.Read(make([]byte, 1)); done.Add(1) }()
			synctest.Wait()
			if arrived.Load() != 0 || done.Load() != 0 {
				t.Errorf("paused: %d arrived, %d done", arrived.Load(), done.Load())
			}
			want, n := error(nil), int32(1)
			if killed {
				p.kill()
				want, n = ErrKilled, 0
			} else {
				p.resume()
			}
			synctest.Wait()
			if arrived.Load() != n || done.Load() != 2 || !errors.Is(readErr, want) || !errors.Is(writeErr, want) {
				t.Errorf("killed %v: %d arrived, %d done: %v, %v", killed, arrived.Load(), done.Load(), readErr, writeErr)
			}
		})
	}
}

// TestReadBeforeThePause: what came in while a process was paused is seen when
// it goes on.
func TestReadBeforeThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(&trial{})
		var there net.Conn
		here, err := p.dial(seamRedis, func() (c net.Conn, err error) {
			c, there = net.Pipe()
			return c, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		var done atomic.Bool
		go func() { _, _ = here.Read(make([]byte, 1)); done.Store(true) }()
		synctest.Wait() // it waits for the other side
		p.pause()
		_, _ = there.Write([]byte("x"))
		synctest.Wait()
		if done.Load() {
			t.Error("a paused process has read")
		}
		p.resume()
		synctest.Wait()
		if !done.Load() {
			t.Error("it does not go on")
		}
	})
}
