package config

import (
	"crypto/x509"
	"time"
)

// Worker is what cmd/worker is told from outside.
type Worker struct {
	Redis    Redis
	Postgres Postgres
	Queue    Queue
	Run      Run
	Push     Push
	Ops      Ops
	Log      Log

	// Warnings are settings that are allowed and doubtful, one sentence each,
	// to be shown once at start.
	Warnings []string
}

// Producer is what cmd/producer is told from outside.
type Producer struct {
	Redis   Redis
	Queue   Queue
	Produce Produce

	Warnings []string // as in Worker
}

// Relay is what "producer relay" is told from outside.
type Relay struct {
	Redis    Redis
	Postgres Postgres
	Queue    Queue
	Produce  Produce
	Move     Move
	Ops      Ops
	Log      Log

	Warnings []string // as in Worker
}

// Redis is the server.
type Redis struct {
	// Server: redis://[user:password@]host:port/db, with rediss:// for TLS.
	// Percent-encode special characters in the password. Empty: the worker
	// starts a server in its own process for trying things out, which keeps
	// nothing; the producer refuses to start.
	URL RedisURL `env:"REDIS_URL" secret:"true" example:"redis://localhost:6379/0"`
	// File with PEM certificates to trust for rediss:// instead of the
	// system's.
	CAFile string `env:"REDIS_CA_FILE" example:"redis-ca.pem"`
	// Prefix of every key: letters, digits, '.', '_' and '-'.
	KeyPrefix string `env:"REDIS_KEY_PREFIX" envDefault:"claimq"`

	rootCAs *x509.CertPool // what CAFile holds; nil: the system's
}

// Postgres is the database, where there is one.
type Postgres struct {
	// Database: postgres://[user:password@]host:port/name, with options such as
	// ?sslmode=verify-full. "producer relay" needs it. A worker that has it
	// keeps its recorded steps there instead of in Redis; make the tables with
	// "worker migrate" first.
	URL PostgresURL `env:"POSTGRES_URL" secret:"true" example:"postgres://localhost:5432/app"`
	// Schema of this library's tables.
	Schema string `env:"POSTGRES_SCHEMA" envDefault:"claimq"`
	// How long, at least, the worker's steps are kept after their last change.
	// Longer than a dead letter may lie before it is redriven.
	Retention time.Duration `env:"POSTGRES_RETENTION" envDefault:"2160h" range:"1m.."`
}

// Queue is how the queues are kept. Producers and workers of a queue must
// agree on these.
type Queue struct {
	// Queues as name:weight, separated by commas. The weight, 1 to 100, is
	// the queue's share of a worker; it may be left out. The producer adds to
	// the first unless it is told otherwise.
	Queues QueueList `env:"QUEUES" envDefault:"default:1"`
	// Partitions of each queue, fixed when the queue is made.
	Partitions int `env:"QUEUE_PARTITIONS" envDefault:"1" range:"1..256"`
	// Lease length: how long a task stays with a worker that shows no sign of
	// life.
	Lease time.Duration `env:"QUEUE_LEASE" envDefault:"15s" range:"200ms..1h"`
	// Lease length by kind where it differs, as kind:duration, separated by
	// commas.
	KindLeases KindDurations `env:"QUEUE_KIND_LEASES" range:"200ms..1h" example:"report.build:1m,mail.send:5s"`
	// How long, at least, the ID of a finished task is remembered and refused
	// as a duplicate.
	Retention time.Duration `env:"QUEUE_RETENTION" envDefault:"24h" range:"1s.."`
	// Longest payload, in bytes or with KiB or MiB.
	MaxPayload ByteSize `env:"QUEUE_MAX_PAYLOAD_BYTES" envDefault:"256KiB" range:"1..64MiB"`
	// Unfinished tasks at which a queue refuses new ones. 0: no bound.
	MaxBacklog int64 `env:"QUEUE_MAX_BACKLOG" envDefault:"0" range:"0.."`
	// Failures at which a task becomes a dead letter.
	MaxFailures int `env:"QUEUE_MAX_FAILURES" envDefault:"10" range:"1..1000"`
	// Interruptions (leases that ended without an outcome, as when a worker
	// is killed) at which a task becomes a dead letter.
	MaxInterruptions int `env:"QUEUE_MAX_INTERRUPTIONS" envDefault:"15" range:"1..1000"`
	// How long a task waits for a worker that knows its kind before it
	// becomes a dead letter.
	NoHandlerAfter time.Duration `env:"QUEUE_NO_HANDLER_AFTER" envDefault:"1h" range:"1s.."`
	// Keep an event of every step of every task for "worker task ID", not only
	// of what is rare (true or false). For a while, when you need it: those of
	// a busy queue soon push out the rare ones. It need not be the same
	// everywhere.
	Trace bool `env:"QUEUE_TRACE" envDefault:"false"`
}

