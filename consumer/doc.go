// Package consumer runs tasks: it fetches them from one or more queues, runs
// their handlers, keeps their leases, settles them and drains.
//
//	var mux consumer.Mux
//	consumer.Handle(&mux, "invoice.send", b.send)
//	w, err := consumer.New(q, consumer.Config{Handler: &mux})
//	err = w.Run(ctx) // returns once everything in hand is settled
//
// # What a handler may rely on
//
// It runs at least once, and its effect happens once if it uses what it is
// given: a stable ID, a fence, recorded steps. Its context ends, with a cause,
// once this worker may no longer act for the task: queue.ErrLeaseLost,
// ErrTaskTimeout or ErrDraining. That is cooperative: Go cannot end a handler
// that does not look. What it returns settles the task (see Handler), on a
// context of the worker's own, so a handler that succeeds a moment after its
// context ended has still succeeded.
//
// A panic and runtime.Goexit are failures. A panic in a goroutine that the
// handler started ends the process, as it does in any Go program: the task's
// lease then ends without an outcome, which is counted, and a task that was
// interrupted twice runs alone in its worker, so that a task which kills its
// process takes no neighbours along.
//
// # Goroutines
//
// Run starts the loops, in the order of this list from bottom to top, and ends
// them together once everything in hand is settled or time is over. It returns
// when all of them have ended.
//
//	fetch         reads, begins, asks for turns and reclaims; one for all
//	              queues, since it alone decides how much is asked for. Ends
//	              first: when the worker drains, after the read in progress.
//	dispatch      moves held tasks to free slots; hands them back at drain, and
//	              those that were fetched ahead and waited too long.
//	housekeeping  promotes scheduled tasks and tidies up, as the turns say, and
//	              once a minute adds how long handlers took.
//	watch         sees leases whose trust has run out, and handlers that have
//	              run for their timeout or are stuck. It makes no calls, so
//	              nothing can hold it up.
//	renew         renews leases, and parts stuck tasks from their neighbours.
//	settle        offers outcomes to the server until it takes them.
//	handlers      as many as run at the moment. Each runs one handler, then the
//	              next task whose turn it is, and ends when there is none. Only
//	              these can outlive Run, and *AbandonedError names the tasks.
//	one for each  started when a handler's context ends; closes a context
//	derived one   that the handler derived from it and left open.
//
// So a handler finds a goroutine that has run others: what it sets on the
// goroutine and leaves (labels, a locked thread) the next one finds.
//
// Besides, Run's own goroutine waits for the end of its context and then for
// the drain, and adds the last handler times, which takes half a second at
// most. All state they share is in hand, under Worker.mu, which is never
// held over a call or a callback. A loop that waits is poked when there may be
// something for it to do, and looks at the state again; which of several
// events woke it decides nothing.
//
// # Trust window
//
// The server's clock decides when a lease ends. The worker stops sooner: it
// trusts a lease until the moment before the request was sent, plus the lease
// length, less a margin of a fifth of it (at most a second), by the monotonic
// and the wall clock. It renews each lease a third into its length, also while
// an outcome waits to be settled. When no renewal comes through, contexts of
// running handlers end, and held tasks are dropped, before the server gives
// them to anybody. An outcome is offered even then if the handler returned
// nil: nobody may have taken the task, and the server decides.
//
// A stuck handler, which goes on after timeout and grace, is no longer
// renewed. Its task starts elsewhere when the lease has ended, never in the
// same worker beside it, and its late return is dropped.
//
// # Tasks fetched ahead
//
// Where handlers take less time than a round trip, slots would be empty most of
// the time. So while they do (by what one run in a hundred exceeds, over the last
// hundred runs or so), new tasks are fetched ahead of the slots, so many that each
// should have its turn within 5 ms: 256 tasks and 8 MiB of payloads at most. They
// are on record as started when they come, since a call of its own to start each of
// them would cost more than it saves. Everything else counts from the turn:
// the handler's time and timeout, a deadline, the trust in the lease. A task
// that waits longer than a twentieth of the shortest lease (a second at most), or
// when the worker drains, is handed back; one whose lease is lost is dropped.
//
// What it costs: a worker that dies counts an interruption also for the tasks that
// waited for their turn. A task that was interrupted before is not fetched ahead
// when it is taken over, and nothing is fetched ahead beside it; so waiting costs a
// task one interruption, and from the second on it runs alone. A queue whose
// MaxInterruptions is less than 3 gets nothing ahead. See Config.Prefetch.
//
// # Drain
//
// When Run's context ends the worker, in this order: fetches nothing more (a
// blocked read is waited for, Config.Block at most, and what it brings is
// handed back); hands back what it holds; lets handlers finish, with renewals
// and settles going on; after Config.DrainTimeout, or Abort, ends their
// contexts with ErrDraining, whereupon an error hands the task back without a
// failure; and after Config.AbortGrace more gives up and returns
// *AbandonedError.
//
// # Connections
//
// Reads block on a connection of their own, one for all partitions of a queue
// and in most rounds for all queues; a queue that is read by itself adds one.
// Everything else goes through the pool of queue.Config.Client: at most one
// connection for each of the five loops that call the server, and one for each
// handler while it records a step.
//
// # Bounds
//
// Fetched and not ended: Concurrency + Prefetch tasks, or 256 more than there are
// slots where Prefetch adapts. Outcomes not taken by
// the server: MaxUnsettled and what is in hand then. Stuck handlers that gave
// up their slot: MaxStuck. Log lines about a server that is away: one each
// second for each loop.
package consumer
