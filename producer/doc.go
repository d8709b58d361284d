// Package producer is policy over queue.Enqueue: it cuts many tasks into
// batches, lets single tasks of callers that come at the same time go out
// together, and sends a batch again where the server was away or its answer was
// lost, with the token of the first send, so that nothing is added twice.
//
// A task without an ID gets one before its first send. It protects the
// retries of that call; to be safe against a caller that calls again, choose
// the ID from the business action, or repeat the call with the ID of the
// receipt.
//
// The package starts no goroutine and keeps no state beyond the Producer.
package producer
