package redislease_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/lease"
	"github.com/claimq/claimq/lease/internal/leasetest"
	"github.com/claimq/claimq/lease/redislease"
)

func open(t *testing.T, c redis.UniversalClient, prefix string) *redislease.Store {
	t.Helper()
	s, err := redislease.New(redislease.Config{Client: c, Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// expire ends a lease as time does, by an order to the server.
func expire(t *testing.T, c redis.UniversalClient, key string) {
	if err := c.HSet(t.Context(), key, "ends", 1).Err(); err != nil {
		t.Error(err)
	}
}

func TestSuite(t *testing.T) {
	leasetest.Run(t, func(t *testing.T) leasetest.Subject {
		server, prefix := redistest.Shared(t), redistest.Prefix(t)
		look := server.Client()
		return leasetest.Subject{
			Promises: leasetest.Promises{Fenced: true, Expires: true, ErrHeldProves: true, AcquireAgain: true, ReleaseAgain: true},
			Open:     func() lease.Store { return open(t, server.Client(), prefix) },
			Crash:    func(lease.Store) {}, // it asks for nothing any more
			End:      func(name string) { expire(t, look, open(t, look, prefix).Key(name)) },
		}
	})
}
