package consumer

import (
	"context"

	"github.com/claimq/claimq/queue"
)

// Server is what the loops need of a queue.
type Server = server

// WrapServers puts something between the worker and its queues.
func (w *Worker) WrapServers(wrap func(Server) Server) {
	for _, s := range w.sources {
		s.server = wrap(s.server)
	}
}

// WrapRead does the same to reads.
func (w *Worker) WrapRead(wrap func(next func(context.Context, queue.ReadRequest) ([]queue.Entry, error)) func(context.Context, queue.ReadRequest) ([]queue.Entry, error)) {
	w.read = wrap(w.read)
}

// OnBeat is called at each heartbeat of each loop, before it counts.
func (w *Worker) OnBeat(f func(loop string)) { w.onBeat = f }

// InHand is what the worker has in hand, and its limit.
func (w *Worker) InHand() (n, limit int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &w.hand.slots
	return s.inHand(), s.concurrency + s.prefetch + maxAhead
}

// Seize takes the worker's lock, as a loop that hangs in the middle would.
func (w *Worker) Seize() (release func()) {
	w.mu.Lock()
	return w.mu.Unlock
}
