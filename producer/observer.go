package producer

import (
	"time"

	"github.com/claimq/claimq/queue"
)

// Enqueued tells of one call of Enqueue or EnqueueMany. Kinds are of bounded
// number; IDs are for logs and traces, never for labels.
type Enqueued struct {
	Queue    string
	Tasks    []queue.Task    // as they were sent, each with its ID; not to be kept or changed
	Receipts []queue.Receipt // the answer to each, in its place
	Duration time.Duration   // of the whole call, repeats included
}

// Observer is told of each call that enqueues, once every task has its answer
// and before the call returns, in the caller's goroutine: it must be quick. It
// may be told of several calls at a time. A panic in it is the caller's, who
// then does not see the receipts.
type Observer interface {
	Enqueued(Enqueued)
}
