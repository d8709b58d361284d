// Package chaos runs worker processes against redis-server with an append-only
// file and breaks everything it can reach, by a seeded schedule: workers are
// killed, frozen, stopped and cut off; the server is killed, filled, flushed,
// restored from an older snapshot, replaced by a replica that misses writes,
// and has its clock stepped. `make chaos` runs it for as long as asked, and a
// small run is among the tests.
//
// A second run of a task must be explained by a fault that its sender suffered
// while it had the task in hand, or by one that destroyed what the server had
// acknowledged. The latter are counted apart, and against what the fault may
// destroy at most; see "What each fault may cost" in docs/guarantees.md.
//
// A Go program asks the kernel for the time, not libc, so a preload cannot step
// a worker's clock: only the server's is stepped here, by testdata/clock.c.
// (libfaketime cannot be preloaded into Debian's redis-server: its allocator
// asks for the time while it starts.) What a step of its own clock does to a
// worker is TestStepOfAWorkersClock.
package chaos
