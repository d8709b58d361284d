package producer

import (
	"errors"
	"fmt"
	"strings"

	"github.com/claimq/claimq/queue"
)

// Summary counts the answers to many tasks. Each is counted once.
type Summary struct {
	Added      int
	Duplicate  int
	Refused    int // invalid, or the server refused the task itself
	Full       int // the queue was full: nothing was added
	Indefinite int // may or may not have been added: send again with the same ID
	Unsent     int // the server was away: nothing was added
}

// Summarize counts receipts.
func Summarize(receipts []queue.Receipt) Summary {
	var s Summary
	for _, r := range receipts {
		s.count(r)
	}
	return s
}

func (s *Summary) count(r queue.Receipt) {
	switch {
	case r.Err == nil && r.Duplicate:
		s.Duplicate++
	case r.Err == nil:
		s.Added++
	case errors.Is(r.Err, queue.ErrIndefinite):
		s.Indefinite++
	case errors.Is(r.Err, queue.ErrUnavailable):
		s.Unsent++
	case errors.Is(r.Err, queue.ErrQueueFull):
		s.Full++
	default:
		s.Refused++
	}
}

// keptPerCause is how many problems of each cause an Error keeps.
const keptPerCause = 3

// Error is the failure of some of many tasks. It keeps a few problems of each
// cause, so that errors.Is finds every cause there was.
type Error struct {
	Summary  Summary
	Problems []error
}

// failure returns nil when no receipt has an error.
func failure(receipts []queue.Receipt) error {
	e := &Error{Summary: Summarize(receipts)}
	if e.Summary.Added+e.Summary.Duplicate == len(receipts) {
		return nil
	}
	kept := map[error]int{}
	for _, r := range receipts {
		if r.Err == nil {
			continue
		}
		c := cause(r.Err)
		if kept[c]++; kept[c] <= keptPerCause {
			e.Problems = append(e.Problems, fmt.Errorf("task %q: %w", r.ID, r.Err))
		}
	}
	return e
}

var errOther = errors.New("other")

func cause(err error) error {
	for _, c := range []error{queue.ErrIndefinite, queue.ErrUnavailable, queue.ErrQueueFull, queue.ErrInvalidTask} {
		if errors.Is(err, c) {
			return c
		}
	}
	return errOther
}

func (e *Error) Error() string {
	s := e.Summary
	failed := s.Refused + s.Full + s.Indefinite + s.Unsent
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d tasks were not added for certain", failed, failed+s.Added+s.Duplicate)
	for _, p := range e.Problems {
		fmt.Fprintf(&b, "\n\t%v", p)
	}
	if more := failed - len(e.Problems); more > 0 {
		fmt.Fprintf(&b, "\n\tand %d more", more)
	}
	return b.String()
}

// Unwrap gives the problems to errors.Is and errors.AsType.
func (e *Error) Unwrap() []error { return e.Problems }
