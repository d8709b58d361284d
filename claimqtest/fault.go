package claimqtest

// Fault is what goes wrong at a point.
type Fault string

// The faults.
const (
	// Killed: the worker does nothing more, and another one takes over when
	// the lease has ended.
	Killed Fault = "killed"

	// Paused: the worker stands still; another one takes over and settles the
	// task; then the first goes on.
	Paused Fault = "paused past its lease"

	// Together: as Paused, but the first worker goes on when the other one has
	// come to the same point, and the other one when the first has finished.
	Together Fault = "two at once"

	// Cancelled: the worker is told to stop at once, so that the context of the
	// handler ends (consumer.ErrDraining); another one takes over.
	Cancelled Fault = "context cancelled"

	// RequestLost: the call does not arrive, and fails.
	RequestLost Fault = "request lost"

	// ReplyLost: the call has its effect, and fails.
	ReplyLost Fault = "reply lost"

	// ServerAway: from this call on the worker does not reach the server for
	// a while, which ends before the lease does.
	ServerAway Fault = "server away"

	// forgotten is the one that Plan.RedisForgets asks for.
	forgotten Fault = "Redis forgot it, enqueued again"
)

// Faults lists all faults.
func Faults() []Fault {
	return []Fault{Killed, Paused, Together, Cancelled, RequestLost, ReplyLost, ServerAway}
}

// seam is what a point belongs to, which decides what can go wrong there.
type seam int

const (
	seamHandler seam = iota
	seamCall
	seamRedis
	seamPostgres
)

// allows reports whether a fault can happen at a seam.
func (s seam) allows(f Fault) bool {
	switch f {
	case RequestLost, ReplyLost:
		return s != seamHandler
	case ServerAway:
		return s == seamRedis || s == seamPostgres
	default:
		return f != forgotten
	}
}

// point is something that a worker did.
type point struct {
	name string
	seam seam
}
