package consumer

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/claimq/claimq/queue"
)

// server is what the loops need of a queue. *queue.Queue is the only
// implementation outside tests; the seam is there so that timing can be tested
// without a socket.
type server interface {
	NewToken() queue.Token
	Begin(context.Context, queue.BeginRequest) (queue.Batch, error)
	Start(context.Context, []queue.Lease) []error
	Renew(context.Context, []queue.Grant) []queue.Renewal
	Split(context.Context, queue.Token, []queue.Lease) ([]queue.Lease, []error)
	Complete(context.Context, []queue.Settlement) []queue.Settled
	Retry(context.Context, []queue.Settlement) []queue.Settled
	Release(context.Context, []queue.Settlement) []queue.Settled
	DeadLetter(context.Context, []queue.Settlement) []queue.Settled
	Turn(context.Context, queue.TurnRequest) []queue.Turn
	Reclaim(context.Context, queue.ReclaimRequest) (queue.Reclaimed, error)
	Promote(ctx context.Context, partition, limit int) (queue.Promoted, error)
	Tidy(ctx context.Context, partition int) (queue.Tidied, error)
	AddTimes(context.Context, map[string]queue.Histogram) error
	Ensure(context.Context) error
}

// source is one queue that the worker reads.
type source struct {
	server
	queue      *queue.Queue // as named in entries and reads
	name       string
	weight     int
	partitions int
	lease      time.Duration // of kinds that have none of their own
	shortest   time.Duration // over all kinds

	// The server's clock as it was last told, and when. Guarded by Worker.mu.
	serverNow time.Time
	toldAt    time.Time

	times times
}

func newSource(q *queue.Queue, weight int) *source {
	cfg := q.Config()
	s := &source{
		server: q, queue: q, name: q.Name(), weight: weight, partitions: q.Partitions(),
		lease: cfg.Lease, shortest: cfg.Lease,
	}
	for _, d := range cfg.KindLeases {
		s.shortest = min(s.shortest, d)
	}
	return s
}

// clock is the server's time at now, late by a round trip at most. Zero when
// it is not known yet.
func (s *source) clock(now time.Time) time.Time {
	if s.serverNow.IsZero() {
		return time.Time{}
	}
	return s.serverNow.Add(now.Sub(s.toldAt))
}

func (s *source) told(serverNow, at time.Time) {
	if !serverNow.IsZero() {
		s.serverNow, s.toldAt = serverNow, at
	}
}

// errorCode returns the word by which a server names the kind of an error
// reply, for instance NOGROUP; empty when err holds no error reply. Some
// proxies put "ERR " before it.
func errorCode(err error) string {
	type reply interface {
		error
		RedisError()
	}
	r, ok := errors.AsType[reply](err)
	if !ok {
		return ""
	}
	text := strings.TrimPrefix(r.Error(), "ERR ")
	code, _, _ := strings.Cut(text, " ")
	for i := range len(code) {
		if c := code[i]; c < 'A' || c > 'Z' {
			return ""
		}
	}
	return code
}

// needsEnsure reports whether an error means that a stream or its group may
// have to be made anew.
func needsEnsure(err error) bool {
	switch errorCode(err) {
	case "NOGROUP", "UNBLOCKED", "WRONGTYPE":
		return true
	}
	return errors.Is(err, queue.ErrMismatch)
}
