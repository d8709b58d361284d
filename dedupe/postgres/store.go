package postgres

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/claimq/claimq/queue"
)

// Defaults and limits of Config.
const (
	DefaultSchema      = "claimq"
	DefaultRetention   = 90 * 24 * time.Hour
	DefaultIdleTimeout = time.Minute
	DefaultMaxTries    = 5

	// MaxBatch is the largest number of leases of one TxMany.
	MaxBatch = 1000
)

// Config is how a Store works. The zero value is good.
type Config struct {
	// Schema that holds the tables; empty: DefaultSchema. Lower case letters,
	// digits and '_', at most 63 of them. Programs that must not see each
	// other's tasks use different ones.
	Schema string

	// Retention is how long, at least, a row is kept after it was last
	// written; zero: DefaultRetention. Make it longer than the longest time
	// between two attempts of a task: dead letters that wait to be redriven
	// count, and so does the oldest snapshot that Redis may be restored from.
	Retention time.Duration

	// IdleTimeout is how long a transaction of Tx may sit between two
	// statements before the server ends it; zero: DefaultIdleTimeout. It
	// bounds for how long a client that is frozen or cut off holds up its
	// successor.
	IdleTimeout time.Duration

	// Isolation of the transactions of Tx; empty: read committed.
	Isolation pgx.TxIsoLevel

	// MaxTries is how often the function of one Tx may be run; zero:
	// DefaultMaxTries.
	MaxTries int

	// Ended, if not nil, is told how each lease of each Tx ended, before Tx
	// returns. It is called by many goroutines at once.
	Ended func(End)
}

var validSchema = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

func (c Config) withDefaults() (Config, error) {
	if c.Schema == "" {
		c.Schema = DefaultSchema
	}
	if c.Retention == 0 {
		c.Retention = DefaultRetention
	}
	if c.IdleTimeout == 0 {
		c.IdleTimeout = DefaultIdleTimeout
	}
	if c.Isolation == "" {
		c.Isolation = pgx.ReadCommitted
	}
	if c.MaxTries == 0 {
		c.MaxTries = DefaultMaxTries
	}
	bad := func(field, remedy string) error {
		return &queue.FieldError{Field: field, Remedy: remedy, Kind: queue.ErrInvalidConfig}
	}
	switch {
	case !validSchema.MatchString(c.Schema):
		return c, bad("Schema", fmt.Sprintf("use 1 to 63 lower case letters, digits or '_', not beginning with a digit, got %q", c.Schema))
	case c.Retention < time.Minute:
		return c, bad("Retention", fmt.Sprintf("use at least 1m, got %v", c.Retention))
	case c.IdleTimeout < time.Second:
		return c, bad("IdleTimeout", fmt.Sprintf("use at least 1s, got %v", c.IdleTimeout))
	case c.MaxTries < 1 || c.MaxTries > 100:
		return c, bad("MaxTries", fmt.Sprintf("use 1 to 100, got %d", c.MaxTries))
	case c.Isolation != pgx.ReadCommitted && c.Isolation != pgx.RepeatableRead && c.Isolation != pgx.Serializable:
		return c, bad("Isolation", fmt.Sprintf("use read committed, repeatable read or serializable, got %q", c.Isolation))
	}
	return c, nil
}

// Store keeps completions and steps in one schema of one database. It may be
// used by many goroutines.
type Store struct {
	pool *pgxpool.Pool
	cfg  Config
}

// New makes a Store on a pool, which stays the caller's. It does not talk to
// the server; see Migrate. Errors are queue.ErrInvalidConfig.
func New(pool *pgxpool.Pool, cfg Config) (*Store, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if pool == nil {
		return nil, &queue.FieldError{Field: "pool", Remedy: "give a pool of connections", Kind: queue.ErrInvalidConfig}
	}
	return &Store{pool: pool, cfg: cfg}, nil
}

// Config returns the configuration with its defaults filled in.
func (s *Store) Config() Config { return s.cfg }

// sql puts the schema into a statement.
func (s *Store) sql(statement string) string {
	return strings.ReplaceAll(statement, "{{schema}}", s.cfg.Schema)
}
