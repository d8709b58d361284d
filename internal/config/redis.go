package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/claimq/claimq/queue"
)

// redisTimeout is how long one command may take on the wire, unless the URL
// says otherwise or a lease is so short that waiting this long would end it.
const redisTimeout = 3 * time.Second

// RedisURL is the address of a server, with its password hidden.
type RedisURL struct{ opt *redis.Options }

var errRedisURL = errors.New("not a server address; write redis://[user:password@]host:port/db, " +
	"or rediss:// for TLS, with special characters of the password percent-encoded (@ is %40, / is %2F, # is %23)")

// UnmarshalText parses the URL. Its errors never quote it: any part of a URL
// that does not parse may be part of the password.
func (u *RedisURL) UnmarshalText(text []byte) error {
	raw := strings.TrimSpace(string(text))
	parsed, err := url.Parse(raw)
	if err != nil || parsed.Fragment != "" || parsed.Host == "" && parsed.Scheme != "unix" {
		return errRedisURL
	}
	switch parsed.Scheme {
	case "redis", "rediss", "unix":
	default:
		return errRedisURL
	}
	opt, err := redis.ParseURL(raw)
	if err != nil {
		return errors.New("the database number or an option after '?' is not understood; " +
			"write /0 to /15 and options such as ?pool_size=50&dial_timeout=5s")
	}
	u.opt = opt
	return nil
}

// String shows the address without user, password and options.
func (u RedisURL) String() string {
	if u.opt == nil {
		return ""
	}
	scheme := "redis"
	if u.opt.TLSConfig != nil {
		scheme = "rediss"
	}
	if u.opt.Network == "unix" {
		scheme = "unix"
	}
	return scheme + "://" + u.opt.Addr
}

// GoString hides the password from %#v.
func (u RedisURL) GoString() string { return "config.RedisURL(" + u.String() + ")" }

// LogValue hides the password from slog.
func (u RedisURL) LogValue() slog.Value { return slog.StringValue(u.String()) }

// MarshalText hides the password from JSON and its like.
func (u RedisURL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// Embedded reports whether no server is named.
func (r Redis) Embedded() bool { return r.URL.opt == nil }

// RedisOptions returns the client options for the worker's server, or nil when
// none is named.
func (w Worker) RedisOptions() *redis.Options {
	// A worker's running tasks share a few renewal and settling calls, so the
	// pool follows the loops, not the concurrency; the rest is for steps.
	return w.Redis.options(w.Queue, 2*len(w.Queue.Queues)+min(w.Run.Concurrency, 100)+4)
}

// RedisOptions returns the client options for the producer's server, or nil
// when none is named.
func (p Producer) RedisOptions() *redis.Options { return p.Redis.options(p.Queue, 4) }

// RedisOptions returns the client options for the relay's server, or nil when
// none is named.
func (r Relay) RedisOptions() *redis.Options {
	return r.Redis.options(r.Queue, 2*len(r.Queue.Queues)+2)
}

func (r Redis) options(q Queue, pool int) *redis.Options {
	if r.URL.opt == nil {
		return nil
	}
	opt := *r.URL.opt
	opt.MaxRetries = -1 // a call that may have been applied is repeated knowingly, with its token, or not at all
	if opt.PoolSize == 0 {
		opt.PoolSize = pool
	}
	limit := min(redisTimeout, max(q.shortestLease()/3, 100*time.Millisecond))
	if opt.ReadTimeout == 0 {
		opt.ReadTimeout = limit
	}
	if opt.WriteTimeout == 0 {
		opt.WriteTimeout = limit
	}
	opt.ContextTimeoutEnabled = true
	// Of use with a server that announces its maintenance only, and noisy with
	// every other.
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if opt.TLSConfig != nil {
		opt.TLSConfig = opt.TLSConfig.Clone()
		opt.TLSConfig.MinVersion = tls.VersionTLS12
		if r.rootCAs != nil {
			opt.TLSConfig.RootCAs = r.rootCAs
		}
	}
	return &opt
}

// For returns the configuration of one queue.
func (q Queue) For(name, prefix string, client redis.UniversalClient) queue.Config {
	return queue.Config{
		Name: name, Client: client, Prefix: prefix, Partitions: q.Partitions,
		Lease: q.Lease, KindLeases: q.KindLeases, Retention: q.Retention,
		MaxPayload: int(q.MaxPayload), MaxBacklog: q.MaxBacklog,
		MaxFailures: q.MaxFailures, MaxInterruptions: q.MaxInterruptions, NoHandlerAfter: q.NoHandlerAfter, Trace: q.Trace,
	}
}

func (q Queue) shortestLease() time.Duration {
	d := q.Lease
	for _, k := range q.KindLeases {
		d = min(d, k)
	}
	return d
}

// certificates reads a file of PEM certificates; nil when none is named.
func (l *loader) certificates(name, path string) *x509.CertPool {
	if path == "" {
		return nil
	}
	pem, err := os.ReadFile(path)
	if err != nil {
		l.bad(name, "%v", err)
		return nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		l.bad(name, "%s holds no PEM certificate", path)
		return nil
	}
	return pool
}
