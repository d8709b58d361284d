package outbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/queue"
)

// Defaults and bounds of RelayConfig.
const (
	DefaultBatch   = 200
	DefaultPoll    = time.Second
	DefaultTimeout = 30 * time.Second
	DefaultKeep    = time.Hour

	MaxRelayBatch = 1000
	MinTimeout    = time.Second

	firstPause   = 100 * time.Millisecond // after a round that left rows; doubles
	longestPause = 10 * time.Second

	forgetEvery = time.Minute // sent rows that are old are looked for
	forgetRows  = 1000        // in one transaction
)

// RelayConfig is how a Relay works. The zero value is good.
type RelayConfig struct {
	Schema string // of the tables; empty: DefaultSchema
	Batch  int    // rows taken at a time; zero: DefaultBatch, at most MaxRelayBatch

	// Poll is how long a relay that found nothing waits before it looks again,
	// unless it is woken; zero: DefaultPoll.
	Poll time.Duration
	// PollOnly does without being woken (LISTEN): for connections that go
	// through a pooler which lends them for one transaction at a time.
	PollOnly bool

	// Timeout is how long one batch may take, from taking its rows to the
	// commit; zero: DefaultTimeout, at least MinTimeout. Sending may take half
	// of it. Rows in the hands of a relay that froze, or is cut off from the
	// database, are free again after that time.
	Timeout time.Duration

	// Keep is how long rows are kept after the queue accepted them, so that
	// Resend can send them again; zero: DefaultKeep, negative: not at all.
	Keep time.Duration

	// Producer is how tasks are sent; the zero value is good. Its Timeout is
	// at most half of the one above.
	Producer producer.Config

	// Observer is told of each round in Run's goroutine; nil: nobody is.
	Observer Observer
}

// Round is one batch on its way, or the lack of one.
type Round struct {
	Queue string
	Taken int // rows that it had in hand

	// What became of them, if Err is nil or says nothing of the database:
	Added     int // the queue accepted them now
	Duplicate int // it had them already
	Refused   int // it can never accept them: set aside, with the reason
	Left      int // they stay and are sent again; Err says why

	// Err is nil when no row stayed. If the database broke the round off, rows
	// that are counted as added may have stayed too; they are sent again, and
	// are duplicates then.
	Err      error
	Duration time.Duration

	moved int // rows that are out of the outbox for certain
}

// Observer is told what a Relay does. It must be quick.
type Observer interface {
	Relayed(Round)
}

// Relay moves rows of one queue from the outbox to the queue. Any number of
// them may work at once, in as many processes.
type Relay struct {
	pool     *pgxpool.Pool
	q        *queue.Queue
	producer *producer.Producer
	cfg      RelayConfig
	schema   schema
	lock     int64 // the advisory one of this queue's batches

	hook func(point string) // tests stop here; nil: nobody does
}

// NewRelay checks cfg and reports every problem at once. It talks to nobody.
// Run takes one connection of the pool and keeps it; the pool is not closed.
func NewRelay(pool *pgxpool.Pool, q *queue.Queue, cfg RelayConfig) (*Relay, error) {
	cfg = cfg.withDefaults()
	s, err := schemaNamed(cfg.Schema)
	problems := []error{err}
	bad := func(ok bool, field, remedy string, args ...any) {
		if !ok {
			problems = append(problems, badConfig(field, remedy, args...))
		}
	}
	bad(pool != nil, "pool", "NewRelay needs connections to PostgreSQL")
	bad(q != nil, "queue", "NewRelay needs a queue")
	bad(cfg.Batch >= 1 && cfg.Batch <= MaxRelayBatch, "Batch", "use 1 to %d, got %d", MaxRelayBatch, cfg.Batch)
	bad(cfg.Poll > 0, "Poll", "use a positive duration, got %v", cfg.Poll)
	bad(cfg.Timeout >= MinTimeout, "Timeout", "use at least %v, got %v", MinTimeout, cfg.Timeout)
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	p, err := producer.New(q, cfg.Producer)
	if err != nil {
		return nil, err
	}
	return &Relay{pool: pool, q: q, producer: p, cfg: cfg, schema: s, lock: lockNumber("batches", string(s), q.Name())}, nil
}

func (c RelayConfig) withDefaults() RelayConfig {
	if c.Batch == 0 {
		c.Batch = DefaultBatch
	}
	if c.Poll == 0 {
		c.Poll = DefaultPoll
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Keep == 0 {
		c.Keep = DefaultKeep
	}
	c.Keep = max(c.Keep, 0)
	if c.Producer.Timeout == 0 || c.Producer.Timeout > c.Timeout/2 {
		c.Producer.Timeout = c.Timeout / 2
	}
	if c.Producer.Batch == 0 {
		c.Producer.Batch = min(c.Batch, queue.MaxBatch)
	}
	return c
}

// Run relays until ctx ends; the batch in hand is finished first, which takes
// RelayConfig.Timeout at most. It goes on when Redis or the database is away or
// the queue is full, waiting longer each time up to 10 s, and tells Observer.
//
// The error is nil after the end of ctx. Otherwise it is one that no waiting
// mends: ErrSchema, queue.ErrMismatch or queue.ErrInvalidConfig.
//
// It may be called once more after it has returned, and several times at once.
func (r *Relay) Run(ctx context.Context) error {
	s := &session{relay: r}
	defer s.close()
	var forgot time.Time
	failed := 0
	for ctx.Err() == nil {
		round := s.round(ctx)
		if r.cfg.Observer != nil {
			r.cfg.Observer.Relayed(round)
		}
		switch {
		case permanent(round.Err):
			return round.Err
		case round.Err != nil:
			if round.moved > 0 {
				failed = 0
			}
			s.pause(ctx, pauseAfter(failed))
			failed++
			continue
		}
		failed = 0
		more := s.forget(ctx, &forgot)
		if round.Taken == 0 && !more {
			s.wait(ctx, r.cfg.Poll)
		}
	}
	return nil
}

// Once relays one batch and returns what became of it; the error is Round.Err.
// The end of ctx does not break the batch off; RelayConfig.Timeout does.
func (r *Relay) Once(ctx context.Context) (Round, error) {
	s := &session{relay: r, deaf: true}
	defer s.close()
	round := s.round(ctx)
	return round, round.Err
}

// permanent reports whether trying again does not help.
func permanent(err error) bool {
	return errors.Is(err, ErrSchema) || errors.Is(err, queue.ErrMismatch) || errors.Is(err, queue.ErrInvalidConfig)
}

// pauseAfter is the wait after so many failures in a row. Half of it is random,
// so that relays that lost the same server do not come back in step.
func pauseAfter(failed int) time.Duration {
	d := min(firstPause<<min(failed, 20), longestPause)
	return d/2 + rand.N(d/2+1)
}

func (r *Relay) at(point string) {
	if r.hook != nil {
		r.hook(point)
	}
}

// context bounds one batch: it is not cut short by the end of ctx.
func (r *Relay) context(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.WithoutCancel(ctx), r.cfg.Timeout,
		fmt.Errorf("a batch took longer than %v", r.cfg.Timeout))
}
