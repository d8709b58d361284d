package producer

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/claimq/claimq/queue"
)

// Defaults and bounds of Config.
const (
	DefaultTimeout    = 30 * time.Second
	DefaultMaxRetries = 5
	DefaultBatch      = 100
	DefaultBatchBytes = 1 << 20

	MaxRetries = 100

	firstWait   = 50 * time.Millisecond // before the first retry; doubles
	longestWait = 2 * time.Second
)

// Config is the policy. The zero value is a good default.
type Config struct {
	// Timeout is for one batch, retries included; default 30 s. A send that hangs
	// ends in time if the client keeps to contexts (ContextTimeoutEnabled), the
	// first of a single task only if it need not dial first.
	Timeout    time.Duration
	MaxRetries int // sends after the first; default 5, negative: none
	Batch      int // tasks in a batch; default 100, at most queue.MaxBatch; 1: each goes alone
	BatchBytes int // payload bytes in a batch; a larger task goes alone; default 1 MiB

	// Durability is what each task waits for besides the server's own answer:
	// replicas, or the disk. Default: nothing. Two producers of one queue may
	// differ in it. A task that is not confirmed in time is sent again like one
	// without an answer, and ends in queue.ErrNotDurable.
	Durability queue.Durability

	Observer Observer // told of each call; default: nothing is observed

	Rand    rand.Source // for jitter; default: seeded from crypto/rand. Used under a lock.
	Entropy io.Reader   // for IDs; default crypto/rand. Used under a lock.
}

// Producer adds tasks to one queue. It is safe for concurrent use.
type Producer struct {
	q   *queue.Queue
	cfg Config

	gather gatherer

	mu     sync.Mutex // guards cfg.Entropy and jitter
	jitter *rand.Rand

	// send is q.Enqueue; tests put something else here.
	send func(ctx context.Context, token queue.Token, tasks []queue.Task) []queue.Receipt
}

// New checks cfg, reports every problem at once, and returns a Producer. It
// does not talk to the server.
func New(q *queue.Queue, cfg Config) (*Producer, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(q); err != nil {
		return nil, err
	}
	p := &Producer{q: q, cfg: cfg, jitter: rand.New(cfg.Rand), send: q.Enqueue}
	p.gather.seed = maphash.MakeSeed()
	if !cfg.Durability.None() {
		p.send = func(ctx context.Context, token queue.Token, tasks []queue.Task) []queue.Receipt {
			return q.EnqueueDurably(ctx, token, tasks, cfg.Durability)
		}
	}
	return p, nil
}

func (c Config) withDefaults() Config {
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.MaxRetries == 0 {
		c.MaxRetries = DefaultMaxRetries
	}
	c.MaxRetries = max(c.MaxRetries, 0)
	if c.Batch == 0 {
		c.Batch = DefaultBatch
	}
	if c.BatchBytes == 0 {
		c.BatchBytes = DefaultBatchBytes
	}
	if c.Entropy == nil {
		c.Entropy = crand.Reader
	}
	if c.Rand == nil {
		var seed [32]byte
		crand.Read(seed[:]) // never fails
		c.Rand = rand.NewChaCha8(seed)
	}
	return c
}

func (c Config) validate(q *queue.Queue) error {
	var errs []error
	bad := func(ok bool, field, remedy string, args ...any) {
		if !ok {
			errs = append(errs, &queue.FieldError{Field: field, Remedy: fmt.Sprintf(remedy, args...), Kind: queue.ErrInvalidConfig})
		}
	}
	bad(q != nil, "queue", "New needs a queue")
	bad(c.Timeout > 0, "Timeout", "use a positive duration, got %v", c.Timeout)
	bad(c.MaxRetries <= MaxRetries, "MaxRetries", "use at most %d, got %d", MaxRetries, c.MaxRetries)
	bad(c.Batch >= 1 && c.Batch <= queue.MaxBatch, "Batch", "use 1 to %d, got %d", queue.MaxBatch, c.Batch)
	bad(c.BatchBytes >= 1 && c.BatchBytes <= queue.MaxPayloadBytes, "BatchBytes", "use 1 to %d, got %d", queue.MaxPayloadBytes, c.BatchBytes)
	return errors.Join(append(errs, c.Durability.Check())...)
}

// Enqueue adds one task. Calls that come while others are on the wire are sent
// together, by one of them; each keeps to its own context. A duplicate is a
// receipt, not an error. The error is the receipt's: queue.ErrIndefinite when
// the answers to all sends were lost (call again with the receipt's ID),
// queue.ErrUnavailable, queue.ErrQueueFull or queue.ErrInvalidTask when nothing
// was added.
func (p *Producer) Enqueue(ctx context.Context, task queue.Task) (queue.Receipt, error) {
	began := time.Now()
	var r queue.Receipt
	if task.ID == "" {
		task.ID, r.Err = p.newID()
	}
	if r.Err == nil {
		r = p.single(ctx, &task, began)
	}
	if p.cfg.Observer != nil {
		p.tell([]queue.Task{task}, []queue.Receipt{r}, began)
	}
	return r, r.Err
}

// EnqueueMany adds tasks in their order, batch after batch, and answers each
// in its place. A task that is refused does not stop the others; a batch that
// could not be delivered does, and the tasks after it are answered with
// queue.ErrUnavailable. The error is nil when each task was added or a
// duplicate, else an *Error.
func (p *Producer) EnqueueMany(ctx context.Context, tasks []queue.Task) ([]queue.Receipt, error) {
	if len(tasks) == 1 {
		r, err := p.Enqueue(ctx, tasks[0])
		receipts := []queue.Receipt{r}
		if err != nil {
			err = failure(receipts)
		}
		return receipts, err
	}
	began := time.Now()
	b := p.prepare(tasks)
	p.enqueue(ctx, b, b.chunks(p.cfg, p.gather.seed))
	if p.cfg.Observer != nil {
		p.tell(b.tasks, b.receipts, began)
	}
	return b.receipts, failure(b.receipts)
}

// tell tells the observer of one call, from its first send to its last answer.
func (p *Producer) tell(tasks []queue.Task, receipts []queue.Receipt, began time.Time) {
	p.cfg.Observer.Enqueued(Enqueued{Queue: p.q.Name(), Tasks: tasks, Receipts: receipts, Duration: time.Since(began)})
}

// Typed adds tasks of one kind whose payload is a T, encoded as queue.NewTask
// does.
type Typed[T any] struct {
	Producer *Producer
	Kind     string
}

// Enqueue adds a task with this ID (empty: one is made) and payload.
func (t Typed[T]) Enqueue(ctx context.Context, id queue.TaskID, payload T) (queue.Receipt, error) {
	task, err := t.Task(id, payload)
	if err != nil {
		return queue.Receipt{ID: id, Err: err}, err
	}
	return t.Producer.Enqueue(ctx, task)
}

// Task returns the task that Enqueue would add, for EnqueueMany or to set more
// of its fields.
func (t Typed[T]) Task(id queue.TaskID, payload T) (queue.Task, error) {
	task, err := queue.NewTask(t.Kind, payload)
	task.ID = id
	return task, err
}
