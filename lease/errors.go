package lease

import (
	"errors"
	"fmt"

	"github.com/claimq/claimq/queue"
)

// Errors, grouped by what the caller does next. A configuration that cannot
// work is a queue.ErrInvalidConfig.
var (
	// ErrHeld: somebody else has the lease. Nothing was changed. Do without,
	// or ask again later.
	ErrHeld = errors.New("lease is held by somebody else")

	// ErrLost: the caller does not hold the lease any more; as the cause of a
	// context, or from Do, that it may not hold it any more. Nothing was
	// changed. Stop, and take what was done since the lease was last trusted
	// for done beside somebody else.
	ErrLost = errors.New("lease lost")

	// ErrReentrant: the context comes from inside Do for the same store and
	// name, so the caller would wait for itself. Nothing was changed. Pass the
	// lease on instead of asking for it.
	ErrReentrant = errors.New("lease is held by the caller itself")

	// ErrInvalidName: use 1 to MaxNameBytes printable ASCII characters other
	// than space, '{' and '}'. Nothing was changed.
	ErrInvalidName = errors.New("invalid lease name")

	// ErrUnavailable: the store did not get the question, or refused it as a
	// whole. Nothing changed. Ask again later. It is queue.ErrUnavailable.
	ErrUnavailable = queue.ErrUnavailable

	// ErrIndefinite: the store may or may not have done it. Ask again with the
	// same lease. It is queue.ErrIndefinite.
	ErrIndefinite = queue.ErrIndefinite
)

func lost(name, why string) error { return fmt.Errorf("lease %q: %w: %s", name, ErrLost, why) }

// about says of which lease an answer of the store was.
func about(name string, err error) error { return fmt.Errorf("lease %q: %w", name, err) }
