package metrics

import (
	"context"
	"time"

	"github.com/claimq/claimq/queue"
)

// StateOf is a State over one source and a clock of the test's own.
func StateOf(name string, read func(context.Context) (queue.Stats, error), now func() time.Time) *State {
	return newState(now, &source{name: name, lease: queue.DefaultLease, read: read})
}
