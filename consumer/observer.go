package consumer

import (
	"time"

	"github.com/claimq/claimq/queue"
)

// Source says how a task came to this worker.
type Source string

// The sources of a delivery.
const (
	SourceNew       Source = "new"       // read from the stream
	SourceReclaimed Source = "reclaimed" // taken over after another lease had ended
)

// FailureReason says why an attempt did not succeed.
type FailureReason string

// The reasons of failed attempts. FailedNone stands with a success and with a
// task that was not run for another reason.
const (
	FailedNone      FailureReason = ""
	FailedError     FailureReason = "error"      // the handler returned an error
	FailedPanic     FailureReason = "panic"      // it panicked or called runtime.Goexit
	FailedTimeout   FailureReason = "timeout"    // it returned an error after its timeout
	FailedCanceled  FailureReason = "canceled"   // it returned an error after its context had ended for another reason
	FailedDecode    FailureReason = "decode"     // the payload does not decode
	FailedNoHandler FailureReason = "no_handler" // this worker has no handler for the kind
)

// Ended tells of a task that has left this worker. Kinds and reasons are of
// bounded number; IDs are for logs and traces, never for labels.
type Ended struct {
	Queue      string
	Kind       string
	TaskID     queue.TaskID
	Outcome    queue.Outcome
	Reason     FailureReason
	DeadReason queue.DeadReason // with DeadLettered
	Ran        bool             // a handler was started for it in this delivery
	Duration   time.Duration    // how long the handler ran
	Lease      time.Duration    // length of its lease
	Attempt    int              // from 1
	// TraceParent is the task's header of that name, as it came.
	TraceParent string
	// SinceEnqueue is the time since the task was accepted, by the server's
	// clock. Zero when not known.
	SinceEnqueue time.Duration
}

// Started tells of a handler that begins to run.
type Started struct {
	Queue   string
	Kind    string
	TaskID  queue.TaskID
	Attempt int
	// TraceParent is the task's header of that name, as it came.
	TraceParent string
	// Wait is the time from when the task could start (accepted, or due) to
	// now, for first attempts; otherwise negative.
	Wait time.Duration
}

// Renewed tells of one call that renewed leases.
type Renewed struct {
	Queue    string
	Grants   int // asked for
	Failed   int // no answer, or an error: asked again
	Lost     int // the server says they are lost
	Duration time.Duration
}

// LeaseLoss says how a lease was found to be lost.
type LeaseLoss string

// The ways to lose a lease.
const (
	LossServer  LeaseLoss = "server"  // the server said so
	LossExpired LeaseLoss = "expired" // it could not be renewed in time
	LossRevoked LeaseLoss = "revoked" // the task was deleted
)

// LeaseLost tells of one lease lost while the task was in hand.
type LeaseLost struct {
	Queue   string
	Kind    string
	TaskID  queue.TaskID
	How     LeaseLoss
	Running bool // its handler was running; otherwise the task was held and has been dropped
}

// Swept tells of one pass in search of ended leases in one partition.
type Swept struct {
	Queue    string
	Count    int             // entries taken over
	Delays   []time.Duration // between the lease's end and the take-over; 0: unknown
	Duration time.Duration
	Err      error
}

// Refused tells of an outcome that was not accepted.
type Refused struct {
	Queue  string
	Kind   string
	TaskID queue.TaskID
	// Late: it was not even offered to the server, because the handler was
	// stuck or the lease known to be lost.
	Late bool
}

// Lost tells of tasks whose entries were deleted or trimmed from outside.
type Lost struct {
	Queue string
	Tasks []queue.Copy
}

// ServerError tells of a failed call to the server. Loop is one of the names
// in Status.Loops.
type ServerError struct {
	Loop string
	Err  error
}

// Observer is told what happens in a worker, for metrics and traces. Its
// methods are called from the worker's own goroutines, several at a time: they
// must be quick and must not block. A panic in one of them is caught and
// logged. Embed NopObserver, so that a method added later does no harm.
type Observer interface {
	Delivered(queue string, source Source, n int) // tasks leased to this worker
	Duplicates(queue string, n int)               // copies and finished tasks suppressed
	Buried(queue string, n int)                   // entries that are no task, now dead letters
	Started(Started)
	Ended(Ended)
	Renewed(Renewed)
	LeaseLost(LeaseLost)
	Swept(Swept)
	Refused(Refused)
	Lost(Lost)
	Promoted(queue string, n int)         // scheduled tasks moved to the stream
	ConsumersRemoved(queue string, n int) // names of workers that are gone
	Stuck(n int)                          // stuck handlers now
	Beat(loop string)                     // the loop has moved
	ServerError(ServerError)
}

// NopObserver is an Observer that does nothing.
type NopObserver struct{}

var _ Observer = NopObserver{}

func (NopObserver) Delivered(string, Source, int) {}
func (NopObserver) Duplicates(string, int)        {}
func (NopObserver) Buried(string, int)            {}
func (NopObserver) Started(Started)               {}
func (NopObserver) Ended(Ended)                   {}
func (NopObserver) Renewed(Renewed)               {}
func (NopObserver) LeaseLost(LeaseLost)           {}
func (NopObserver) Swept(Swept)                   {}
func (NopObserver) Refused(Refused)               {}
func (NopObserver) Lost(Lost)                     {}
func (NopObserver) Promoted(string, int)          {}
func (NopObserver) ConsumersRemoved(string, int)  {}
func (NopObserver) Stuck(int)                     {}
func (NopObserver) Beat(string)                   {}
func (NopObserver) ServerError(ServerError)       {}
