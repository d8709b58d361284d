package queue

import (
	"encoding/json"
	"fmt"
	"time"
)

// Limits that hold for every queue. Where a Config field narrows one of them
// the field says so.
const (
	// MaxIDBytes is the longest task ID.
	MaxIDBytes = 200
	// MaxKindBytes is the longest kind.
	MaxKindBytes = 100
	// MaxHeaders is the largest number of headers of a task.
	MaxHeaders = 24
	// MaxHeaderBytes is the longest header, name and value together.
	MaxHeaderBytes = 4096
	// MaxPayloadBytes is the largest value Config.MaxPayload may take.
	MaxPayloadBytes = 64 << 20
	// MaxResultBytes is how much of a result or a recorded step is kept; a
	// longer one is refused, never cut.
	MaxResultBytes = 1024
	// MaxErrorBytes is how much of an error text is kept; the rest is cut.
	MaxErrorBytes = 1024
	// MaxBatch is the largest number of tasks one script call carries; larger
	// requests are split.
	MaxBatch = 256
	// MaxSteps is the largest number of recorded steps of one task.
	MaxSteps = 16
	// MaxStepBytes is the longest name of a recorded step.
	MaxStepBytes = 64
)

// TaskID names a task: 1 to MaxIDBytes bytes of printable ASCII without
// spaces, chosen by the producer from the business action
// ("invoice-4821-send") and the same at every retry and every re-send.
type TaskID string

// EntryID is a position in a stream ("1700000000000-0"). A task that is
// retried gets a new entry; its TaskID stays.
type EntryID string

// Fence is a number that grows with every lease granted on a task ID. Zero is
// never granted. It is below 2^53, so it survives a float64.
//
// Invariant I3: each new lease on a task ID carries a greater fence than every
// earlier one.
type Fence uint64

// Task is a unit of work as a producer describes it.
type Task struct {
	ID      TaskID // empty: Enqueue assigns a UUIDv7
	Kind    string // which handler it is for; required
	Payload []byte // opaque; at most Config.MaxPayload bytes

	ContentType string            // optional media type of Payload
	Headers     map[string]string // optional; for instance "traceparent"

	// Delay keeps the task back for that long, Due until that moment. The
	// server's clock decides both; at most one of them may be set.
	Delay time.Duration
	Due   time.Time

	// Deadline is the moment after which the task is no longer started but
	// becomes a dead letter. Zero: none.
	Deadline time.Time

	// EnqueuedAt is when the server accepted the task. Set on tasks that are
	// read, ignored by Enqueue.
	EnqueuedAt time.Time
}

// NewTask returns a task of the given kind. A payload of type []byte, string
// or json.RawMessage is taken as it is; anything else is encoded as JSON.
func NewTask(kind string, payload any) (Task, error) {
	t := Task{Kind: kind}
	switch p := payload.(type) {
	case nil:
	case []byte:
		t.Payload = p
	case string:
		t.Payload = []byte(p)
	case json.RawMessage:
		t.Payload, t.ContentType = p, "application/json"
	default:
		b, err := json.Marshal(payload)
		if err != nil {
			return Task{}, fmt.Errorf("%w: payload of kind %q does not encode as JSON: %w", ErrInvalidTask, kind, err)
		}
		t.Payload, t.ContentType = b, "application/json"
	}
	return t, nil
}

// Place is where a task is. An accepted task that is not done is in exactly
// one of the first four.
//
// Invariant I1: every move between places is one atomic step on the server.
type Place string

// The places of a task.
const (
	Waiting   Place = "waiting"   // in the stream, not yet delivered
	Pending   Place = "pending"   // delivered, not acked
	Scheduled Place = "scheduled" // due later
	Dead      Place = "dead"      // in the dead letters
	Done      Place = "done"      // finished, remembered for the retention window
	Unknown   Place = ""          // nothing is known of the ID
)

// Receipt is the server's answer to one enqueued task. Exactly one of Added,
// Duplicate and Err != nil holds.
type Receipt struct {
	ID        TaskID
	Added     bool  // the task was accepted by this call or by an earlier send of the same call
	Duplicate bool  // the ID was known already; nothing was added
	Place     Place // where the task is now
	Err       error // ErrInvalidTask, ErrQueueFull, ErrIndefinite or a refusal by the server
}

// Entry is an element of a stream that has been read but not yet begun.
type Entry struct {
	Queue     *Queue
	Partition int
	ID        EntryID
	Fields    []string // name, value, name, value …, byte for byte
}

// Delivery is a task together with the lease under which it may be run.
type Delivery struct {
	Task  Task
	Lease Lease
	// Started says that the attempt is on record and the handler may run.
	// A delivery that is not started is held: it needs Start first, and a
	// worker that dies while holding it costs the task nothing.
	Started bool
}

// DeadReason says why a task became a dead letter.
type DeadReason string

// The reasons for a dead letter.
const (
	DeadFailures      DeadReason = "failures"      // failed Config.MaxFailures times
	DeadInterruptions DeadReason = "interruptions" // its lease ended without an outcome too often
	DeadRejected      DeadReason = "rejected"      // the handler said that no later attempt can succeed
	DeadNoHandler     DeadReason = "no_handler"    // no worker had a handler for its kind in time
	DeadUndecodable   DeadReason = "undecodable"   // the entry is not a task
	DeadDeadline      DeadReason = "deadline"      // its deadline passed before it could start
)
