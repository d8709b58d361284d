package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/claimq/claimq/queue"
)

// Bounds of one statement of Add; what is more is split, in the same
// transaction.
const (
	maxRows  = 500
	maxBytes = 4 << 20 // of payloads; a larger task goes alone
)

// Config says for which queue tasks are written, and where. Queue is required;
// the zero value of the others is good.
type Config struct {
	Queue      string // as in queue.Config.Name
	Schema     string // of the tables; empty: DefaultSchema
	MaxPayload int    // bytes; zero: queue.DefaultMaxPayload. As in queue.Config.
	// Quiet leaves relays to find the rows when they next look
	// (RelayConfig.Poll). Transactions that wake relays commit one after
	// another; where very many commit at once, that is their limit.
	Quiet bool
}

// Outbox writes tasks in transactions. It is safe for concurrent use, holds no
// connection and asks no Redis.
type Outbox struct {
	cfg          Config
	insert, wake string
}

// New checks cfg and reports every problem at once.
func New(cfg Config) (*Outbox, error) {
	if cfg.MaxPayload == 0 {
		cfg.MaxPayload = queue.DefaultMaxPayload
	}
	s, err := schemaNamed(cfg.Schema)
	problems := []error{err}
	if !validQueue.MatchString(cfg.Queue) {
		problems = append(problems, badConfig("Queue", "use 1 to 64 letters, digits, '.', '_' or '-', got %q", cfg.Queue))
	}
	if cfg.MaxPayload < 1 || cfg.MaxPayload > queue.MaxPayloadBytes {
		problems = append(problems, badConfig("MaxPayload", "use 1 to %d, got %d", queue.MaxPayloadBytes, cfg.MaxPayload))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	o := &Outbox{cfg: cfg, insert: s.sql(sqlInsert)}
	if !cfg.Quiet {
		o.wake = s.wake(cfg.Queue)
	}
	return o, nil
}

// Add writes tasks in a transaction of the caller's: they are enqueued if it
// commits, soon after it has, and never if it does not. In their order, one
// relay sends them.
//
// A task without an ID is given one; choose the ID from the business action, so
// that a second transaction for the same action adds nothing. A Delay counts
// from now.
//
// A task that the queue would refuse is a queue.ErrInvalidTask that names it:
// nothing was written, and the transaction can go on. Every other error is the
// server's, and of the transaction nothing but a rollback is left.
func (o *Outbox) Add(ctx context.Context, tx pgx.Tx, tasks ...queue.Task) error {
	return o.add(tasks, func(statement string, args []any) error {
		_, err := tx.Exec(ctx, statement, args...)
		return err
	})
}

// AddSQL is Add for a transaction of database/sql, whatever the driver for
// PostgreSQL.
func (o *Outbox) AddSQL(ctx context.Context, tx *sql.Tx, tasks ...queue.Task) error {
	return o.add(tasks, func(statement string, args []any) error {
		_, err := tx.ExecContext(ctx, statement, args...)
		return err
	})
}

func (o *Outbox) add(tasks []queue.Task, exec func(statement string, args []any) error) error {
	rows := make([][]any, len(tasks))
	for i, t := range tasks {
		values, err := o.values(t)
		if err != nil {
			return fmt.Errorf("task %d of %d: %w", i+1, len(tasks), err)
		}
		rows[i] = values
	}
	for begin := 0; begin < len(rows); {
		end, bytes := begin, 0
		for end < len(rows) && end-begin < maxRows && (end == begin || bytes+len(tasks[end].Payload) <= maxBytes) {
			bytes += len(tasks[end].Payload)
			end++
		}
		var args []any
		for _, values := range rows[begin:end] {
			args = append(args, values...)
		}
		if err := exec(o.insert+placeholders(end-begin)+o.wake, args); err != nil {
			return fmt.Errorf("writing %d tasks to the outbox: %w", end-begin, err)
		}
		begin = end
	}
	return nil
}

// width is the number of values of a row.
const width = 9

// values checks a task and returns the columns of its row, as types that every
// driver takes.
func (o *Outbox) values(t queue.Task) ([]any, error) {
	if t.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("no entropy for a task ID: %w", err)
		}
		t.ID = queue.TaskID(id.String())
	}
	if err := t.Check(o.cfg.MaxPayload); err != nil {
		return nil, err
	}
	if strings.Contains(t.ContentType, "\x00") {
		return nil, &queue.FieldError{Field: "ContentType", Remedy: "leave out the zero byte, which the database does not keep", Kind: queue.ErrInvalidTask}
	}
	var headers any
	if len(t.Headers) > 0 {
		b, err := json.Marshal(t.Headers)
		if err != nil {
			return nil, fmt.Errorf("%w: headers: %w", queue.ErrInvalidTask, err)
		}
		headers = string(b)
	}
	payload := t.Payload
	if payload == nil {
		payload = []byte{}
	}
	delay := t.Delay.Milliseconds()
	if t.Delay > 0 {
		delay = max(1, delay)
	}
	return []any{o.cfg.Queue, string(t.ID), t.Kind, payload, t.ContentType, headers, delay, moment(t.Due), moment(t.Deadline)}, nil
}

// moment is a time as a column has it, null for none.
func moment(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC()
}

// placeholders returns ($1,…),(…) for n rows.
func placeholders(n int) string {
	var b strings.Builder
	for i := range n * width {
		switch {
		case i == 0:
			b.WriteString("(")
		case i%width == 0:
			b.WriteString("),(")
		default:
			b.WriteString(",")
		}
		b.WriteString("$" + strconv.Itoa(i+1))
	}
	b.WriteString(")")
	return b.String()
}
