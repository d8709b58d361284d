package redislease

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/lease"
)

// repeats reports whether a client repeats commands by itself.
func repeats(c redis.UniversalClient) bool {
	plain, ok := c.(*redis.Client)
	return !ok || plain.Options().MaxRetries > 0
}

// passing are the answers after which the client repeats a command by itself.
var passing = []string{"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "ERR max number of clients reached"}

// failed says of an error whether the script may have run. A client that
// repeats commands reports the end of its last attempt, and an earlier one may
// have been applied: then a failure to connect says nothing.
func (s *Store) failed(what string, err error) error {
	var reply redis.Error
	var op *net.OpError
	definite := false
	switch {
	case errors.As(err, &reply):
		definite = !s.repeats || !slices.ContainsFunc(passing, func(p string) bool { return redis.HasErrorPrefix(err, p) })
	case errors.As(err, &op) && op.Op == "dial",
		errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), errors.Is(err, redis.ErrClosed):
		definite = !s.repeats
	}
	if definite {
		return fmt.Errorf("%w: %s: %w", lease.ErrUnavailable, what, err)
	}
	return fmt.Errorf("%w: %s: %w", lease.ErrIndefinite, what, err)
}
