package quorum_test

import (
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/internal/faultredis"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/lease"
	"github.com/claimq/claimq/lease/internal/leasetest"
	"github.com/claimq/claimq/lease/quorum"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

func heeding(o *redis.Options) { o.ContextTimeoutEnabled = true }

// cluster is three servers that know nothing of one another.
type cluster []*redistest.Server

func start(t *testing.T) cluster {
	t.Helper()
	return cluster{redistest.Start(t), redistest.Start(t), redistest.Start(t)}
}

// open returns a store with clients of its own, and a hook for each of them.
func (c cluster) open(t *testing.T, prefix string) (*quorum.Store, []*faultredis.Hook) {
	t.Helper()
	var clients []*redis.Client
	var hooks []*faultredis.Hook
	for _, server := range c {
		client := server.Client(heeding)
		clients = append(clients, client)
		hooks = append(hooks, faultredis.New(client))
	}
	s, err := quorum.New(quorum.Config{Clients: clients, Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	return s, hooks
}

// keys tells what each server has under a key.
func (c cluster) keys(t *testing.T, key string) (values []string) {
	t.Helper()
	for _, server := range c {
		values = append(values, server.Client().Get(t.Context(), key).Val())
	}
	return values
}

func TestSuite(t *testing.T) {
	servers := start(t)
	leasetest.Run(t, func(t *testing.T) leasetest.Subject {
		prefix := redistest.Prefix(t)
		var look []*redis.Client
		for _, server := range servers {
			look = append(look, server.Client())
		}
		key, _ := servers.open(t, prefix)
		return leasetest.Subject{
			Promises: leasetest.Promises{Expires: true, MayFail: true},
			Open: func() lease.Store {
				s, _ := servers.open(t, prefix)
				return s
			},
			Crash: func(lease.Store) {}, // it asks for nothing any more
			End: func(name string) {
				for _, client := range look {
					if err := client.Del(t.Context(), key.Key(name)).Err(); err != nil {
						t.Error(err)
					}
				}
			},
		}
	})
}
