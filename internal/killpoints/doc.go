// Package killpoints has no code. Its tests kill real worker processes at every
// point between the receipt of a task and its acknowledgement, and at random
// moments, and count what came of the tasks in PostgreSQL.
//
// A point is the moment before or after one command to Redis, one statement to
// PostgreSQL, or the handler. The list is not written down anywhere: a worker
// that is left alone names every point that it passes.
package killpoints
