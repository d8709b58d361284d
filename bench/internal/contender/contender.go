// Package contender is one side of the benchmark: a program that does one
// scenario's work with one queue, and says what it cost its own process.
//
// The driver starts it with the scenario as flags. It connects, prints "ready",
// waits for a line on standard input, works, and prints one JSON object. It ends
// when standard input does, so that the driver can read the server's accounts
// while all connections are still open.
package contender

import (
	"errors"
	"time"
)

// ErrNoBatch: the queue has no call that adds many tasks.
var ErrNoBatch = errors.New("no call that adds many tasks")

// Queue is what every contender can do.
type Queue interface {
	// Enqueue adds one task.
	Enqueue(id, payload string) error
	// EnqueueBatch adds many tasks with one call, or is ErrNoBatch.
	EnqueueBatch(ids, payloads []string) error
	// Consume runs that many handlers at once, each of which passes its
	// payload to s, from now to the end of the process. It does not wait.
	Consume(handlers int, s *Sink) error
}

// Options are the flags of a contender, one scenario's work.
type Options struct {
	Mode     string        // what to do
	Variant  string        // one of several ways to use the same library
	Addr     string        // of the server, or a connection string
	N        int           // tasks
	Callers  int           // goroutines that enqueue
	Batch    int           // tasks in one enqueue call
	Handlers int           // handlers at once
	Size     int           // payload bytes
	Work     time.Duration // that a handler takes
	Rate     int           // tasks per second of feed
	For      time.Duration // length of feed, or of a fleet's rest
	Warm     time.Duration // serve leaves out what comes before
	Profile  string        // file for a CPU profile of the work

	Workers    int    // of a fleet
	Backlog    int    // waiting tasks to begin with
	Pending    int    // tasks held by somebody else to begin with
	Scheduled  int    // tasks that are due later to begin with
	Dead       int    // dead letters to begin with
	Partitions int    // of the queue
	Base       string // of growth: the server whose queue is almost empty
	IDBytes    int    // length of task IDs
	AllocFile  string
}

// Result is what a run cost the contender's process. Times are in
// microseconds for each task unless they say otherwise.
type Result struct {
	N       int                `json:"n"`
	Seconds float64            `json:"seconds"`
	Client  float64            `json:"client_us"`
	Allocs  float64            `json:"allocs"`
	P50     float64            `json:"p50_ms"`
	P99     float64            `json:"p99_ms"`
	Max     float64            `json:"max_ms"`
	LastNS  int64              `json:"last_ns"` // when the last handler started, Unix time
	Repeats int                `json:"repeats"` // handler runs beyond the first of a task
	More    map[string]float64 `json:"more,omitempty"`
}

// Mode is a scenario that only some contenders know.
type Mode func(o Options, start func()) (Result, error)
