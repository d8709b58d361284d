package claimqtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/claimq/claimq/queue"
)

// Effect is something that a task has to do exactly as often as it does
// without faults.
type Effect interface {
	// Name names it in reports.
	Name() string
	// Reset undoes it, before each run.
	Reset(ctx context.Context) error
	// Count tells how often it is there, after a run.
	Count(ctx context.Context) (int, error)
}

// Table is an effect that is counted by a query of your own. Both functions are
// called while no worker runs.
type Table struct {
	Label string // its name; default "table"
	Rows  func(ctx context.Context) (int, error)
	Empty func(ctx context.Context) error
}

// Name implements Effect.
func (t *Table) Name() string { return cmp.Or(t.Label, "table") }

// Reset implements Effect.
func (t *Table) Reset(ctx context.Context) error {
	if t.Rows == nil || t.Empty == nil {
		return errors.New("a Table needs Rows and Empty")
	}
	return t.Empty(ctx)
}

// Count implements Effect.
func (t *Table) Count(ctx context.Context) (int, error) { return t.Rows(ctx) }

// Counter is an effect that nothing guards: a mail, a message, a line in a
// file. The zero value is ready.
type Counter struct {
	Label string // its name; default "counter"

	mu sync.Mutex
	n  int
}

// Name implements Effect.
func (c *Counter) Name() string { return cmp.Or(c.Label, "counter") }

// Reset implements Effect.
func (c *Counter) Reset(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n = 0
	return nil
}

// Count implements Effect.
func (c *Counter) Count(context.Context) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n, nil
}

// For returns the function with which one worker has the effect. An error
// means that it may or may not be there.
func (c *Counter) For(w *Worker) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		return w.Do(ctx, c.Name(), func() error {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.n++
			return nil
		})
	}
}

// Row is one value in a store, which tasks overwrite: a status, a balance. Its
// effect is there once it is written. Writing it again is no second effect,
// unless the write comes from an earlier lease than the one that is there: that
// has undone what the later one did. The zero value is ready.
type Row struct {
	Label string // its name; default "row"
	// ComparesFences refuses a write with a smaller fence than that of the
	// last, as "… where fence <= $1" does.
	ComparesFences bool

	mu    sync.Mutex
	n     int
	fence queue.Fence
}

// Name implements Effect.
func (r *Row) Name() string { return cmp.Or(r.Label, "row") }

// Reset implements Effect.
func (r *Row) Reset(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n, r.fence = 0, 0
	return nil
}

// Count implements Effect.
func (r *Row) Count(context.Context) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n, nil
}

// For returns the function with which one worker writes the row. A refused
// write is a queue.ErrLeaseLost.
func (r *Row) For(w *Worker) func(ctx context.Context, l queue.Lease) error {
	return func(ctx context.Context, l queue.Lease) error {
		return w.Do(ctx, r.Name(), func() error { return r.write(l.Fence) })
	}
}

func (r *Row) write(fence queue.Fence) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	late := fence < r.fence
	if late && r.ComparesFences {
		return fmt.Errorf("%w: row %s: fence %d, seen %d", queue.ErrLeaseLost, r.Name(), fence, r.fence)
	}
	if r.n == 0 || late {
		r.n++
	}
	r.fence = fence
	return nil
}
