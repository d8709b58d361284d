package metrics

import (
	"context"
	"errors"
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/queue"
)

// Producer counts what a process enqueues. Give it to producer.Config; one
// serves all producers of a registry.
type Producer struct {
	in     instruments
	kinds  kindNames
	queues table[*producerSeries]
}

var _ producer.Observer = (*Producer)(nil)

// producerSeries are the series of one queue.
type producerSeries struct {
	failures        closed
	duration, bytes prometheus.Observer
	kinds           *byKind[*enqueuedSeries]
}

// enqueuedSeries are those of one kind in one queue.
type enqueuedSeries struct{ added, duplicates prometheus.Counter }

// NewProducer registers the counters and histograms of producers, all at 0. It
// panics when reg holds them already.
func NewProducer(reg prometheus.Registerer, queues ...*queue.Queue) *Producer {
	p := &Producer{in: register(reg, FromProducer)}
	for _, q := range queues {
		p.of(q.Name())
	}
	return p
}

// Kinds makes the series of kinds that are known beforehand, in all queues
// known by then.
func (p *Producer) Kinds(kinds ...string) {
	for _, s := range p.queues.all() {
		for _, kind := range kinds {
			s.kinds.of(kind)
		}
	}
}

// of returns the series of a queue, whose name is from the configuration also
// when it was not given to NewProducer.
func (p *Producer) of(name string) *producerSeries {
	s, ok := p.queues.get(name)
	if !ok {
		s, _ = p.queues.put(name, math.MaxInt, func() *producerSeries { return p.series(name) })
	}
	return s
}

func (p *Producer) series(q string) *producerSeries {
	return &producerSeries{
		failures: p.in.closed("enqueue_failures_total", q),
		duration: p.in.histograms["enqueue_duration_seconds"].WithLabelValues(q),
		bytes:    p.in.histograms["enqueue_payload_bytes"].WithLabelValues(q),
		kinds: newByKind(&p.kinds, func(kind string) *enqueuedSeries {
			return &enqueuedSeries{
				added:      p.in.counters["enqueued_total"].WithLabelValues(q, kind),
				duplicates: p.in.counters["enqueue_duplicates_total"].WithLabelValues(q, kind),
			}
		}),
	}
}

// Enqueued implements producer.Observer.
func (p *Producer) Enqueued(e producer.Enqueued) {
	s := p.of(e.Queue)
	s.duration.Observe(e.Duration.Seconds())
	for i, r := range e.Receipts {
		switch {
		case r.Err != nil:
			s.failures.add(refusal(r.Err), 1)
		case r.Duplicate:
			s.kinds.of(e.Tasks[i].Kind).duplicates.Inc()
		default:
			s.kinds.of(e.Tasks[i].Kind).added.Inc()
			s.bytes.Observe(float64(len(e.Tasks[i].Payload)))
		}
	}
}

// refusal is why a task was not accepted. What may have been accepted comes
// before the reason why nobody knows.
func refusal(err error) string {
	switch {
	case errors.Is(err, queue.ErrIndefinite):
		return "indefinite"
	case errors.Is(err, queue.ErrInvalidTask):
		return "invalid"
	case errors.Is(err, queue.ErrQueueFull):
		return "full"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, queue.ErrUnavailable):
		return "unavailable"
	}
	return "other"
}
