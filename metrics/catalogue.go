package metrics

import "slices"

// Kind of a family, as Prometheus calls it.
const (
	Counter   = "counter"
	Gauge     = "gauge"
	Histogram = "histogram"
)

// Where a family comes from: who exports it and, with State, that every process
// which exports it reports the same, so that a query takes max by (queue) first.
const (
	FromState    = "state"    // read from the server at scrape, by workers and exporters
	FromProducer = "producer" // counted by a process that enqueues
	FromWorker   = "worker"   // counted by a process that runs tasks
	FromClient   = "client"   // counted by the Redis client of any process
	FromProcess  = "process"  // of any process
)

// Family is one metric family. The catalogue is the one list of them: what is
// registered, documented and tested is made from it, and so is every query in
// dashboards/.
type Family struct {
	Name   string // without the prefix "claimq_"
	Type   string // Counter, Gauge or Histogram
	From   string
	Labels []string
	Help   string
	// Buckets are the upper bounds of a classic histogram.
	Buckets []float64
	// Absent: there may be no sample although all is well, for instance because
	// the value is not known, or because nothing has happened yet.
	Absent bool
}

// FullName is the name in an exposition.
func (f Family) FullName() string { return "claimq_" + f.Name }

// Label values that come from closed sets. Label queue holds names from the
// configuration, kind what Observer.Kinds is told and then what is seen first,
// MaxKinds in all, and then OtherKind.
var labelValues = map[string][]string{
	"source":  {"new", "reclaimed"},
	"outcome": {"completed", "retried", "released", "dead", "lost"},
	"reason":  {"error", "panic", "timeout", "canceled", "decode", "no_handler"},
	"dead":    {"failures", "interruptions", "rejected", "no_handler", "undecodable", "deadline"},
	"how":     {"server", "expired", "revoked"},
	"refusal": {"invalid", "full", "unavailable", "indefinite", "canceled", "other"},
	"state":   {"starting", "running", "draining", "stopped"},
	"step":    {"first", "again", "replayed", "recorded", "conflict", "failed"},
	"life":    {"active", "stale"},
	"pool":    {"idle", "used"},
	"error":   {"timeout", "network", "moved", "readonly", "oom", "loading", "busy", "noscript", "nogroup", "other"},
}

// Bucket bounds in seconds, unless their name says otherwise.
var (
	waitBuckets    = []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600}
	handlerBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900}
	reclaimBuckets = []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300}
	clientBuckets  = []float64{.0001, .0005, .001, .005, .01, .05, .1, .5, 1, 5}
	attemptBuckets = []float64{1, 2, 3, 4, 5, 8, 12, 20}
	shareBuckets   = []float64{.01, .03, .1, .3, .6, 1, 3, 10, 30} // of a lease
	byteBuckets    = []float64{64, 256, 1024, 4096, 16384, 65536, 262144, 1048576}
)

