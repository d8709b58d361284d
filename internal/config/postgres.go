package config

import (
	"errors"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// postgresTimeout is how long a connection may take to come about, unless the
// URL says otherwise.
const postgresTimeout = 5 * time.Second

// PostgresURL is the address of a database, with its password hidden.
type PostgresURL struct{ conf *pgxpool.Config }

var errPostgresURL = errors.New("not the address of a database; write postgres://[user:password@]host:port/name, " +
	"with options such as ?sslmode=verify-full, and special characters of the password percent-encoded (@ is %40, / is %2F, # is %23)")

// UnmarshalText parses the URL. Its errors never quote it: any part of a URL
// that does not parse may be part of the password.
func (u *PostgresURL) UnmarshalText(text []byte) error {
	raw := strings.TrimSpace(string(text))
	if !strings.HasPrefix(raw, "postgres://") && !strings.HasPrefix(raw, "postgresql://") {
		return errPostgresURL
	}
	conf, err := pgxpool.ParseConfig(raw)
	if err != nil {
		return errPostgresURL
	}
	if !strings.Contains(raw, "connect_timeout=") {
		conf.ConnConfig.ConnectTimeout = postgresTimeout
	}
	u.conf = conf
	return nil
}

// IsSet reports whether a database is named.
func (u PostgresURL) IsSet() bool { return u.conf != nil }

// String shows the address without user, password and options.
func (u PostgresURL) String() string {
	if u.conf == nil {
		return ""
	}
	c := u.conf.ConnConfig
	address := url.URL{Scheme: "postgres", Host: net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))), Path: "/" + c.Database}
	return address.String()
}

// GoString hides the password from %#v.
func (u PostgresURL) GoString() string { return "config.PostgresURL(" + u.String() + ")" }

// LogValue hides the password from slog.
func (u PostgresURL) LogValue() slog.Value { return slog.StringValue(u.String()) }

// MarshalText hides the password from JSON and its like.
func (u PostgresURL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// PoolConfig returns the settings of a pool that has room for at least so many
// connections, or nil when no database is named.
func (p Postgres) PoolConfig(connections int) *pgxpool.Config {
	if p.URL.conf == nil {
		return nil
	}
	c := p.URL.conf.Copy()
	c.MaxConns = max(c.MaxConns, int32(connections))
	return c
}
