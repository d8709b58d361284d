package contender

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// Sink is where handlers take their payloads.
type Sink struct {
	want int64         // tasks to wait for; 0: no end
	work time.Duration // that a handler takes
	look bool          // read the stamp
	warm time.Time     // latencies before this moment are left out
	tell bool          // print each task with the time, see hold
	hold bool          // handlers never return

	n           atomic.Int64
	first, last atomic.Int64 // when handlers started, Unix time in nanoseconds
	done        chan struct{}

	mu sync.Mutex
	ms []float64
}

// Bytes is a handler run for a payload. The payload is not kept.
func (s *Sink) Bytes(p []byte) { s.String(unsafe.String(unsafe.SliceData(p), len(p))) }

// String is a handler run for a payload. The payload is not kept.
func (s *Sink) String(p string) {
	k := s.n.Add(1)
	if k == 1 {
		s.first.Store(time.Now().UnixNano())
	}
	if k == s.want {
		s.last.Store(time.Now().UnixNano())
		close(s.done)
	}
	if s.look {
		s.stamp(p)
	}
	if s.hold {
		select {}
	}
	if s.work > 0 {
		time.Sleep(s.work)
	}
}

func (s *Sink) stamp(p string) {
	now := time.Now()
	key := p[:stampBytes]
	made, _ := strconv.ParseInt(key, 10, 64)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tell {
		fmt.Println("task", key, now.UnixNano())
		return
	}
	if now.After(s.warm) {
		s.ms = append(s.ms, float64(now.UnixNano()-made)/1e6)
	}
}
