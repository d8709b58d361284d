package pglock

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/claimq/claimq/lease"
	"github.com/claimq/claimq/queue"
)

// Defaults and bounds.
const (
	DefaultPrefix      = queue.DefaultPrefix
	MaxPrefixBytes     = 64
	DefaultTable       = "claimq_lease_fences"
	DefaultMaxSessions = 16
	MaxSessions        = 1000
)

// Config describes a store. The zero value of every field but Conn is a good
// default.
type Config struct {
	// Conn says how to connect to the primary, not through a pooler that
	// changes sessions between transactions. It is copied. From pgx.ParseConfig.
	Conn   *pgx.ConnConfig
	Prefix string // of every name; default "claimq"
	Table  string // of fences, with its schema or without; default "claimq_lease_fences"
	// NoFence leaves the table alone; fences are then 0.
	NoFence bool
	// MaxSessions bounds the connections, of leases and of those who wait for
	// one. More are answered with lease.ErrUnavailable. Default 16.
	MaxSessions int
}

// Store is a lease.Store in sessions of PostgreSQL.
type Store struct {
	cfg   Config
	table string // quoted

	mu       sync.Mutex
	closed   bool
	opened   int // connections, also those that are being opened or wait
	sessions map[lease.Token]*session
}

var (
	_ lease.Store   = (*Store)(nil)
	_ lease.Watcher = (*Store)(nil)
)

var (
	prefixes = regexp.MustCompile(`^[a-zA-Z0-9._-]+$`)
	tables   = regexp.MustCompile(`^([a-z_][a-z0-9_]{0,62}\.)?[a-z_][a-z0-9_]{0,62}$`)
)

// New checks cfg, reports every problem at once, and returns the store. It does
// not talk to the server.
func New(cfg Config) (*Store, error) {
	if cfg.Prefix == "" {
		cfg.Prefix = DefaultPrefix
	}
	if cfg.Table == "" {
		cfg.Table = DefaultTable
	}
	if cfg.MaxSessions == 0 {
		cfg.MaxSessions = DefaultMaxSessions
	}
	var errs []error
	bad := func(ok bool, field, remedy string, args ...any) {
		if !ok {
			errs = append(errs, &queue.FieldError{Field: field, Remedy: fmt.Sprintf(remedy, args...), Kind: queue.ErrInvalidConfig})
		}
	}
	bad(cfg.Conn != nil, "Conn", "give the result of pgx.ParseConfig")
	bad(len(cfg.Prefix) <= MaxPrefixBytes && prefixes.MatchString(cfg.Prefix), "Prefix",
		"use 1 to %d letters, digits, '.', '_' or '-', got %q", MaxPrefixBytes, cfg.Prefix)
	bad(tables.MatchString(cfg.Table), "Table", "use lower-case letters, digits and '_', after a schema and '.' if need be, got %q", cfg.Table)
	bad(cfg.MaxSessions >= 1 && cfg.MaxSessions <= MaxSessions, "MaxSessions", "use 1 to %d, got %d", MaxSessions, cfg.MaxSessions)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	cfg.Conn = cfg.Conn.Copy()
	return &Store{
		cfg:      cfg,
		table:    pgx.Identifier(strings.Split(cfg.Table, ".")).Sanitize(),
		sessions: map[lease.Token]*session{},
	}, nil
}

// Key returns the number of the advisory lock of a name.
func (s *Store) Key(name string) int64 {
	sum := sha256.Sum256([]byte(s.cfg.Prefix + ":" + name))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// Setup makes the table of fences where it is missing. Many processes may call
// it at once.
func (s *Store) Setup(ctx context.Context) error {
	if s.cfg.NoFence {
		return nil
	}
	conn, err := pgx.ConnectConfig(ctx, s.cfg.Conn)
	if err != nil {
		return fmt.Errorf("%w: setup: %w", lease.ErrUnavailable, err)
	}
	defer hangUp(conn)
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// Two at once would otherwise get in each other's way in the catalogue.
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", s.Key("setup of "+s.cfg.Table)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "CREATE TABLE IF NOT EXISTS "+s.table+" (name text PRIMARY KEY, fence bigint NOT NULL)")
		return err
	})
	if err != nil {
		return fmt.Errorf("setup of %s: %w", s.cfg.Table, err)
	}
	return nil
}

// Close ends the sessions of all leases, and with them the leases. Locks of
// transactions are not concerned.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	open := s.sessions
	s.sessions = map[lease.Token]*session{}
	s.opened -= len(open)
	s.mu.Unlock()
	for _, each := range open {
		each.end()
	}
	return nil
}

// reserve takes a place for a connection.
func (s *Store) reserve() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return fmt.Errorf("%w: the store is closed", lease.ErrUnavailable)
	case s.opened >= s.cfg.MaxSessions:
		return fmt.Errorf("%w: all %d sessions are in use: raise MaxSessions", lease.ErrUnavailable, s.cfg.MaxSessions)
	}
	s.opened++
	return nil
}

func (s *Store) vacate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened--
}

// keep puts a session where the verbs find it; false when the store was closed
// meanwhile.
func (s *Store) keep(token lease.Token, each *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.sessions[token] = each
	return true
}

func (s *Store) find(token lease.Token) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[token]
}

// drop forgets a session and ends it.
func (s *Store) drop(token lease.Token, each *session) {
	s.mu.Lock()
	if s.sessions[token] == each {
		delete(s.sessions, token)
		s.opened--
	}
	s.mu.Unlock()
	each.end()
}

// hangUpWithin bounds the farewell to a server.
const hangUpWithin = 2 * time.Second

// hangUp closes a connection and waits until that is done, also when a context
// that ended has closed it.
func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), hangUpWithin)
	defer cancel()
	_ = conn.Close(ctx) // the server ends a session whose connection is gone
	select {
	case <-conn.PgConn().CleanupDone():
	case <-ctx.Done():
	}
}
