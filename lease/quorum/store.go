package quorum

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/lease"
	"github.com/claimq/claimq/queue"
)

// Defaults and bounds.
const (
	DefaultPrefix  = queue.DefaultPrefix
	MaxPrefixBytes = 64
	MinServers     = 3
	MaxServers     = 15

	// callShare is the part of a lease length that one call may take.
	callShare = 0.2
	// drift is the part of a lease length by which clocks may go wrong in it.
	drift = 0.01
)

// Config describes a store.
type Config struct {
	// Clients of the servers, one each: MinServers to MaxServers, an odd number.
	// They are never closed by the store. Each must heed the deadlines of
	// contexts (ContextTimeoutEnabled) and repeat nothing by itself (MaxRetries
	// -1), or one server that hangs would hold up every call.
	Clients []*redis.Client
	Prefix  string // of every key; default "claimq"
}

// Store is a lease.Store on a majority of Redis servers.
type Store struct {
	cfg Config
	rs  *redsync.Redsync
}

var _ lease.Store = (*Store)(nil)

var prefixes = regexp.MustCompile(`^[a-zA-Z0-9._-]+$`)

// New checks cfg, reports every problem at once, and returns the store. It does
// not talk to the servers.
func New(cfg Config) (*Store, error) {
	if cfg.Prefix == "" {
		cfg.Prefix = DefaultPrefix
	}
	var errs []error
	bad := func(ok bool, field, remedy string, args ...any) {
		if !ok {
			errs = append(errs, &queue.FieldError{Field: field, Remedy: fmt.Sprintf(remedy, args...), Kind: queue.ErrInvalidConfig})
		}
	}
	n := len(cfg.Clients)
	bad(n >= MinServers && n <= MaxServers && n%2 == 1, "Clients", "give an odd number of servers from %d to %d, got %d", MinServers, MaxServers, n)
	seen := map[string]bool{}
	var pools []redsyncredis.Pool
	for i, c := range cfg.Clients {
		field := fmt.Sprintf("Clients[%d]", i)
		if c == nil {
			bad(false, field, "give a go-redis client")
			continue
		}
		opt := c.Options()
		bad(opt.ContextTimeoutEnabled, field, "set ContextTimeoutEnabled: a server that hangs would hold up every call")
		bad(opt.MaxRetries <= 0, field, "set MaxRetries to -1: a repeated call finds what the first left and takes it for somebody else's")
		bad(!seen[opt.Addr], field, "name each server once, %s is there twice", opt.Addr)
		seen[opt.Addr] = true
		pools = append(pools, goredis.NewPool(c))
	}
	bad(len(cfg.Prefix) <= MaxPrefixBytes && prefixes.MatchString(cfg.Prefix), "Prefix",
		"use 1 to %d letters, digits, '.', '_' or '-', got %q", MaxPrefixBytes, cfg.Prefix)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	cfg.Clients = slices.Clone(cfg.Clients)
	return &Store{cfg: cfg, rs: redsync.New(pools...)}, nil
}

// Key returns the key of a name on each server.
func (s *Store) Key(name string) string { return s.cfg.Prefix + ":{lease." + name + "}:quorum" }

func (s *Store) mutex(name string, token lease.Token, length time.Duration) *redsync.Mutex {
	return s.rs.NewMutex(s.Key(name),
		redsync.WithExpiry(length),
		redsync.WithTries(1),
		redsync.WithDriftFactor(drift),
		redsync.WithTimeoutFactor(callShare),
		redsync.WithValue(string(token)),
		redsync.WithGenValueFunc(func() (string, error) { return string(token), nil }),
	)
}

// Acquire implements lease.Store. Asked again with a token that holds the lease
// it answers lease.ErrHeld and gives the lease back. lease.ErrUnavailable: fewer
// than a majority answered; what was taken has been given back or ends within
// the lease length.
func (s *Store) Acquire(ctx context.Context, r lease.Request) (lease.Lease, error) {
	m := s.mutex(r.Name, r.Token, r.Length)
	sent := time.Now()
	if err := m.TryLockContext(ctx); err != nil {
		if ctx.Err() == nil && s.answered(err) {
			return lease.Lease{}, lease.ErrHeld
		}
		return lease.Lease{}, fmt.Errorf("%w: acquire: %w", lease.ErrUnavailable, err)
	}
	l := lease.Lease{Name: r.Name, Token: r.Token, Length: r.Length}
	return trusted(l, sent, m), nil
}

// Extend implements lease.Store.
func (s *Store) Extend(ctx context.Context, l lease.Lease) (lease.Lease, error) {
	m := s.mutex(l.Name, l.Token, l.Length)
	ctx, cancel := context.WithTimeout(ctx, share(l))
	defer cancel()
	sent := time.Now()
	ok, err := m.ExtendContext(ctx)
	switch {
	case ok:
		return trusted(l, sent, m), nil
	case s.refused(err):
		return l, fmt.Errorf("%w: %w", lease.ErrLost, err)
	}
	return l, fmt.Errorf("%w: extend: %w", lease.ErrIndefinite, err)
}

// Release implements lease.Store.
func (s *Store) Release(ctx context.Context, l lease.Lease) error {
	m := s.mutex(l.Name, l.Token, l.Length)
	ctx, cancel := context.WithTimeout(ctx, share(l))
	defer cancel()
	ok, err := m.UnlockContext(ctx)
	switch {
	case ok:
		return nil
	case s.refused(err):
		return fmt.Errorf("%w: %w", lease.ErrLost, err)
	}
	return fmt.Errorf("%w: release: %w", lease.ErrIndefinite, err)
}

func share(l lease.Lease) time.Duration { return time.Duration(callShare * float64(l.Length)) }

// trusted is the lease after a request that came through: until the sooner of
// what this library and what redsync allow.
func trusted(l lease.Lease, sent time.Time, m *redsync.Mutex) lease.Lease {
	l = l.Since(sent)
	if until := m.Until(); until.Before(l.TrustedUntil) {
		l.TrustedUntil = until
	}
	return l
}

// answered reports whether a majority answered a call that failed, so that it
// was others who took the lease, or a part of it.
func (s *Store) answered(err error) bool {
	failed, _ := count(err)
	return len(s.cfg.Clients)-failed > len(s.cfg.Clients)/2 && !errors.Is(err, redsync.ErrFailed)
}

// refused reports whether so many servers do not have the token that no
// majority can.
func (s *Store) refused(err error) bool {
	_, refusals := count(err)
	return refusals > len(s.cfg.Clients)/2
}

// count tells how many servers failed, and how many answered that the token is
// not what they have.
func count(err error) (failed, refusals int) {
	switch e := err.(type) {
	case nil:
	case *redsync.ErrTaken:
		return 0, len(e.Nodes)
	case *redsync.RedisError:
		return 1, 0
	case *redsync.ErrNodeTaken:
		return 0, 1
	case interface{ Unwrap() []error }:
		for _, each := range e.Unwrap() {
			f, r := count(each)
			failed, refusals = failed+f, refusals+r
		}
	default:
		if errors.Is(err, redsync.ErrLockAlreadyExpired) {
			return 0, 1
		}
	}
	return failed, refusals
}
