package consumer

import (
	crand "crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/claimq/claimq/queue"
)

// Defaults of Config.
const (
	DefaultConcurrency       = 16
	DefaultTimeout           = 10 * time.Minute
	DefaultGrace             = 10 * time.Second
	DefaultBlock             = 2 * time.Second
	DefaultHousekeepingEvery = 500 * time.Millisecond
	DefaultDrainTimeout      = 25 * time.Second
	DefaultAbortGrace        = 5 * time.Second
	DefaultUnhealthyAfter    = 30 * time.Second
	DefaultRetryBase         = time.Second
	DefaultRetryMax          = 15 * time.Minute
	DefaultMaxUnsettled      = 1024

	MinBlock       = 10 * time.Millisecond
	MaxBlock       = 30 * time.Second
	MaxConcurrency = 10_000 // also the largest Prefetch
	NoPrefetch     = -1     // see Config.Prefetch
	MaxQueues      = 256
	MaxWeight      = 1000
)

// Weighted is a further queue that a worker reads, and its share. A queue of
// weight 3 is given three times the starts of one of weight 1 while both have
// tasks waiting; a queue that is empty gives its share away.
type Weighted struct {
	Queue  *queue.Queue
	Weight int // 1 to MaxWeight; default 1
}

// Config describes a worker. The zero value of every field but Handler is a
// good default.
type Config struct {
	// Handler runs the tasks: a *Mux, or any Handler of your own. Required.
	Handler Handler

	Concurrency int // handlers that may run at once; default 16
	// Prefetch is how many tasks more than it has free slots the worker may
	// have in hand. 0, the default, adapts: while handlers are so quick that
	// each task has its turn within some 5 ms, up to 256 tasks and 8 MiB of
	// payloads; else none. They are on record as started when they come, so a
	// worker that dies then counts an interruption for them. From 1 to
	// MaxConcurrency: so many always, leased and not started; one that waited
	// costs a call more, and a worker that dies then costs it nothing. Both
	// take work from idle workers. NoPrefetch: none.
	Prefetch int

	Weight int        // share of the queue given to New; default 1
	More   []Weighted // further queues, on the same client

	// Consumer is the first part of the consumer name, for people who look at
	// the server; default "worker". A random part is always added, so no two
	// process starts share a name.
	Consumer string

	Timeout time.Duration // of one handler run, unless its kind has one of its own; default 10 min
	// Grace is how long after the end of its context a handler may go on
	// before it counts as stuck; default 10 s. The lease of a stuck handler
	// is no longer renewed, its slot is given to others, and whatever it
	// returns late is dropped. Go cannot end it.
	Grace time.Duration
	// MaxStuck is how many stuck handlers give up their slot. With more the
	// worker is unhealthy and fetches nothing. Default: Concurrency;
	// negative: none.
	MaxStuck int

	Block             time.Duration // longest blocking read, and so the longest wait for one at stop; default 2 s, MinBlock to MaxBlock
	HousekeepingEvery time.Duration // a partition is looked after at most this often by the whole fleet; default 500 ms

	DrainTimeout   time.Duration // how long running handlers may finish after Run's context has ended; default 25 s
	AbortGrace     time.Duration // how long after that, their contexts ended, they are still waited for; default 5 s
	UnhealthyAfter time.Duration // a loop that has not moved for this long makes the worker unhealthy; default 30 s, at least 2 × Block

	// RetryBase is the wait before the second attempt; it doubles with each
	// failure up to RetryMax, and up to a quarter is added so that tasks that
	// failed together do not come back together. Defaults 1 s and 15 min.
	RetryBase time.Duration
	RetryMax  time.Duration

	// MaxUnsettled bounds the outcomes kept in memory while the server is
	// away; with so many nothing is fetched or started. Default: 1,024 or
	// 2 × Concurrency, whichever is more.
	MaxUnsettled int

	Logger   *slog.Logger // default: nothing is logged
	Observer Observer     // default: nothing is observed

	Rand    rand.Source // for jitter; default: seeded from crypto/rand. Used under a lock.
	Entropy io.Reader   // for the consumer name; default crypto/rand
}

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	num := func(n *int, v int) {
		if *n == 0 {
			*n = v
		}
	}
	num(&c.Concurrency, DefaultConcurrency)
	num(&c.Weight, 1)
	num(&c.MaxStuck, c.Concurrency)
	num(&c.MaxUnsettled, max(DefaultMaxUnsettled, 2*c.Concurrency))
	def(&c.Timeout, DefaultTimeout)
	def(&c.Grace, DefaultGrace)
	def(&c.Block, DefaultBlock)
	def(&c.HousekeepingEvery, DefaultHousekeepingEvery)
	def(&c.DrainTimeout, DefaultDrainTimeout)
	def(&c.AbortGrace, DefaultAbortGrace)
	def(&c.UnhealthyAfter, DefaultUnhealthyAfter)
	def(&c.RetryBase, DefaultRetryBase)
	def(&c.RetryMax, DefaultRetryMax)
	if c.Consumer == "" {
		c.Consumer = "worker"
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Observer == nil {
		c.Observer = NopObserver{}
	}
	if c.Entropy == nil {
		c.Entropy = crand.Reader
	}
	if c.Rand == nil {
		var seed [32]byte
		crand.Read(seed[:]) // never fails
		c.Rand = rand.NewChaCha8(seed)
	}
	more := make([]Weighted, len(c.More)) // the caller's slice is not written to
	copy(more, c.More)
	for i := range more {
		num(&more[i].Weight, 1)
	}
	c.More = more
	return c
}

