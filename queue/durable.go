package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Bounds of Durability.
const (
	// DefaultWithin is how long a call that asks for replicas waits for them.
	DefaultWithin = time.Second
	// MaxReplicas is the largest number of replicas to wait for.
	MaxReplicas = 100
)

// ErrNotDurable: the server has accepted the task, but what Durability asks for
// is not confirmed: too few replicas, or its own disk, had it in time. The task
// is there and will be run unless the server loses it. Ask again with the same
// arguments and the same token, or later with the same ID, to wait anew. It
// matches ErrIndefinite.
var ErrNotDurable = fmt.Errorf("%w: accepted, but not as durable as asked for", ErrIndefinite)

// Durability is what an enqueue waits for after the server has accepted it. The
// zero value waits for nothing.
//
// It lowers the odds of a loss and is no proof against it: a failover may choose
// a replica that was not among those that answered, and a replica has it in
// memory, not on disk. See docs/guarantees.md.
type Durability struct {
	// Replicas is how many replicas must have the task in memory, with Fsync
	// also on disk. At most MaxReplicas.
	Replicas int
	// Fsync waits until the append-only file of the server has the task on
	// disk. It needs Redis 7.2 or a Valkey that has WAITAOF, and appendonly yes.
	Fsync bool
	// Within is how long to wait; default DefaultWithin. Where the client has a
	// ReadTimeout it is cut to half of that.
	Within time.Duration
}

// None reports whether there is nothing to wait for.
func (d Durability) None() bool { return d.Replicas == 0 && !d.Fsync }

// Check says what is wrong with d, as an ErrInvalidConfig.
func (d Durability) Check() error {
	var errs []error
	if d.Replicas < 0 || d.Replicas > MaxReplicas {
		errs = append(errs, badConfig("Durability.Replicas", "use 0 to %d, got %d", MaxReplicas, d.Replicas))
	}
	if d.Within < 0 || d.Within > 0 && d.Within < time.Millisecond {
		errs = append(errs, badConfig("Durability.Within", "use 0 for the default or at least 1ms, got %v", d.Within))
	}
	return errors.Join(errs...)
}

// EnqueueDurably is Enqueue that answers when the tasks, duplicates included,
// are as durable as asked for. A task that the server has accepted and that is
// not confirmed in time is answered with ErrNotDurable. One answer covers all
// tasks of a call, so batches cost no more than single tasks.
func (q *Queue) EnqueueDurably(ctx context.Context, token Token, tasks []Task, d Durability) []Receipt {
	if err := d.Check(); err != nil {
		return refuseAll(tasks, err)
	}
	if d.None() {
		return q.Enqueue(ctx, token, tasks)
	}
	if d.Fsync {
		if err := q.waitsForDisk(ctx); err != nil {
			return refuseAll(tasks, err)
		}
	}
	d.Within = within(q.rdb, d.Within)
	return q.enqueue(ctx, token, tasks, &d)
}

func refuseAll(tasks []Task, err error) []Receipt {
	receipts := make([]Receipt, len(tasks))
	for i := range tasks {
		receipts[i] = Receipt{ID: tasks[i].ID, Err: err}
	}
	return receipts
}

// waitsForDisk asks whether the server has WAITAOF, until it has said yes. One
// that does not say is taken to have it.
func (q *Queue) waitsForDisk(ctx context.Context) error {
	if q.disk.Load() {
		return nil
	}
	reply, err := q.rdb.Do(ctx, "command", "info", "waitaof").Slice()
	if err := classify("command info", err); errors.Is(err, ErrIndefinite) {
		return fmt.Errorf("%w: %w", ErrUnavailable, err) // it is a question
	}
	if err == nil && len(reply) == 1 && reply[0] == nil {
		return badConfig("Durability.Fsync", "this server has no WAITAOF: use Redis 7.2 or newer, or leave it out and set appendfsync always")
	}
	q.disk.Store(err == nil)
	return nil
}

// within leaves the client time to read the answer.
func within(c redis.UniversalClient, d time.Duration) time.Duration {
	if d == 0 {
		d = DefaultWithin
	}
	if plain, ok := c.(*redis.Client); ok && plain.Options().ReadTimeout > 0 {
		d = min(d, plain.Options().ReadTimeout/2)
	}
	return max(d, time.Millisecond)
}

// command is the command that waits. It goes behind the scripts, over the same
// connection: the server waits for all that was written before it, by anybody,
// so that a duplicate is covered too; and another connection might lead to a
// server that has been promoted meanwhile and never had the task.
func (d *Durability) command(ctx context.Context) *redis.Cmd {
	if d.Fsync {
		return redis.NewCmd(ctx, "waitaof", 1, d.Replicas, d.Within.Milliseconds())
	}
	return redis.NewCmd(ctx, "wait", d.Replicas, d.Within.Milliseconds())
}

// unkept is nil when the answer to the command confirms what was asked for.
func (d *Durability) unkept(reply any, err error) error {
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotDurable, err)
	}
	if !d.Fsync {
		if n := asInt(reply); n < int64(d.Replicas) {
			return fmt.Errorf("%w: %d of %d replicas had it within %v", ErrNotDurable, n, d.Replicas, d.Within)
		}
		return nil
	}
	counts := asList(reply)
	if len(counts) != 2 {
		return fmt.Errorf("%w: the server answered %v", ErrNotDurable, reply)
	}
	if local, n := asInt(counts[0]), asInt(counts[1]); local < 1 || n < int64(d.Replicas) {
		return fmt.Errorf("%w: within %v on disk at the server: %v, and at %d of %d replicas", ErrNotDurable, d.Within, local > 0, n, d.Replicas)
	}
	return nil
}
