package consumer

import (
	"context"
	"slices"
	"sync"
	"time"
)

// taskContext is the context of one handler run. It does what
// context.WithCancelCause and context.WithTimeoutCause do, one in the other, in
// memory of its item in place of ten allocations: what is seldom asked for is made when it is,
// and it has no timer, because the watch loop looks after deadlines.
//
// Contexts that are derived from it start no goroutine (AfterFunc), and
// context.Cause finds the cause in them and in itself.
type taskContext struct {
	values   context.Context // never ends
	deadline time.Time

	mu    sync.Mutex
	done  chan struct{} // nil until it is asked for
	err   error
	ended context.Context // has the cause, once there is one
	after []*func()       // to be called when it ends
}

var _ context.Context = (*taskContext)(nil)

// Deadline implements context.Context.
func (c *taskContext) Deadline() (time.Time, bool) { return c.deadline, true }

// Done implements context.Context.
func (c *taskContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.err != nil {
			close(c.done)
		}
	}
	return c.done
}

// Err implements context.Context.
func (c *taskContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Value implements context.Context. It is also how context.Cause asks: it looks
// for a context of its own package, which ended is.
func (c *taskContext) Value(key any) any {
	c.mu.Lock()
	values := c.values
	if c.ended != nil {
		values = c.ended
	}
	c.mu.Unlock()
	return values.Value(key)
}

// String keeps a context that is printed from being read while it changes.
func (c *taskContext) String() string { return "consumer.taskContext" }

// AfterFunc calls f in a goroutine of its own once c has ended; stop prevents
// that, and is false when it is too late. Package context looks for this method
// when it derives a context.
func (c *taskContext) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		go f()
		return func() bool { return false }
	}
	at := &f
	c.after = append(c.after, at)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := slices.Index(c.after, at)
		if i < 0 {
			return false
		}
		c.after = slices.Delete(c.after, i, i+1)
		return true
	}
}

// end ends the context, if it has not ended, with what Err and context.Cause
// say from then on; without a cause that is the same.
func (c *taskContext) end(err, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.endLocked(err, cause)
	}
}

// close ends the context after its handler has, and says what had ended it
// before; nil: nothing.
func (c *taskContext) close() (cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ended != nil:
		return context.Cause(c.ended)
	case c.err != nil:
		return c.err
	}
	c.endLocked(context.Canceled, nil)
	return nil
}

func (c *taskContext) endLocked(err, cause error) {
	c.err = err
	if cause != nil {
		ended, cancel := context.WithCancelCause(c.values)
		cancel(cause)
		c.ended = ended
	}
	if c.done != nil {
		close(c.done)
	}
	for _, f := range c.after {
		go (*f)()
	}
	c.after = nil
}
