package queue_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/internal/faultredis"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/queue"
)

// pair is a primary and a replica with a way between them that a test can break.
type pair struct {
	*rig
	primary, replica *redistest.Server
	link             *faultredis.Proxy
	copy             *redis.Client // of the replica
}

func newPair(t *testing.T, edit ...func(*queue.Config)) *pair {
	t.Helper()
	p := &pair{primary: redistest.Start(t, "--repl-diskless-sync-delay", "0")}
	p.link = faultredis.NewProxy(t, p.primary.Addr())
	host, port, _ := net.SplitHostPort(p.link.Addr())
	p.replica = redistest.Start(t, "--replicaof", host+" "+port)
	p.copy = p.replica.Client()
	p.rig = rigOn(t, p.primary.Client(func(o *redis.Options) { o.ReadTimeout = time.Minute }), edit...)
	p.follows()
	return p
}

func (p *pair) follows() {
	p.t.Helper()
	waitUntil(p.t, "the replica follows", func() bool {
		n, err := p.c.Wait(bg, 1, 100*time.Millisecond).Result()
		return err == nil && n == 1
	})
}

// has reports whether the replica knows a task at this moment.
func (p *pair) has(id string) bool {
	part := p.q.PartitionOf(queue.TaskID(id))
	return p.copy.HExists(bg, p.key(part, "tasks"), id).Val()
}

func (p *pair) enqueue(token queue.Token, d queue.Durability, ids ...string) []queue.Receipt {
	return p.q.EnqueueDurably(bg, token, tasksNamed(ids...), d)
}

// patient is for what is confirmed, on a loaded machine too, and hasty for what
// is not.
var (
	patient = queue.Durability{Replicas: 1, Within: 20 * time.Second}
	hasty   = queue.Durability{Replicas: 1, Within: 100 * time.Millisecond}
)

// What is confirmed is on the replica before the answer, in one partition and in
// several, for tasks that are new and for duplicates, and also where the server
// had forgotten its scripts.
func TestDurableEnqueue(t *testing.T) {
	for _, partitions := range []int{1, 3} {
		t.Run(fmt.Sprint(partitions), func(t *testing.T) {
			p := newPair(t, func(c *queue.Config) { c.Partitions = partitions })
			for n := range 30 {
				if n%10 == 0 {
					p.c.ScriptFlush(bg)
				}
				ids := numbered(fmt.Sprintf("%d-", n), 8)
				for _, r := range p.enqueue(p.q.NewToken(), patient, ids...) {
					if !r.Added || r.Err != nil || !p.has(string(r.ID)) {
						t.Fatalf("%+v, on the replica %v", r, p.has(string(r.ID)))
					}
				}
			}
			for _, r := range p.enqueue(p.q.NewToken(), patient, numbered("3-", 8)...) {
				if !r.Duplicate || r.Err != nil {
					t.Errorf("again: %+v", r)
				}
			}
		})
	}
}

// What is not confirmed in time is accepted all the same, says so, and is
// confirmed when it is asked again: by the same call, and by its ID alone.
func TestNotDurable(t *testing.T) {
	p := newPair(t)
	p.enqueue(p.q.NewToken(), patient, "before")
	p.link.BlackholeReplies()
	token := p.q.NewToken()
	notDurable := func(what string, r queue.Receipt) {
		t.Helper()
		if !errors.Is(r.Err, queue.ErrNotDurable) || !errors.Is(r.Err, queue.ErrIndefinite) || !queue.IsRetryable(r.Err) {
			t.Errorf("%s: %v, want ErrNotDurable", what, r.Err)
		}
		if r.Added || r.Duplicate || r.Place != queue.Waiting {
			t.Errorf("%s: %+v", what, r)
		}
	}
	notDurable("cut off", p.enqueue(token, hasty, "a")[0])
	notDurable("the same call again", p.enqueue(token, hasty, "a")[0])
	notDurable("another call", p.enqueue(p.q.NewToken(), hasty, "a")[0])
	notDurable("one that was confirmed before others were not", p.enqueue(p.q.NewToken(), patient, "before")[0])
	if p.has("a") || p.inspect("a").Place != queue.Waiting {
		t.Fatalf("on the replica %v, on the primary %v", p.has("a"), p.inspect("a").Place)
	}
	if r := p.q.Enqueue(bg, p.q.NewToken(), tasksNamed("b"))[0]; !r.Added {
		t.Errorf("one that asks for nothing: %+v", r)
	}
	p.link.Heal()
	p.follows()
	if r := p.enqueue(token, patient, "a")[0]; !r.Added || r.Err != nil || !p.has("a") {
		t.Errorf("the same call, healed: %+v", r)
	}
	if r := p.enqueue(p.q.NewToken(), patient, "a", "b")[1]; !r.Duplicate || !p.has("b") {
		t.Errorf("another call, healed: %+v", r)
	}
	two := queue.Durability{Replicas: 2, Within: 50 * time.Millisecond}
	r := p.enqueue(p.q.NewToken(), two, "c")[0]
	notDurable("more replicas than there are", r)
	if !strings.Contains(r.Err.Error(), "1 of 2 replicas") {
		t.Errorf("%v does not say how many there were", r.Err)
	}
}

