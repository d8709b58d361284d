package consumer

import (
	"time"

	"github.com/claimq/claimq/queue"
)

// subject is what log lines say of a task in hand: what the events of the task
// on the server say (queue.Event), under the same names. Never its payload or
// headers.
type subject struct {
	task     queue.TaskID
	kind     string
	queue    string
	consumer string
	owner    string
	fence    queue.Fence
	leaseEnd time.Time // by the clock here, at the earliest
	stage    queue.Stage
	attempt  int
}

// subject describes the item as it is now. The caller holds mu.
func (it *item) subject() subject {
	l := it.lease
	s := subject{
		task: l.TaskID, kind: it.task.Kind, queue: it.src.name, consumer: l.Grant.Consumer, owner: l.Grant.Token.Short(),
		fence: l.Fence, stage: queue.StageHeld, attempt: l.Attempt,
	}
	trusted := it.trusted
	if it.grant != nil {
		trusted = it.grant.trusted
	}
	s.leaseEnd = trusted.Add(queue.Margin(l.Grant.Length)).Truncate(time.Millisecond)
	if it.recorded {
		s.stage = queue.StageStarted
	}
	return s
}

// attrs are the attributes of a log line, and some more after them.
func (s subject) attrs(more ...any) []any {
	return append([]any{
		"task", s.task, "kind", s.kind, "queue", s.queue, "consumer", s.consumer, "owner", s.owner,
		"fence", s.fence, "lease_end", s.leaseEnd, "stage", s.stage, "attempt", s.attempt,
	}, more...)
}
