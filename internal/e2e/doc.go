// Package e2e holds tests of what is deployed: worker processes, built and
// started as an operator would, against a redis-server of their own, some of
// them killed and frozen. They count every request that reaches the receiver:
// effects behind an idempotent receiver would hide a queue that delivers
// everything ten times.
package e2e
