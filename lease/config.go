package lease

import (
	crand "crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"reflect"
	"time"

	"github.com/claimq/claimq/queue"
)

// Defaults and bounds.
const (
	DefaultLength = 15 * time.Second
	MinLength     = 200 * time.Millisecond
	MaxLength     = time.Hour

	DefaultWait = 10 * time.Second
	MaxWait     = time.Hour
	// NoWait as Config.Wait: one question, and ErrHeld if somebody has it.
	NoWait = -1

	DefaultPoll = 500 * time.Millisecond
	MinPoll     = time.Millisecond
	MaxPoll     = time.Minute

	MaxNameBytes = 200
)

// Config describes how leases are asked for. The zero value is a good default.
type Config struct {
	// Length of a lease: for how long it stays with a holder that shows no sign
	// of life, not how long the work may take. Default 15 s, MinLength to
	// MaxLength, whole milliseconds.
	Length time.Duration
	// Wait is how long to wait for a lease that somebody has. Default 10 s, at
	// most MaxWait; NoWait does not wait.
	Wait time.Duration
	// Poll is the longest pause between two questions while waiting. Pauses
	// begin at a tenth of it and double, each cut by up to half at random.
	// Default 500 ms, MinPoll to MaxPoll.
	Poll time.Duration

	Rand io.Reader // entropy for tokens; default crypto/rand
}

// Locker gives out the leases of a store. Its methods are safe for concurrent
// use.
type Locker struct {
	store Store
	cfg   Config
}

// New checks cfg, reports every problem at once, and returns the locker. It
// does not talk to the store.
func New(store Store, cfg Config) (*Locker, error) {
	if cfg.Length == 0 {
		cfg.Length = DefaultLength
	}
	if cfg.Wait == 0 {
		cfg.Wait = DefaultWait
	}
	if cfg.Poll == 0 {
		cfg.Poll = DefaultPoll
	}
	if cfg.Rand == nil {
		cfg.Rand = crand.Reader
	}
	var errs []error
	bad := func(ok bool, field, remedy string, args ...any) {
		if !ok {
			errs = append(errs, &queue.FieldError{Field: field, Remedy: fmt.Sprintf(remedy, args...), Kind: queue.ErrInvalidConfig})
		}
	}
	// The context of Do remembers the store to tell re-entrance.
	bad(store != nil && reflect.ValueOf(store).Comparable(), "store", "give a store that can be compared, as a pointer can")
	bad(cfg.Length >= MinLength && cfg.Length <= MaxLength && cfg.Length%time.Millisecond == 0,
		"Length", "use whole milliseconds from %v to %v, got %v", MinLength, MaxLength, cfg.Length)
	bad(cfg.Wait == NoWait || cfg.Wait > 0 && cfg.Wait <= MaxWait, "Wait", "use NoWait, or up to %v, got %v", MaxWait, cfg.Wait)
	bad(cfg.Poll >= MinPoll && cfg.Poll <= MaxPoll, "Poll", "use %v to %v, got %v", MinPoll, MaxPoll, cfg.Poll)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Locker{store: store, cfg: cfg}, nil
}

// Config returns the configuration with defaults filled in.
func (l *Locker) Config() Config { return l.cfg }

const tokenBytes = 12 // 96 bits, 16 characters

// newToken panics when the source of entropy fails, as crypto/rand itself
// does: without it no lease can be told from another.
func (l *Locker) newToken() Token {
	var b [tokenBytes]byte
	if _, err := io.ReadFull(l.cfg.Rand, b[:]); err != nil {
		panic(fmt.Sprintf("claimq: no entropy for a lease token: %v", err))
	}
	return Token(base64.RawURLEncoding.EncodeToString(b[:]))
}

func checkName(name string) error {
	ok := len(name) >= 1 && len(name) <= MaxNameBytes
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		ok = c > ' ' && c <= '~' && c != '{' && c != '}'
	}
	if !ok {
		return fmt.Errorf("%w: %q", ErrInvalidName, name[:min(len(name), MaxNameBytes)])
	}
	return nil
}
