package chaos

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/internal/faultredis"
	"github.com/claimq/claimq/internal/fleet"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/queue"
)

var bg = context.Background()

const (
	lease     = 2 * time.Second
	bound     = lease + time.Second // of a recovery
	slots     = 3                   // workers at a time
	clockTime = "15:04:05.000"
	oneHour   = 3600
)

// slot is the place of one worker, with a way to the server of its own.
type slot struct {
	n      int
	proxy  *faultredis.Proxy
	worker *fleet.Worker
	starts int
	busy   bool // frozen or cut off
}

func (s *slot) prefix() string { return fmt.Sprintf("s%d-", s.n) }

type rig struct {
	t *testing.T
	h *history
	l *ledger
	q *queue.Queue

	primary, replica *redistest.Server
	way              *faultredis.Proxy // of producers to the primary
	link             *faultredis.Proxy // of the replica to the primary
	rdb, spare       *redis.Client     // of primary and replica, with nothing between
	clock            *os.File
	offset           int64 // seconds by which the clock of both servers is ahead
	ahead            int64 // the most that it ever was
	steppedBack      bool

	rec     *fleet.Receiver
	slots   []*slot
	leaving []*fleet.Worker
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, h: &history{}, rec: fleet.NewReceiver(t)}
	var err error
	if r.clock, err = os.Create(filepath.Join(t.TempDir(), "clock")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.clock.Close() })
	r.setClock(0)
	env := []string{"LD_PRELOAD=" + clockPath, "CLAIMQ_CLOCK=" + r.clock.Name()}
	args := []string{
		"--appendonly", "yes", "--appendfsync", "everysec", "--maxmemory-policy", "noeviction",
		"--auto-aof-rewrite-min-size", "32mb", "--repl-diskless-sync-delay", "0",
	}
	r.primary, r.replica = redistest.StartEnv(t, env, args...), redistest.StartEnv(t, env, args...)
	r.rdb, r.spare = r.primary.Client(), r.replica.Client()
	r.link = faultredis.NewProxy(t, r.primary.Addr())
	r.way = faultredis.NewProxy(t, r.primary.Addr())
	r.follow()

	client := r.primary.Client(func(o *redis.Options) {
		o.Addr = r.way.Addr()
		o.ContextTimeoutEnabled, o.ReadTimeout, o.DialTimeout = true, time.Second, time.Second
	})
	r.q, err = queue.New(queue.Config{
		Name: "jobs", Client: client, Prefix: redistest.Prefix(t), Partitions: 4, Lease: lease, MaxInterruptions: 100,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.q.Close() })
	p, err := producer.New(r.q, producer.Config{Timeout: 5 * time.Second, Batch: 250})
	if err != nil {
		t.Fatal(err)
	}
	r.l = &ledger{p: p, h: r.h}
	r.rec.Answers(answer)
	for n := range slots {
		s := &slot{n: n, proxy: faultredis.NewProxy(t, r.primary.Addr())}
		r.slots = append(r.slots, s)
		r.start(s)
	}
	for _, s := range r.slots {
		r.eventually(s.worker.Name+" started", func() bool { return s.worker.Log.Says("worker started") })
	}
	return r
}

// answer is how long a task takes and how it ends, chosen by its ID: most are
// short, some outlive a renewal, a few their lease. Some fail once. Later
// attempts are short, as where a recorded step is found done: a task that is
// long at each of them, and is struck at each, soon runs alone, and while it
// does so or waits for it its worker takes nothing over.
func answer(q fleet.Request) (int, <-chan struct{}) {
	h := fnv.New32a()
	h.Write([]byte(q.Task))
	n := h.Sum32() >> 4
	wait := time.Duration(2+n%20) * time.Millisecond
	switch {
	case n%500 == 0 && q.Attempt == 1:
		wait = lease + lease/2
	case n%50 == 0 && q.Attempt == 1:
		wait = lease / 2
	case n%97 == 0 && q.Attempt == 1:
		return http.StatusInternalServerError, nil
	}
	over := make(chan struct{})
	time.AfterFunc(wait, func() { close(over) })
	return http.StatusOK, over
}

// start puts a new worker in a slot.
func (r *rig) start(s *slot) {
	r.t.Helper()
	s.starts++
	name := fmt.Sprintf("%s%04d", s.prefix(), s.starts)
	c := r.q.Config()
	s.worker = fleet.Start(r.t, workerPath, name, []string{
		"REDIS_URL=redis://" + s.proxy.Addr() + "/0", "REDIS_KEY_PREFIX=" + c.Prefix, "QUEUES=" + c.Name,
		"QUEUE_LEASE=" + lease.String(), fmt.Sprint("QUEUE_PARTITIONS=", c.Partitions),
		fmt.Sprint("QUEUE_MAX_INTERRUPTIONS=", c.MaxInterruptions), "QUEUE_RETENTION=" + c.Retention.String(),
		"WORKER_CONCURRENCY=32", "WORKER_BLOCK=500ms", "WORKER_RETRY_BASE=100ms", "WORKER_DRAIN_TIMEOUT=15s",
		"PUSH_URLS=*=" + r.rec.URL(name), "OPS_ADDR=off", "LOG_FORMAT=json", "LOG_LEVEL=info",
	})
}

// setClock steps the clock of both servers.
func (r *rig) setClock(seconds int64) {
	r.t.Helper()
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], uint64(seconds))
	if _, err := r.clock.WriteAt(b[:], 0); err != nil {
		r.t.Fatal(err)
	}
	r.steppedBack = r.steppedBack || seconds < r.offset
	r.offset, r.ahead = seconds, max(r.ahead, seconds)
}

// follow makes the replica one of the primary, through the link.
func (r *rig) follow() {
	r.t.Helper()
	host, port := "127.0.0.1", r.link.Addr()[len("127.0.0.1:"):]
	if err := r.spare.ReplicaOf(bg, host, port).Err(); err != nil {
		r.t.Fatal(err)
	}
}

// eventually waits until ok.
func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	if !r.within(time.Minute, ok) {
		r.t.Fatalf("not within a minute: %s", what)
	}
}

func (r *rig) within(limit time.Duration, ok func() bool) bool {
	return fleet.Within(limit, 5*time.Millisecond, ok)
}

// pause lets things run on for a while.
func (r *rig) pause(d time.Duration) { <-time.After(d) }