// catalogue is the list. Keep it in the order in which a reader wants it.
var catalogue = []Family{
	// How the queues stand.
	{Name: "waiting_entries", Type: Gauge, From: FromState, Labels: []string{"queue"}, Absent: true,
		Help: "Entries in the stream not yet delivered to a worker; absent when the server cannot tell."},
	{Name: "pending_entries", Type: Gauge, From: FromState, Labels: []string{"queue"}, Absent: true,
		Help: "Entries delivered to a worker and not yet settled."},
	{Name: "expired_pending_entries", Type: Gauge, From: FromState, Labels: []string{"queue"}, Absent: true,
		Help: "Pending entries whose lease has ended and that no worker has taken over yet; counted up to 1000 in each partition."},
	{Name: "scheduled_tasks", Type: Gauge, From: FromState, Labels: []string{"queue"}, Absent: true,
		Help: "Tasks waiting for their due time, retries included."},
	{Name: "dead_entries", Type: Gauge, From: FromState, Labels: []string{"queue"}, Absent: true,
		Help: "Entries in the dead letters."},
	{Name: "oldest_waiting_age_seconds", Type: Gauge, From: FromState, Labels: []string{"queue"}, Absent: true,
		Help: "How long the oldest waiting entry has waited, by the server's clock; 0 when none waits."},
	{Name: "oldest_pending_age_seconds", Type: Gauge, From: FromState, Labels: []string{"queue"}, Absent: true,
		Help: "How long ago the oldest pending entry came into the stream, by the server's clock; 0 when none is pending."},
	{Name: "oldest_overdue_age_seconds", Type: Gauge, From: FromState, Labels: []string{"queue"}, Absent: true,
		Help: "How far past its due time the earliest scheduled task is, by the server's clock; 0 when none is overdue."},
	{Name: "entries_added_total", Type: Counter, From: FromState, Labels: []string{"queue"}, Absent: true,
		Help: "Entries ever added to the stream, promoted and released tasks included, as the server counts them."},
	{Name: "consumers", Type: Gauge, From: FromState, Labels: []string{"queue", "state:life"}, Absent: true,
		Help: "Consumers of the group; state is active (heard of within a third of a lease) or stale (not, and not yet removed)."},
	{Name: "queue_lease_seconds", Type: Gauge, From: FromState, Labels: []string{"queue"},
		Help: "Length of a lease in this process's configuration."},
	{Name: "collector_success", Type: Gauge, From: FromState, Labels: []string{"queue"},
		Help: "1 if the last read of the queue's state succeeded, else 0."},
	{Name: "collector_duration_seconds", Type: Gauge, From: FromState, Labels: []string{"queue"},
		Help: "Time that the last read of the queue's state took."},

	// What comes in.
	{Name: "enqueued_total", Type: Counter, From: FromProducer, Labels: []string{"queue", "kind"},
		Help: "Tasks accepted from this process."},
	{Name: "enqueue_duplicates_total", Type: Counter, From: FromProducer, Labels: []string{"queue", "kind"},
		Help: "Tasks that were known already and not added again."},
	{Name: "enqueue_failures_total", Type: Counter, From: FromProducer, Labels: []string{"queue", "reason:refusal"},
		Help: "Tasks not accepted; reason is invalid, full, unavailable, indefinite, canceled or other."},
	{Name: "enqueue_duration_seconds", Type: Histogram, From: FromProducer, Labels: []string{"queue"}, Buckets: clientBuckets,
		Help: "Time of one call that enqueues, repeats included."},
	{Name: "enqueue_payload_bytes", Type: Histogram, From: FromProducer, Labels: []string{"queue"}, Buckets: byteBuckets,
		Help: "Payload size of accepted tasks."},

	// What workers do.
	{Name: "deliveries_total", Type: Counter, From: FromWorker, Labels: []string{"queue", "source"},
		Help: "Tasks leased to this worker; source is new or reclaimed."},
	{Name: "processed_total", Type: Counter, From: FromWorker, Labels: []string{"queue", "kind", "outcome"},
		Help: "Tasks that left this worker; outcome is completed, retried, released, dead or lost."},
	{Name: "failures_total", Type: Counter, From: FromWorker, Labels: []string{"queue", "reason"},
		Help: "Attempts that did not succeed; reason is error, panic, timeout, canceled, decode or no_handler."},
	{Name: "dead_lettered_total", Type: Counter, From: FromWorker, Labels: []string{"queue", "reason:dead"},
		Help: "Dead letters made by this worker; reason is failures, interruptions, rejected, no_handler, undecodable or deadline."},
	{Name: "duplicates_suppressed_total", Type: Counter, From: FromWorker, Labels: []string{"queue"},
		Help: "Entries that were copies of a live or finished task and were not run."},
	{Name: "missing_entries_total", Type: Counter, From: FromWorker, Labels: []string{"queue"},
		Help: "Tasks whose entry was deleted or trimmed from outside: lost work."},
	{Name: "promoted_tasks_total", Type: Counter, From: FromWorker, Labels: []string{"queue"},
		Help: "Scheduled tasks that this worker moved to the stream when they were due."},
	{Name: "steps_total", Type: Counter, From: FromWorker, Labels: []string{"queue", "outcome:step"},
		Help: "Recorded steps; outcome is first (no earlier call went out), again (one may have), replayed (found done, not repeated), recorded, conflict or failed."},
	{Name: "wait_duration_seconds", Type: Histogram, From: FromWorker, Labels: []string{"queue"}, Buckets: waitBuckets,
		Help: "Time from when a task could start, accepted or due, to the start of its first attempt."},
	{Name: "process_duration_seconds", Type: Histogram, From: FromWorker, Labels: []string{"queue", "kind"}, Buckets: handlerBuckets,
		Help: "Time that a handler ran in one attempt."},
	{Name: "process_lease_ratio", Type: Histogram, From: FromWorker, Labels: []string{"queue", "kind"}, Buckets: shareBuckets,
		Help: "Time that a handler ran in one attempt, in lengths of its lease."},
	{Name: "end_to_end_duration_seconds", Type: Histogram, From: FromWorker, Labels: []string{"queue"}, Buckets: waitBuckets,
		Help: "Time from when a task was accepted to its completion, over all attempts."},
	{Name: "delivery_attempts", Type: Histogram, From: FromWorker, Labels: []string{"queue"}, Buckets: attemptBuckets,
		Help: "Attempts that a task had when it was completed or became a dead letter."},

	// Leases and reclaims.
	{Name: "reclaimed_entries_total", Type: Counter, From: FromWorker, Labels: []string{"queue"},
		Help: "Entries that this worker took over from another consumer after their lease had ended."},
	{Name: "reclaim_delay_seconds", Type: Histogram, From: FromWorker, Labels: []string{"queue"}, Buckets: reclaimBuckets,
		Help: "Time from the end of a lease to the take-over of its task, by the server's clock."},
	{Name: "reclaim_sweeps_total", Type: Counter, From: FromWorker, Labels: []string{"queue"},
		Help: "Passes over one partition in search of ended leases."},
	{Name: "reclaim_sweep_failures_total", Type: Counter, From: FromWorker, Labels: []string{"queue"},
		Help: "Passes in search of ended leases that ended in an error."},
	{Name: "reclaim_sweep_duration_seconds", Type: Histogram, From: FromWorker, Labels: []string{"queue"}, Buckets: clientBuckets,
		Help: "Time of one pass over one partition in search of ended leases."},
	{Name: "last_reclaim_sweep_timestamp_seconds", Type: Gauge, From: FromWorker, Labels: []string{"queue"}, Absent: true,
		Help: "Unix time of this worker's last pass without an error in search of ended leases; absent before the first."},
	{Name: "lease_renewals_total", Type: Counter, From: FromWorker, Labels: []string{"queue"},
		Help: "Leases asked to be renewed; one covers all tasks that were taken in one call."},
	{Name: "lease_renewal_failures_total", Type: Counter, From: FromWorker, Labels: []string{"queue"},
		Help: "Renewals without an answer, or answered with an error; asked again."},
	{Name: "leases_lost_total", Type: Counter, From: FromWorker, Labels: []string{"queue", "how"},
		Help: "Leases lost while the task was in hand; how is server (it said so), expired (not renewed in time) or revoked (the task was deleted)."},
	{Name: "refused_settles_total", Type: Counter, From: FromWorker, Labels: []string{"queue"},
		Help: "Outcomes that were not accepted because the lease had been lost."},
	{Name: "oldest_lease_age_seconds", Type: Gauge, From: FromWorker,
		Help: "How long this worker has held the oldest of the leases that it holds; 0 when it holds none."},
	{Name: "consumers_removed_total", Type: Counter, From: FromWorker, Labels: []string{"queue"},
		Help: "Names of workers that are gone, removed from the group by this worker."},

	// The worker itself.
	{Name: "worker_slots", Type: Gauge, From: FromWorker, Help: "Handlers that this worker may run at once."},
	{Name: "worker_busy_slots", Type: Gauge, From: FromWorker, Help: "Slots in use."},
	{Name: "worker_held_tasks", Type: Gauge, From: FromWorker, Help: "Tasks leased to this worker whose handlers have not begun."},
	{Name: "worker_unsettled_tasks", Type: Gauge, From: FromWorker, Help: "Outcomes that the server has not taken yet."},
	{Name: "worker_stuck_handlers", Type: Gauge, From: FromWorker, Help: "Handlers that go on after their timeout and grace."},
	{Name: "worker_state", Type: Gauge, From: FromWorker, Labels: []string{"state"},
		Help: "1 for the state that the worker is in: starting, running, draining or stopped; 0 for the others."},
	{Name: "worker_ready", Type: Gauge, From: FromWorker, Help: "1 if the worker takes tasks, as /readyz says, else 0."},
	{Name: "loop_heartbeat_timestamp_seconds", Type: Gauge, From: FromWorker, Labels: []string{"loop"}, Absent: true,
		Help: "Unix time at which the loop last moved, waiting for something to do included; absent before it first moved."},

	// The Redis client.
	{Name: "redis_command_duration_seconds", Type: Histogram, From: FromClient, Labels: []string{"command"}, Buckets: clientBuckets, Absent: true,
		Help: "Time of one round trip by command, or script; blocking reads are left out."},
	{Name: "redis_command_failures_total", Type: Counter, From: FromClient, Labels: []string{"reason:error"},
		Help: "Round trips that failed, those given up by their caller left out; reason is timeout, network, moved, readonly, oom, loading, busy, noscript, nogroup or other."},
	{Name: "redis_pool_connections", Type: Gauge, From: FromClient, Labels: []string{"state:pool"}, Help: "Connections in the pool; state is idle or used."},
	{Name: "redis_pool_max_connections", Type: Gauge, From: FromClient, Help: "Connections that the pool may hold."},
	{Name: "redis_pool_hits_total", Type: Counter, From: FromClient, Help: "Times a free connection was found in the pool."},
	{Name: "redis_pool_misses_total", Type: Counter, From: FromClient, Help: "Times no free connection was found in the pool."},
	{Name: "redis_pool_waits_total", Type: Counter, From: FromClient, Help: "Times a caller had to wait for a connection."},
	{Name: "redis_pool_wait_seconds_total", Type: Counter, From: FromClient, Help: "Time that callers waited for a connection."},
	{Name: "redis_pool_timeouts_total", Type: Counter, From: FromClient, Help: "Times waiting for a connection timed out."},
	{Name: "redis_pool_stale_connections_total", Type: Counter, From: FromClient, Help: "Connections removed from the pool because they were stale."},

	{Name: "build_info", Type: Gauge, From: FromProcess, Labels: []string{"version", "revision", "goversion"}, Help: "Always 1; the labels tell the build."},
}

// Catalogue returns every family, in reading order. A label is written as its
// name, or as name:set where a closed set of another name has its values.
func Catalogue() []Family { return slices.Clone(catalogue) }

// LabelValues returns the values of a label as it stands in Family.Labels, nil
// when they are not a closed set.
func LabelValues(label string) []string {
	_, values := splitLabel(label)
	return slices.Clone(values)
}