// The wait ends before the client's patience does: else it could not tell that
// the task was accepted.
func TestDurableWaitIsBoundByTheClient(t *testing.T) {
	c := redistest.Shared(t).Client(func(o *redis.Options) { o.ReadTimeout = 2 * time.Second })
	r := rigOn(t, c)
	got := r.q.EnqueueDurably(bg, r.q.NewToken(), tasksNamed("a"), queue.Durability{Replicas: 1, Within: time.Minute})[0]
	if !errors.Is(got.Err, queue.ErrNotDurable) || !strings.Contains(got.Err.Error(), "0 of 1 replicas had it within 1s") {
		t.Errorf("%v", got.Err)
	}
}

// The primary dies right after the answer, and the replica is promoted: what was
// confirmed is there. What was not confirmed may be gone.
func TestPromotionKeepsWhatWasConfirmed(t *testing.T) {
	p := newPair(t)
	confirmed := numbered("kept-", 200)
	for n := 0; n < len(confirmed); n += 20 {
		for _, r := range p.enqueue(p.q.NewToken(), patient, confirmed[n:n+20]...) {
			if !r.Added {
				t.Fatalf("%+v", r)
			}
		}
	}
	p.link.BlackholeReplies()
	for _, r := range p.enqueue(p.q.NewToken(), hasty, "lost") {
		if r.Err == nil {
			t.Fatalf("%+v", r)
		}
	}
	p.primary.Kill()
	if err := p.copy.ReplicaOf(bg, "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	promoted := rigOn(t, p.copy, func(c *queue.Config) { c.Prefix = p.prefix })
	for _, r := range promoted.q.Enqueue(bg, promoted.q.NewToken(), tasksNamed(append(confirmed, "lost")...)) {
		if want := r.ID == "lost"; r.Added != want || r.Duplicate == want {
			t.Errorf("sent again after the promotion: %+v", r)
		}
	}
}

// What cannot be asked of this server is refused before anything is added, and
// the error names the field.
func TestDurabilityIsChecked(t *testing.T) {
	r := newRig(t)
	for name, c := range map[string]struct {
		d    queue.Durability
		want string
	}{
		"negative":        {queue.Durability{Replicas: -1}, "Replicas"},
		"too many":        {queue.Durability{Replicas: 101}, "Replicas"},
		"less than a ms":  {queue.Durability{Replicas: 1, Within: 1}, "Within"},
		"negative within": {queue.Durability{Replicas: 1, Within: -1}, "Within"},
		"no WAITAOF":      {queue.Durability{Fsync: true}, "Durability.Fsync"},
	} {
		if name == "no WAITAOF" && !strings.Contains(r.c.Info(bg, "server").Val(), "redis_version:7.0") {
			continue // this server has it
		}
		got := r.q.EnqueueDurably(bg, r.q.NewToken(), tasksNamed("a"), c.d)[0]
		if !errors.Is(got.Err, queue.ErrInvalidConfig) || !strings.Contains(got.Err.Error(), c.want) {
			t.Errorf("%s: %v, want ErrInvalidConfig that names %s", name, got.Err, c.want)
		}
		if n := r.c.XLen(bg, r.key(0, "stream")).Val(); n != 0 {
			t.Errorf("%s: %d tasks were added", name, n)
		}
	}
	if got := r.q.EnqueueDurably(bg, r.q.NewToken(), tasksNamed("a"), queue.Durability{}); !got[0].Added {
		t.Errorf("nothing asked for: %+v", got[0])
	}
}

// A server that has WAITAOF is asked for its disk and that of replicas.
func TestDurableOnDisk(t *testing.T) {
	for name, c := range map[string]struct {
		reply string
		want  bool
	}{
		"both":          {"1 1", true},
		"no own disk":   {"0 1", false},
		"no replica":    {"1 0", false},
		"more replicas": {"1 3", true},
	} {
		var local, replicas int64
		fmt.Sscan(c.reply, &local, &replicas)
		err := queue.Unkept(queue.Durability{Fsync: true, Replicas: 1}, []any{local, replicas})
		if (err == nil) != c.want || err != nil && !errors.Is(err, queue.ErrNotDurable) {
			t.Errorf("%s: %v, want nil: %v", name, err, c.want)
		}
	}
}
