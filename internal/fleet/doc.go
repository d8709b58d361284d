// Package fleet runs what is deployed: `worker run` processes, started, killed
// and frozen as an operator or a crash would, and the receiver that they push
// to, which keeps every request. Tests judge a queue by those requests: effects
// behind an idempotent receiver would hide one that delivers everything ten
// times.
//
// Each worker has one goroutine, which ends with its process.
package fleet
