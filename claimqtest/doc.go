// Package claimqtest runs a handler through everything that can go wrong
// around it, and counts its effects. It needs no server.
//
//	func TestInvoiceSend(t *testing.T) {
//		charges := &claimqtest.Gateway{Label: "charge", HonoursKeys: true}
//		claimqtest.Run(t, claimqtest.Plan{
//			Task:    queue.Task{ID: "invoice-4821-send", Kind: "invoice.send", Payload: payload},
//			Effects: []claimqtest.Effect{charges},
//			Handler: func(w *claimqtest.Worker) consumer.Handler {
//				return newHandler(w.Ledger(), charges.For(w))
//			},
//		})
//	}
//
// Run lets one worker run the task without a fault. What that worker did that
// others can see is the list of points: the lease of the task, the start and
// the return of the handler, each call to a ledger, a database, a gateway, and
// the completion. Each effect must be there as often as it was then.
//
// Then the task is run anew for each point and each Fault that can happen
// there, with a new queue, until it has been settled, if need be by a second
// worker. Every run in which an effect was lost or doubled, or that did not end
// as the first one did, is a Finding.
//
// # What is seen
//
// A worker is cut off, paused and killed at what it reaches through Worker:
// Worker.Ledger, Worker.Queue, Worker.Pool, Worker.Do, and the fakes of this
// package. What a handler does besides is not seen: it is no point, and it goes
// on after its worker was killed. So is anything a handler keeps in memory and
// shares between workers; make it anew in Plan.Handler, or in Plan.Reset.
//
// # How near it comes
//
// A killed worker's connections are closed, and whatever else it tries waits
// until the run has been judged and then fails. A paused worker stands still
// where it was paused, as do its connections, but not its timers: its handler's
// context may have ended before it goes on. It goes on all the same with what it
// was about to do, as a process does that was stopped after it had looked.
//
// The server is not Redis, one fault happens in each run, and a handler's own
// goroutines are interleaved only at the points.
//
// # Time
//
// Runs take place in a testing/synctest bubble, so leases, backoff and timeouts
// cost nothing. Everything the handler waits for must be of that bubble: make
// clients, channels and timers in Plan.Handler. PostgreSQL can be used there
// through Worker.Pool. Where a handler cannot run in a bubble there is
// Plan.RealTime.
package claimqtest
