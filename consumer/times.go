package consumer

import (
	"context"
	"strings"
	"time"

	"github.com/claimq/claimq/queue"
)

// Handler times are added to the queue now and then, for whoever asks it how
// long a lease should be. Nothing depends on them: what cannot be added in
// time is dropped.
const (
	timesEvery   = time.Minute            // between two adds of one worker
	timesTimeout = 500 * time.Millisecond // of one add, all queues together
)

// times counts handler runs of one queue by kind and time since they were last
// added to it. Guarded by Worker.mu.
type times struct {
	byKind map[string]*queue.Histogram // at most queue.MaxTimedKinds and queue.OtherKinds
}

// observe counts one run. It allocates only when a kind is new, or was not seen
// between the last two adds.
func (t *times) observe(kind string, d time.Duration) {
	h := t.byKind[kind]
	if h == nil {
		h = t.admit(kind)
	}
	h.Observe(d)
}

func (t *times) admit(kind string) *queue.Histogram {
	if len(t.byKind) >= queue.MaxTimedKinds {
		kind = queue.OtherKinds
	}
	h := t.byKind[kind]
	if h == nil {
		h = new(queue.Histogram)
		if t.byKind == nil {
			t.byKind = make(map[string]*queue.Histogram)
		}
		t.byKind[strings.Clone(kind)] = h
	}
	return h
}

// take returns what was counted, and counts from zero. Kinds that were not seen
// make room for others.
func (t *times) take() map[string]queue.Histogram {
	var taken map[string]queue.Histogram
	for kind, h := range t.byKind {
		if *h == (queue.Histogram{}) {
			delete(t.byKind, kind)
			continue
		}
		if taken == nil {
			taken = make(map[string]queue.Histogram, len(t.byKind))
		}
		taken[kind] = *h
		*h = queue.Histogram{}
	}
	return taken
}

// addTimes adds what was counted of all queues, or drops it.
func (w *Worker) addTimes() {
	ctx, cancel := context.WithTimeout(w.ops, timesTimeout)
	defer cancel()
	for _, s := range w.sources {
		w.mu.Lock()
		taken := s.times.take()
		w.mu.Unlock()
		if len(taken) == 0 {
			continue
		}
		if err := s.AddTimes(ctx, taken); err != nil {
			w.log.Debug("handler times not added", "queue", s.name, "error", err)
		}
	}
}
