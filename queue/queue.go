package queue

import (
	crand "crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Defaults of Config.
const (
	DefaultPrefix           = "claimq"
	DefaultLease            = 15 * time.Second
	DefaultRetention        = 24 * time.Hour
	DefaultMaxPayload       = 256 << 10
	DefaultMaxFailures      = 10
	DefaultMaxInterruptions = 15
	DefaultNoHandlerAfter   = time.Hour

	MinLease      = 200 * time.Millisecond
	MaxLease      = time.Hour
	MaxPartitions = 256
)

// Group is the name of the one consumer group that reads a queue. Together
// with the stream key it is a public contract.
const Group = "workers"

// Config describes a queue. The zero value of every field but Name and Client
// is a good default.
type Config struct {
	Name   string                // letters, digits, '.', '_' and '-', 1 to 64 bytes
	Client redis.UniversalClient // never closed by the queue
	// ReadClient carries blocking reads only, so that they never keep a
	// renewal waiting for a connection. Default: a client of the queue's own
	// with the options of Client, closed by Close.
	ReadClient redis.UniversalClient

	Prefix     string // of every key; default "claimq"
	Partitions int    // fixed when the queue is made; default 1, at most MaxPartitions

	Lease      time.Duration            // lease length; default 15 s, MinLease to MaxLease
	KindLeases map[string]time.Duration // lease length by kind, where it differs
	Retention  time.Duration            // a finished ID is remembered for this to twice this; default 24 h, at least 1 s

	MaxPayload       int           // bytes; default 256 KiB
	MaxBacklog       int64         // unfinished tasks (waiting, pending, scheduled) at which Enqueue answers ErrQueueFull, over all partitions; 0: no bound
	MaxFailures      int           // failures at which a task becomes a dead letter; default 10
	MaxInterruptions int           // interruptions at which a task becomes a dead letter; default 15
	NoHandlerAfter   time.Duration // how long a task may wait for a worker that knows its kind; default 1 h

	// Trace keeps an event of every step of every task, not only of what is
	// rare; see Timeline. It costs a command on the server for each step, and
	// those of a busy queue soon push out the rare ones.
	Trace bool

	Rand io.Reader // entropy for tokens; default crypto/rand
}

// Queue is one queue on one server. Its methods start no goroutines, retry
// nothing and log nothing; they are safe for concurrent use.
type Queue struct {
	cfg     Config
	rdb     redis.UniversalClient
	read    redis.UniversalClient
	ownsR   bool
	repeats bool        // the client repeats commands by itself
	disk    atomic.Bool // the server has WAITAOF, as it said
	parts   []partitionKeys
	classes []time.Duration // different lease lengths, the default first
	window  any             // Config.Retention in milliseconds, as an argument

	strangers atomic.Int32 // for how many calls of Begin digests are still sent at once
}

// New checks cfg, reports every problem at once, and returns the queue. It
// does not talk to the server; see Ensure and Probe.
func New(cfg Config) (*Queue, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	q := &Queue{cfg: cfg, rdb: cfg.Client, read: cfg.ReadClient, classes: leaseClasses(cfg)}
	q.repeats = clientRepeats(cfg.Client)
	q.window = cfg.Retention.Milliseconds()
	for p := range cfg.Partitions {
		q.parts = append(q.parts, keysOf(cfg.Prefix, cfg.Name, p))
	}
	if q.read == nil {
		q.read, q.ownsR = readClientFor(cfg.Client)
	}
	return q, nil
}

// readClientFor derives a client for blocking reads. Only a plain client can
// be cloned; for any other kind the caller's own is shared.
func readClientFor(c redis.UniversalClient) (redis.UniversalClient, bool) {
	plain, ok := c.(*redis.Client)
	if !ok {
		return c, false
	}
	opt := *plain.Options()
	opt.MaxRetries = -1 // a repeated read would hide the entries of the first
	opt.MinIdleConns = 0
	opt.PushNotificationProcessor = nil // one for each client
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	opt.ContextTimeoutEnabled = true // Read bounds each call by its block time
	opt.ReadTimeout = MaxBlock + readSlack
	return redis.NewClient(&opt), true
}

// Close closes what the queue opened itself, which is never Config.Client.
func (q *Queue) Close() error {
	if q.ownsR {
		return q.read.Close()
	}
	return nil
}

// Name returns the queue's name.
func (q *Queue) Name() string { return q.cfg.Name }

// Config returns the configuration with defaults filled in.
func (q *Queue) Config() Config { return q.cfg }

// Partitions returns the number of partitions.
func (q *Queue) Partitions() int { return len(q.parts) }

// LeaseFor returns the lease length of a kind.
func (q *Queue) LeaseFor(kind string) time.Duration {
	if d, ok := q.cfg.KindLeases[kind]; ok {
		return d
	}
	return q.cfg.Lease
}

// A token is 12 random characters of base64url, 72 bits, and two that tell
// apart the grants of one call; a tag is its first 42 bits. Two tags make a
// done mark that fits the allocator's 16-byte class.
const (
	tokenRandom = 12
	tagBytes    = 7
	shortToken  = 6
	maxClasses  = 26 // different lease lengths in one queue
)

// NewToken makes an owner token. It panics when the source of entropy fails,
// as crypto/rand itself does: without it no lease can be told from another.
func (q *Queue) NewToken() Token {
	var b [tokenRandom * 6 / 8]byte
	if q.cfg.Rand == crand.Reader {
		crand.Read(b[:]) // never fails; and b needs no memory of its own
	} else {
		b = entropy(q.cfg.Rand)
	}
	text := [tokenRandom + 2]byte{tokenRandom: 'A', tokenRandom + 1: 'A'}
	base64.RawURLEncoding.Encode(text[:tokenRandom], b[:])
	return Token(text[:])
}

func entropy(r io.Reader) (b [tokenRandom * 6 / 8]byte) {
	if _, err := io.ReadFull(r, b[:]); err != nil {
		panic(fmt.Sprintf("claimq: no entropy for an owner token: %v", err))
	}
	return b
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
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	if c.Rand == nil {
		c.Rand = crand.Reader
	}
	num(&c.Partitions, 1)
	num(&c.MaxPayload, DefaultMaxPayload)
	num(&c.MaxFailures, DefaultMaxFailures)
	num(&c.MaxInterruptions, DefaultMaxInterruptions)
	def(&c.Lease, DefaultLease)
	def(&c.Retention, DefaultRetention)
	def(&c.NoHandlerAfter, DefaultNoHandlerAfter)
	return c
}

func (c Config) validate() error {
	var errs []error
	bad := func(ok bool, field, remedy string, args ...any) {
		if !ok {
			errs = append(errs, badConfig(field, remedy, args...))
		}
	}
	bad(c.Client != nil, "Client", "give a go-redis client")
	switch c.Client.(type) {
	case *redis.ClusterClient, *redis.Ring:
		bad(false, "Client", "use a client of one server (redis.NewClient or NewFailoverClient): a read spans partitions, which a cluster keeps apart")
	}
	bad(validName(c.Name, 64), "Name", "use 1 to 64 letters, digits, '.', '_' or '-', got %q", c.Name)
	bad(validName(c.Prefix, 64), "Prefix", "use 1 to 64 letters, digits, '.', '_' or '-', got %q", c.Prefix)
	bad(c.Partitions >= 1 && c.Partitions <= MaxPartitions, "Partitions", "use 1 to %d, got %d", MaxPartitions, c.Partitions)
	bad(leaseOK(c.Lease), "Lease", "use %v to %v, got %v", MinLease, MaxLease, c.Lease)
	for kind, d := range c.KindLeases {
		bad(leaseOK(d), "KindLeases["+kind+"]", "use %v to %v, got %v", MinLease, MaxLease, d)
	}
	bad(len(leaseClasses(c)) <= maxClasses, "KindLeases", "use at most %d different lengths", maxClasses)
	bad(c.Retention >= time.Second, "Retention", "use at least 1s, got %v", c.Retention)
	bad(c.MaxPayload > 0 && c.MaxPayload <= MaxPayloadBytes, "MaxPayload", "use 1 to %d bytes, got %d", MaxPayloadBytes, c.MaxPayload)
	bad(c.MaxBacklog >= 0, "MaxBacklog", "use 0 for no bound or a positive number, got %d", c.MaxBacklog)
	bad(c.MaxFailures > 0, "MaxFailures", "use at least 1, got %d", c.MaxFailures)
	bad(c.MaxInterruptions > 0, "MaxInterruptions", "use at least 1, got %d", c.MaxInterruptions)
	bad(c.NoHandlerAfter > 0, "NoHandlerAfter", "use a positive duration, got %v", c.NoHandlerAfter)
	return errors.Join(errs...)
}

// leaseClasses lists the different lease lengths, the default first.
func leaseClasses(c Config) []time.Duration {
	out := []time.Duration{c.Lease}
	for _, kind := range slices.Sorted(maps.Keys(c.KindLeases)) {
		if d := c.KindLeases[kind]; !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out
}

func leaseOK(d time.Duration) bool {
	return d >= MinLease && d <= MaxLease && d%time.Millisecond == 0
}

func validName(s string, limit int) bool {
	if len(s) == 0 || len(s) > limit {
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