func (c Config) validate(first *queue.Queue) error {
	var errs []error
	bad := func(ok bool, field, remedy string, args ...any) {
		if !ok {
			errs = append(errs, &queue.FieldError{Field: field, Remedy: fmt.Sprintf(remedy, args...), Kind: queue.ErrInvalidConfig})
		}
	}
	positive := func(d time.Duration, field string) {
		bad(d > 0, field, "use a positive duration, got %v", d)
	}
	bad(c.Handler != nil, "Handler", "give a *Mux or a Handler of your own")
	if m, ok := c.Handler.(*Mux); ok {
		if m == nil {
			bad(false, "Handler", "the *Mux is nil")
		} else if err := m.problems(); err != nil {
			errs = append(errs, err)
		}
	}
	bad(c.Concurrency >= 1 && c.Concurrency <= MaxConcurrency, "Concurrency", "use 1 to %d, got %d", MaxConcurrency, c.Concurrency)
	bad(c.Prefetch >= NoPrefetch && c.Prefetch <= MaxConcurrency, "Prefetch", "use %d (none), 0 (adapts) or 1 to %d, got %d", NoPrefetch, MaxConcurrency, c.Prefetch)
	bad(validPrefix(c.Consumer), "Consumer", "use 1 to 64 letters, digits, '.', '_' or '-', got %q", c.Consumer)
	bad(c.Block >= MinBlock && c.Block <= MaxBlock, "Block", "use %v to %v, got %v", MinBlock, MaxBlock, c.Block)
	bad(c.HousekeepingEvery >= 50*time.Millisecond && c.HousekeepingEvery <= 10*time.Second, "HousekeepingEvery", "use 50ms to 10s, got %v", c.HousekeepingEvery)
	bad(c.UnhealthyAfter >= 2*c.Block, "UnhealthyAfter", "use at least 2 × Block (%v), got %v", 2*c.Block, c.UnhealthyAfter)
	positive(c.Timeout, "Timeout")
	positive(c.Grace, "Grace")
	positive(c.DrainTimeout, "DrainTimeout")
	positive(c.AbortGrace, "AbortGrace")
	positive(c.RetryBase, "RetryBase")
	bad(c.RetryMax >= c.RetryBase, "RetryMax", "use at least RetryBase (%v), got %v", c.RetryBase, c.RetryMax)
	bad(c.MaxUnsettled >= 1, "MaxUnsettled", "use at least 1, got %d", c.MaxUnsettled)
	bad(c.Weight >= 1 && c.Weight <= MaxWeight, "Weight", "use 1 to %d, got %d", MaxWeight, c.Weight)
	bad(first != nil, "queue", "New needs a queue")
	bad(len(c.More) < MaxQueues, "More", "a worker reads at most %d queues, got %d", MaxQueues, len(c.More)+1)
	c.validateMore(first, bad)
	return errors.Join(errs...)
}

func (c Config) validateMore(first *queue.Queue, bad func(ok bool, field, remedy string, args ...any)) {
	if first == nil {
		return
	}
	seen := map[string]bool{first.Config().Prefix + ":" + first.Name(): true}
	for i, m := range c.More {
		field := fmt.Sprintf("More[%d]", i)
		if m.Queue == nil {
			bad(false, field+".Queue", "give a queue")
			continue
		}
		key := m.Queue.Config().Prefix + ":" + m.Queue.Name()
		bad(!seen[key], field+".Queue", "queue %q is named twice", m.Queue.Name())
		seen[key] = true
		bad(m.Weight >= 1 && m.Weight <= MaxWeight, field+".Weight", "use 1 to %d, got %d", MaxWeight, m.Weight)
		bad(m.Queue.Config().Client == first.Config().Client, field+".Queue",
			"queue %q uses another client than %q; one blocking read serves all queues of a worker, so give them the same", m.Queue.Name(), first.Name())
	}
}

func validPrefix(s string) bool {
	if len(s) == 0 || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}
