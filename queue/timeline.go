package queue

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

const (
	eventPage     = 1000 // events in one read
	maxEventPages = EventsKept/eventPage + 2
)

// Timeline is what is known of a task and of what has happened to it.
type Timeline struct {
	ID        TaskID
	Partition int
	Info      TaskInfo // as Inspect tells it; its Place is Unknown where nothing is known but events
	Events    []Event  // oldest first

	// Cut says that the partition has no room for more events and that the
	// oldest it keeps, of Since, may be younger than the task: there may have
	// been others.
	Cut   bool
	Since time.Time // when the oldest event was kept, of any task; zero: there is none

	ServerNow time.Time
}

// Timeline tells what has happened to a task, as far as its partition remembers:
// the last EventsKept events of all its tasks, those of Config.Trace only where
// the processes had that set. Nothing is ever kept of payloads. It reads all
// events of the partition, so it is for people and not for programs that ask
// often. ErrNotFound: nothing is known of the ID, nor was anything kept. With
// another error Info may be there nevertheless.
func (q *Queue) Timeline(ctx context.Context, id TaskID) (Timeline, error) {
	t := Timeline{ID: id, Info: TaskInfo{ID: id}}
	p, err := q.home(ctx, id)
	if err != nil {
		return t, err
	}
	t.Partition = p
	kept, err := q.keptEvents(ctx, id, p)
	info, infoErr := q.inspect(ctx, id, p)
	if err != nil || infoErr != nil && !errors.Is(infoErr, ErrNotFound) {
		if infoErr == nil {
			t.Info = info
		}
		return t, errors.Join(err, infoErr)
	}
	t.Info = info
	t.Events = kept.of(id, info)
	if infoErr != nil && len(t.Events) == 0 {
		return t, infoErr
	}
	t.Since = kept.since
	accepted := time.Time{}
	if info.Task != nil {
		accepted = info.Task.EnqueuedAt
	}
	t.Cut = kept.read >= EventsKept && (accepted.IsZero() || t.Since.After(accepted)) &&
		(len(t.Events) == 0 || t.Events[0].Kind != EventEnqueued)
	now, err := q.rdb.Time(ctx).Result()
	t.ServerNow = now
	return t, classify("time", err)
}

// keptEvents are the events that may concern a task.
type keptEvents struct {
	events []Event           // of the task or of grants, oldest first
	names  map[string]string // owner to consumer, from all events
	read   int
	since  time.Time
}

// keptEvents reads the events of a partition, from the newest on.
func (q *Queue) keptEvents(ctx context.Context, id TaskID, partition int) (keptEvents, error) {
	k := keptEvents{names: map[string]string{}}
	last := EntryID("+")
	for range maxEventPages {
		reply, err := q.rdb.Do(ctx, "XREVRANGE", q.parts[partition].key("events"), string(last), "-", "COUNT", eventPage+1).Result()
		if err := classify("read events", err); err != nil {
			return k, err
		}
		page := q.entries(partition, reply)
		more := len(page) > eventPage // its last entry is the next page's first
		for _, e := range page[:min(len(page), eventPage)] {
			v := readEvent(e)
			if v.Owner != "" && v.Consumer != "" {
				k.names[v.Owner] = v.Consumer
			}
			if v.TaskID == id || v.TaskID == "" {
				k.events = append(k.events, v)
			}
			k.since = v.At
			k.read++
		}
		if !more {
			break
		}
		last = page[eventPage].ID
	}
	slices.Reverse(k.events)
	return k, nil
}

// of picks the events of a task: its own, and those of grants that were its at
// the time.
func (k keptEvents) of(id TaskID, info TaskInfo) []Event {
	was := map[string]bool{} // grants that had the task until it was taken over, or have it
	if info.Token != "" {
		was[info.Token.Short()] = true
	}
	for _, e := range k.events {
		if e.Kind == EventReclaimed {
			was[e.Previous.Owner] = true
		}
	}
	var out []Event
	has := map[string]bool{} // grants that have it at this point
	for _, e := range k.events {
		if e.TaskID == "" {
			listed := slices.Contains(strings.Fields(e.Detail), string(id))
			if !was[e.Owner] && !has[e.Owner] && !listed {
				continue
			}
			e.Detail = ""
			if listed {
				e.Detail = "nobody had taken it yet"
			}
		}
		switch e.Kind {
		case EventDelivered, EventReclaimed, EventStarted, EventSplit:
			has[e.Owner] = true
		case EventCompleted, EventReleased, EventFailed, EventDead:
			delete(has, e.Owner)
		}
		out = append(out, e)
	}
	k.complete(out)
	return out
}

// complete fills in what an event does not know of its holder and others do.
func (k keptEvents) complete(events []Event) {
	known := map[string]Event{} // by owner: attempt, fence, and the lease end of one who was replaced
	for i := range events {
		e := &events[i]
		e.Consumer = cmp.Or(e.Consumer, k.names[e.Owner])
		if e.Kind == EventReclaimed {
			p := &e.Previous
			p.Consumer = k.names[p.Owner]
			before := Event{Attempt: e.Attempt, Holder: *p}
			if p.Stage == StageStarted {
				before.Attempt-- // that it was taken over made it another
			}
			known[p.Owner] = before
		}
		if e.Owner == "" {
			continue
		}
		was := known[e.Owner]
		e.Attempt, e.Fence = cmp.Or(e.Attempt, was.Attempt), cmp.Or(e.Fence, was.Fence)
		if e.LeaseEnds.IsZero() {
			e.LeaseEnds = was.LeaseEnds
		}
		known[e.Owner] = Event{Attempt: e.Attempt, Holder: Holder{Fence: e.Fence, LeaseEnds: was.LeaseEnds}}
	}
}
