package redislease

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/lease"
	"github.com/claimq/claimq/queue"
)

// Defaults and bounds.
const (
	DefaultPrefix  = queue.DefaultPrefix
	MaxPrefixBytes = 64
	DefaultKeep    = 24 * time.Hour
	MinKeep        = time.Minute

	// traces is how many answers to releases a key remembers. A release is
	// asked again within seconds; so many other holders in between would have
	// it answered as lost.
	traces = 16
)

// Config describes a store. The zero value of every field but Client is a good
// default.
type Config struct {
	Client redis.UniversalClient // never closed by the store; one of a cluster too
	Prefix string                // of every key; default "claimq", as of queues
	// Keep is how long the last fence is remembered after a lease. Default 24 h,
	// at least a minute.
	Keep time.Duration
}

// Store is a lease.Store on one Redis server.
type Store struct {
	cfg     Config
	repeats bool // the client repeats commands by itself

	acquire, extend, release *redis.Script
}

var _ lease.Store = (*Store)(nil)

var prefixes = regexp.MustCompile(`^[a-zA-Z0-9._-]+$`)

// New checks cfg, reports every problem at once, and returns the store. It does
// not talk to the server.
func New(cfg Config) (*Store, error) {
	if cfg.Prefix == "" {
		cfg.Prefix = DefaultPrefix
	}
	if cfg.Keep == 0 {
		cfg.Keep = DefaultKeep
	}
	var errs []error
	bad := func(ok bool, field, remedy string, args ...any) {
		if !ok {
			errs = append(errs, &queue.FieldError{Field: field, Remedy: fmt.Sprintf(remedy, args...), Kind: queue.ErrInvalidConfig})
		}
	}
	bad(cfg.Client != nil, "Client", "give a go-redis client")
	bad(len(cfg.Prefix) <= MaxPrefixBytes && prefixes.MatchString(cfg.Prefix), "Prefix",
		"use 1 to %d letters, digits, '.', '_' or '-', got %q", MaxPrefixBytes, cfg.Prefix)
	bad(cfg.Keep >= MinKeep, "Keep", "use at least %v, got %v", MinKeep, cfg.Keep)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Store{
		cfg:     cfg,
		repeats: repeats(cfg.Client),
		acquire: redis.NewScript(acquireText),
		extend:  redis.NewScript(extendText),
		release: redis.NewScript(releaseText),
	}, nil
}

// Key returns the key of a name, to look at or to remove by hand.
func (s *Store) Key(name string) string { return s.cfg.Prefix + ":{lease." + name + "}:lease" }

//go:embed lua/acquire.lua
var acquireText string

//go:embed lua/extend.lua
var extendText string

//go:embed lua/release.lua
var releaseText string

// Acquire implements lease.Store. ErrLost: the token was given back before.
func (s *Store) Acquire(ctx context.Context, r lease.Request) (lease.Lease, error) {
	sent := time.Now()
	reply, err := s.acquire.Run(ctx, s.cfg.Client, []string{s.Key(r.Name)},
		string(r.Token), r.Length.Milliseconds(), s.cfg.Keep.Milliseconds()).StringSlice()
	if err != nil {
		return lease.Lease{}, s.failed("acquire", err)
	}
	if len(reply) != 2 {
		return lease.Lease{}, odd("acquire", reply)
	}
	switch reply[0] {
	case "granted":
		fence, err := strconv.ParseUint(reply[1], 10, 64)
		if err != nil || fence == 0 {
			return lease.Lease{}, odd("acquire", reply)
		}
		l := lease.Lease{Name: r.Name, Token: r.Token, Fence: queue.Fence(fence), Length: r.Length}
		return l.Since(sent), nil
	case "held":
		return lease.Lease{}, lease.ErrHeld
	case "released":
		return lease.Lease{}, fmt.Errorf("%w: it was given back before it was granted", lease.ErrLost)
	}
	return lease.Lease{}, odd("acquire", reply)
}

// Extend implements lease.Store. It takes a third of the length at most, if the
// client heeds the deadlines of contexts: so a lease that is trusted for four
// fifths of its length survives one call that hangs.
func (s *Store) Extend(ctx context.Context, l lease.Lease) (lease.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, l.Length/3)
	defer cancel()
	sent := time.Now()
	err := s.verb(ctx, "extend", s.extend, l, l.Length.Milliseconds(), s.cfg.Keep.Milliseconds())
	if err != nil {
		return l, err
	}
	return l.Since(sent), nil
}

// Release implements lease.Store. It may be asked again.
func (s *Store) Release(ctx context.Context, l lease.Lease) error {
	return s.verb(ctx, "release", s.release, l, s.cfg.Keep.Milliseconds(), traces)
}

func (s *Store) verb(ctx context.Context, name string, script *redis.Script, l lease.Lease, args ...any) error {
	reply, err := script.Run(ctx, s.cfg.Client, []string{s.Key(l.Name)}, append([]any{string(l.Token)}, args...)...).Text()
	switch {
	case err != nil:
		return s.failed(name, err)
	case reply == "+":
		return nil
	case reply == "":
		return lease.ErrLost
	}
	return odd(name, reply)
}

func odd(what string, reply any) error {
	return fmt.Errorf("%w: %s: the server answered %q", lease.ErrIndefinite, what, reply)
}