// Run is how the worker runs tasks.
type Run struct {
	// Tasks run at the same time.
	Concurrency int `env:"WORKER_CONCURRENCY" envDefault:"16" range:"1..10000"`
	// Tasks held ready beyond those that run. They go back at once when the
	// worker stops. 0: as many as have their turn within a few milliseconds,
	// up to 256 while handlers are that quick, and none while they are slow.
	// -1: none.
	Prefetch int `env:"WORKER_PREFETCH" envDefault:"0" range:"-1..10000"`
	// How long one attempt may take.
	Timeout time.Duration `env:"WORKER_TIMEOUT" envDefault:"10m" range:"10ms..168h"`
	// The same by kind where it differs, as kind:duration, separated by
	// commas.
	KindTimeouts KindDurations `env:"WORKER_KIND_TIMEOUTS" range:"10ms..168h" example:"report.build:1h"`
	// How long a handler whose time is up may take to return before its lease
	// is let go and it counts as stuck.
	Grace time.Duration `env:"WORKER_GRACE" envDefault:"10s" range:"1ms..1h"`
	// Stuck handlers that give their slot to other tasks. With more, the worker
	// takes no tasks, reports itself unhealthy and is to be restarted. 0: as
	// many as WORKER_CONCURRENCY.
	MaxStuck int `env:"WORKER_MAX_STUCK" envDefault:"0" range:"0..10000"`
	// How long one read waits for a task on an idle queue.
	Block time.Duration `env:"WORKER_BLOCK" envDefault:"2s" range:"10ms..30s"`
	// How long a stopping worker lets its tasks finish before it cancels
	// them. Let the supervisor wait for at least 15 s longer before it kills.
	DrainTimeout time.Duration `env:"WORKER_DRAIN_TIMEOUT" envDefault:"25s" range:"1ms..24h"`
	// Wait before the first retry of a failed task; it doubles at each
	// failure.
	RetryBase time.Duration `env:"WORKER_RETRY_BASE" envDefault:"1s" range:"1ms..24h"`
	// Longest wait between two attempts, before jitter is added.
	RetryMax time.Duration `env:"WORKER_RETRY_MAX" envDefault:"15m" range:"1ms..168h"`
}

// Push is where the worker sends tasks by HTTP.
type Push struct {
	// Where tasks go, as kind=URL, separated by spaces. A kind may end in '*'
	// ("webhook.*", or "*" for all); the longest match wins. Empty: tasks are
	// not sent anywhere.
	URLs PushRoutes `env:"PUSH_URLS" secret:"true" example:"invoice.send=https://billing.example.com/tasks *=https://example.com/tasks"`
	// How long one request may take, answer included.
	Timeout time.Duration `env:"PUSH_TIMEOUT" envDefault:"15s" range:"10ms..1h"`
	// Keys that sign requests after Standard Webhooks: whsec_ and base64 of
	// 24 to 64 bytes. Several, separated by spaces, while a key is being
	// replaced. Empty: requests are not signed.
	SigningSecrets SigningSecrets `env:"PUSH_SIGNING_SECRET" secret:"true"`
	// File with PEM certificates to trust for https:// instead of the
	// system's.
	CAFile string `env:"PUSH_CA_FILE" example:"push-ca.pem"`
	// How much of an answer is read, in bytes or with KiB or MiB.
	MaxResponse ByteSize `env:"PUSH_MAX_RESPONSE_BYTES" envDefault:"64KiB" range:"1..64MiB"`
	// Answers after which no attempt can succeed: the task becomes a dead
	// letter. Separated by commas, 300 to 599.
	DeadStatus StatusList `env:"PUSH_DEAD_STATUS" envDefault:"410,422"`
	// Answers that ask for a later attempt: after their Retry-After where
	// they carry one. Separated by commas, 300 to 599.
	RetryStatus StatusList `env:"PUSH_RETRY_STATUS" envDefault:"409,425,429,503"`
	// Header of an answer that names what was made there (a charge, a
	// message); it is kept with the task.
	ExternalIDHeader string `env:"PUSH_EXTERNAL_ID_HEADER" envDefault:"X-External-Id"`

	// RootCAs is what CAFile holds; nil: the system's.
	RootCAs *x509.CertPool
}

