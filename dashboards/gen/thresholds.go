package main

// Numbers that alerts and panels share: where a panel turns red, an alert of
// the same number waits for its time to pass.
const (
	lateSeconds     = 300 // a task that waits longer is late
	startWithin     = 30  // seconds in which tasks should start; a bucket bound of claimq_wait_duration_seconds
	startShare      = 0.99
	burnRate        = 14.4 // of the error budget: 2% of a 30-day budget in one hour
	backlogLarge    = 1000
	failureFew      = 0.01 // of attempts; retries that every fleet has
	failureRatio    = 0.10
	reclaimRatio    = 0.05
	saturatedRatio  = 0.95
	loopSilent      = 60  // seconds; twice the time after which a worker calls itself unhealthy
	sweepSilent     = 300 // seconds
	overdueSeconds  = 60
	pendingSeconds  = 3600
	redisErrorRatio = 0.01
	enqueueRatio    = 0.05
	leaseShare      = 0.6 // of a lease that the 99th percentile of handler times may take
)
