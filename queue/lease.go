package queue

import (
	"strconv"
	"time"
)

// Token is the random owner token of a grant: the proof that settles and
// renewals carry. The caller makes it (Queue.NewToken) and sends it, so that a
// call whose reply was lost can be asked again and is recognised.
type Token string

// Grant is what one Begin call was given in one partition: one or more leases
// that share a token, a fence and a lease end. Renewing a grant renews all its
// leases with one command, however many there are.
type Grant struct {
	Partition int
	Token     Token
	Length    time.Duration // lease length
	Consumer  string        // name under which it was begun; shown in events, proves nothing
}

// Lease is the right to run one task for a while. It is a plain value; the
// verbs are on Queue, and each of them lets the server compare token and fence
// in the same atomic step as the change.
//
// Invariant I2: at any moment of the server's clock at most one lease on a
// task ID is live.
type Lease struct {
	Queue   string // queue name
	TaskID  TaskID
	Kind    string
	EntryID EntryID
	Fence   Fence
	Grant   Grant

	Attempt       int // number of this handler run, from 1
	Failures      int // earlier attempts that failed
	Interruptions int // earlier leases that ended without an outcome

	// TrustedUntil is the local moment after which the holder must consider
	// the lease lost unless it was renewed: the moment before the request was
	// sent, plus the lease length, less the safety margin. It carries a
	// monotonic reading; use Trusted, which also watches the wall clock.
	TrustedUntil time.Time
}

// Trusted reports whether the lease may still be relied on at now, by the
// larger of monotonic and wall time elapsed: a suspended machine stops the
// first, a stepped clock bends the second.
func (l Lease) Trusted(now time.Time) bool { return Trusted(l.TrustedUntil, now) }

// Trusted reports whether now is before until by both the monotonic and the
// wall clock.
func Trusted(until, now time.Time) bool {
	return now.Before(until) && now.Round(0).Before(until.Round(0))
}

// Margin is the part of a lease length that a holder does not rely on: a
// fifth, at most one second.
func Margin(length time.Duration) time.Duration {
	return min(length/5, time.Second)
}

// Settlement asks for the end of one delivery. Which fields count depends on
// the verb.
type Settlement struct {
	Lease  Lease
	Result []byte        // Complete: kept beside the done mark, at most MaxResultBytes
	Delay  time.Duration // Retry, and Release when not zero: earliest next start
	Error  string        // Retry, DeadLetter: cut to MaxErrorBytes
	Reason DeadReason    // DeadLetter: why
	// Unhandled marks a Release of a task whose kind has no handler here: it
	// goes to scheduled, 1 s growing to 30 s, and to the dead letters after
	// Config.NoHandlerAfter.
	Unhandled bool
	// EndsGrant says that no other lease of the grant is in the caller's
	// hands any more, so the server may forget the grant.
	EndsGrant bool
}

// Outcome is what became of a delivery.
type Outcome string

// The outcomes of a settlement.
const (
	Completed    Outcome = "completed"
	Retried      Outcome = "retried"
	Released     Outcome = "released"
	DeadLettered Outcome = "dead"
	Lost         Outcome = "lost" // not the holder any more: nothing was changed
)

// Settled is the server's answer to one Settlement.
type Settled struct {
	TaskID  TaskID
	Outcome Outcome // empty when Err is not nil
	// Err is nil when Outcome is known. ErrIndefinite: ask again with the
	// same Settlement. Any other: the task is still pending, nothing changed.
	Err error
}

// Batch is what came of a set of entries.
type Batch struct {
	Deliveries []Delivery
	// Exhausted were granted too, held, but have been interrupted
	// Config.MaxInterruptions times: the caller must dead-letter them
	// (reason DeadInterruptions) instead of running them.
	Exhausted []Delivery
	// Duplicates are entries that were copies of a live task or of one that
	// is done; they were acked and deleted.
	Duplicates []Copy
	// Busy are entries whose task another live lease holds. They were left
	// as they are.
	Busy []TaskID
	// Buried are entries that are no task; they are in the dead letters.
	Buried []Copy
	// ServerNow is the server's clock at the moment of the call.
	ServerNow time.Time
}

// Copy names an entry that was not run.
type Copy struct {
	TaskID  TaskID
	EntryID EntryID
	Detail  string // what it was a copy of ("done", "pending" …), or why it is no task
}

// Short is what is shown of a token, in events and logs: six of its characters,
// and the two that tell apart the grants of one call. It proves nothing.
func (t Token) Short() string {
	if len(t) <= tokenRandom {
		return string(t[:min(len(t), shortToken)])
	}
	return string(t[:shortToken] + t[tokenRandom:])
}

// tag is what records remember of a token.
func (t Token) tag() string { return string(t[:tagBytes]) }

// part returns the token of one grant of a call: the chunk-th of its partition
// for the class-th lease length.
func (t Token) part(chunk, class int) Token {
	return t[:tokenRandom] + Token([]byte{byte('A' + chunk), byte('A' + class)})
}

// tail is how the record of a task ends while this lease holds it.
func (l Lease) tail() string {
	return " " + strconv.FormatUint(uint64(l.Fence), 10) + " " + string(l.Grant.Token)
}