// Produce is how the producer sends.
type Produce struct {
	// How long one batch may take, retries included.
	Timeout time.Duration `env:"PRODUCER_TIMEOUT" envDefault:"30s" range:"10ms..1h"`
	// Times a batch is sent again where the server was away or its answer was
	// lost.
	MaxRetries int `env:"PRODUCER_MAX_RETRIES" envDefault:"5" range:"0..100"`
	// Tasks in one batch.
	Batch int `env:"PRODUCER_BATCH" envDefault:"100" range:"1..256"`
	// Payload in one batch, in bytes or with KiB or MiB.
	BatchBytes ByteSize `env:"PRODUCER_BATCH_BYTES" envDefault:"1MiB" range:"1..64MiB"`
	// Replicas of the Redis server that must have a task before it counts as
	// added. 0: none; its own answer is enough.
	Replicas int `env:"PRODUCER_REPLICAS" envDefault:"0" range:"0..100"`
	// Wait until the append-only file has a task on disk, at the server and at
	// that many replicas (true or false). Needs Redis 7.2.
	Fsync bool `env:"PRODUCER_FSYNC" envDefault:"false"`
	// How long a batch waits for replicas and disk before it is sent again; half
	// of the time that Redis has for an answer at most.
	DurableWithin time.Duration `env:"PRODUCER_DURABLE_WITHIN" envDefault:"1s" range:"1ms..1m"`
}

// Move is how "producer relay" moves tasks from the outbox to the queues.
type Move struct {
	// Rows taken at a time, for each queue.
	Batch int `env:"RELAY_BATCH" envDefault:"200" range:"1..1000"`
	// How long a relay that found nothing waits before it looks again, unless
	// it is woken.
	Poll time.Duration `env:"RELAY_POLL" envDefault:"1s" range:"10ms..1h"`
	// Be woken by those who add tasks (true or false). Turn it off where
	// connections go through a pooler that lends them for one transaction.
	Listen bool `env:"RELAY_LISTEN" envDefault:"true"`
	// How long one batch may take; a relay that froze keeps its rows from
	// others for that long.
	Timeout time.Duration `env:"RELAY_TIMEOUT" envDefault:"30s" range:"1s..1h"`
	// How long sent rows are kept, to be sent again should Redis forget them.
	// 0s: not at all.
	Keep time.Duration `env:"RELAY_KEEP" envDefault:"1h" range:"0s.."`
}

// Ops is what operators see.
type Ops struct {
	// Address of metrics and health checks. "off": none.
	Addr ListenAddr `env:"OPS_ADDR" envDefault:"127.0.0.1:9090"`
	// Serve profiles there too (true or false).
	Pprof bool `env:"OPS_PPROF" envDefault:"false"`
}

// Log is what is written to standard error.
type Log struct {
	// Least level written: debug, info, warn or error.
	Level LogLevel `env:"LOG_LEVEL" envDefault:"info"`
	// Form: text, json, or auto for text on a terminal and json elsewhere.
	Format LogFormat `env:"LOG_FORMAT" envDefault:"auto"`
}
