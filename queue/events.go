package queue

import (
	"strings"
	"time"
)

const (
	// EventsKept is about how many events a partition keeps; then the oldest
	// go. The scripts bound the stream by it (lua/include/events.lua).
	EventsKept = 10_000
	// MaxEventErrorBytes is how much of an error text an event keeps; the rest
	// is cut.
	MaxEventErrorBytes = 200
)

// EventKind says what has happened.
type EventKind string

// What is kept always, because it is rare and because somebody will ask.
const (
	EventReclaimed   EventKind = "reclaimed"   // taken over from Previous, whose lease had ended
	EventRecovered   EventKind = "recovered"   // taken over from a consumer that was delivered it and never began it; Detail names that
	EventLeaseLost   EventKind = "lease_lost"  // its holder was told that the lease has ended
	EventSplit       EventKind = "split"       // its handler is stuck: moved out of the grant that Detail names, to run out alone
	EventRefused     EventKind = "refused"     // an outcome of one who is not the holder; Detail says which, and where the task was
	EventFailed      EventKind = "failed"      // an attempt failed; the next is Due, unless it was the last
	EventDead        EventKind = "dead"        // became a dead letter; Detail is the DeadReason
	EventQuarantined EventKind = "quarantined" // the entry is no task; now a dead letter
	EventRedriven    EventKind = "redriven"    // moved back from the dead letters; Detail is the DeadReason it had
	EventDeleted     EventKind = "deleted"     // by an operator; Detail is the Place it was in
	EventLost        EventKind = "lost"        // its entry was deleted from outside
	EventDuplicate   EventKind = "duplicate"   // a copy was removed; Detail is what it was a copy of
)

// What is kept besides where Config.Trace is set. So are duplicates that
// Enqueue refuses, as EventDuplicate without a consumer: a producer that sends
// a million tasks again would push out everything else.
const (
	EventEnqueued  EventKind = "enqueued"  // Detail is the Place
	EventDelivered EventKind = "delivered" // a lease was granted
	EventStarted   EventKind = "started"   // a held task was started
	EventRenewed   EventKind = "renewed"   // its grant was
	EventCompleted EventKind = "completed"
	EventReleased  EventKind = "released" // handed back: at once, or until Due
	EventPromoted  EventKind = "promoted" // it was due and is waiting
)

// Stage is how far the holder of a task has got with it.
type Stage string

// The stages of a pending task.
const (
	StageHeld    Stage = "held"    // leased, its handler not started
	StageStarted Stage = "started" // its handler was started
)

// Holder is what is known of one who holds or held a task. Any field may be
// empty.
type Holder struct {
	Consumer  string
	Owner     string // Token.Short of its grant; for EventEnqueued the first characters of the call's token
	Fence     Fence
	LeaseEnds time.Time // server's clock
	Stage     Stage
}

// Event is something that has happened to a task.
type Event struct {
	At     time.Time // server's clock
	Kind   EventKind
	TaskID TaskID // empty: it concerns a grant as a whole
	Holder        // whose event it is; for EventReclaimed the new holder

	Previous      Holder // EventReclaimed: whose lease had ended
	Attempt       int    // from 1; 0: not known
	Failures      int    // counted by now, where Attempt is known
	Interruptions int
	Due           time.Time // EventFailed, EventReleased: when it may start again, where that is later
	Detail        string
	Error         string // cut to MaxEventErrorBytes
}

// traced tells the scripts whether to keep events of everything.
func (q *Queue) traced() any { return flag(q.cfg.Trace) }

// readEvent takes an entry of the events stream apart; include/events.lua
// writes it.
func readEvent(e Entry) Event {
	v := Event{At: e.ID.time()}
	for i := 0; i+1 < len(e.Fields); i += 2 {
		name, value := e.Fields[i], e.Fields[i+1]
		if value == "" {
			continue
		}
		switch name {
		case "event":
			v.Kind = EventKind(value)
		case "task":
			v.TaskID = TaskID(value)
		case "consumer":
			v.Consumer = value
		case "owner":
			v.Owner = value
		case "fence":
			v.Fence = parseFence(value)
		case "lease_end_ms":
			v.LeaseEnds = asTime(value)
		case "stage":
			v.Stage = Stage(value)
		case "attempt":
			v.Attempt = int(asInt(value))
		case "failures":
			v.Failures = int(asInt(value))
		case "interruptions":
			v.Interruptions = int(asInt(value))
		case "detail":
			v.Detail = value
		case "error":
			v.Error = strings.ToValidUTF8(value, "") // it may be cut within a character
		}
	}
	if ms, ok := strings.CutPrefix(v.Detail, "due "); ok {
		v.Due, v.Detail = asTime(ms), ""
	}
	if v.Kind == EventReclaimed {
		v.Previous, v.Detail = readHolder(v.Detail), ""
	}
	return v
}

// readHolder reads "<owner> <fence> <stage> <lease_end_ms>", 0 where the end is
// not known.
func readHolder(s string) Holder {
	f := strings.Fields(s)
	if len(f) != 4 {
		return Holder{}
	}
	h := Holder{Owner: f[0], Fence: parseFence(f[1]), Stage: Stage(f[2])}
	if f[3] != "0" {
		h.LeaseEnds = asTime(f[3])
	}
	return h
}
