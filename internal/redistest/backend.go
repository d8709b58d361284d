package redistest

import (
	crand "crypto/rand"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

const (
	maxPrefix   = 64 // what the product allows for a prefix
	prefixBytes = 6
)

// Prefix returns a key prefix that no other call returns: the test's name for
// whoever reads the keys, and a random part. It is made of letters, digits,
// '.', '_' and '-' and is at most 64 bytes long.
func Prefix(tb testing.TB) string {
	tb.Helper()
	var b [prefixBytes]byte
	crand.Read(b[:]) // never fails: it ends the program instead
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-':
			return r
		}
		return '_'
	}, tb.Name())
	tail := "-" + hex.EncodeToString(b[:])
	return name[:min(len(name), maxPrefix-len(tail))] + tail
}

// Mini returns an in-process Redis and a client of it, both closed when the
// test ends. It differs from the real one in many commands, so what is proved
// on it is proved on a real server too; see Both.
func Mini(tb testing.TB) (*miniredis.Miniredis, *redis.Client) {
	tb.Helper()
	m := miniredis.RunT(tb)
	return m, newClient(tb, options(m.Addr()))
}

// Backend is one kind of server.
type Backend struct {
	Name   string
	Client *redis.Client
	Real   bool // a redis-server, not the in-process one
}

// Both runs f once on the shared redis-server and once on an in-process one.
func Both(t *testing.T, f func(t *testing.T, b Backend)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) {
		f(t, Backend{Name: "redis", Client: Shared(t).Client(), Real: true})
	})
	t.Run("miniredis", func(t *testing.T) {
		_, c := Mini(t)
		f(t, Backend{Name: "miniredis", Client: c})
	})
}
