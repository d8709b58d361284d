package queue_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/queue"
)

// repliesWith is a server that gives every command the same reply, and counts
// the connections that were made to it.
func repliesWith(t *testing.T, reply string) (addr string, made *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	made = new(atomic.Int64)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			made.Add(1)
			go func() { // ends when the client closes the connection
				defer conn.Close()
				buf := make([]byte, 4096)
				for {
					if _, err := conn.Read(buf); err != nil {
						return
					}
					if _, err := conn.Write([]byte(reply)); err != nil {
						return
					}
				}
			}()
		}
	}()
	t.Cleanup(func() { l.Close(); <-stopped })
	return l.Addr().String(), made
}

// bareClient says nothing to the server when it connects.
func bareClient(t *testing.T, addr string) *redis.Client {
	t.Helper()
	opt := redistest.Shared(t).Options()
	opt.Addr, opt.Protocol, opt.DisableIdentity = addr, 2, true
	c := redis.NewClient(opt)
	t.Cleanup(func() { c.Close() })
	return c
}

// TestD1Wordings: however a server or something in front of it words that it
// takes no writes, nothing was changed and the caller may ask again; and the
// connection to a server that was demoted is not used again.
func TestD1Wordings(t *testing.T) {
	const readOnly = "READONLY You can't write against a read only replica."
	for _, tt := range []struct {
		name, text string
		redials    bool
	}{
		{"server", readOnly, true},
		{"script of 7.0", readOnly + " script: 4f2a, on @user_script:1.", true},
		{"script of 6.2", "ERR Error running script (call to f_4f2a): @user_script:1: -" + readOnly, true},
		// What stands between has the stale connection then, not the client.
		{"proxy", "ERR " + readOnly, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			addr, made := repliesWith(t, "-"+tt.text+"\r\n")
			q, err := queue.New(queue.Config{Name: "q", Client: bareClient(t, addr)})
			if err != nil {
				t.Fatal(err)
			}
			defer q.Close()
			const calls = 5
			before := made.Load()
			for range calls {
				got := q.Enqueue(bg, q.NewToken(), tasksNamed("a"))[0]
				if !errors.Is(got.Err, queue.ErrUnavailable) || errors.Is(got.Err, queue.ErrIndefinite) {
					t.Fatalf("%+v", got)
				}
				if s := q.Complete(bg, []queue.Settlement{{Lease: queue.Lease{TaskID: "a", Grant: queue.Grant{Token: token("x")}}}})[0]; !errors.Is(s.Err, queue.ErrUnavailable) {
					t.Fatalf("%+v", s)
				}
			}
			if n := made.Load() - before; tt.redials && n < calls {
				t.Errorf("%d connections for %d calls: it went on with one to a server that takes no writes", n, 2*calls)
			}
		})
	}
}

// replicated starts a primary and a replica that follows it.
func replicated(t *testing.T) (primary, replica *redistest.Server) {
	t.Helper()
	primary = redistest.Start(t, "--repl-diskless-sync-delay", "0")
	host, port, _ := net.SplitHostPort(primary.Addr())
	replica = redistest.Start(t, "--replicaof", host+" "+port)
	c := replica.Client()
	waitUntil(t, "the replica follows", func() bool {
		return strings.Contains(c.Info(bg, "replication").Val(), "master_link_status:up")
	})
	return primary, replica
}

// waitUntil waits for something that another process does.
func waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	end := time.After(20 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not in time: %s", what)
		}
	}
}

// TestD1Demoted: the primary is demoted under open connections and the address
// points to the other server from then on. Each call recovers by being asked
// again; the lease that was replicated is kept.
func TestD1Demoted(t *testing.T) {
	old, fresh := replicated(t)
	var target atomic.Pointer[redistest.Server]
	target.Store(old)
	c := old.Client(func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, target.Load().Addr())
		}
	})
	r := rigOn(t, c)
	r.add(tasksNamed("a", "b")...)
	ds := r.take("w", 2)
	if n, err := c.Wait(bg, 1, 10*time.Second).Result(); err != nil || n != 1 {
		t.Fatalf("%d replicas have it: %v", n, err)
	}
	host, port, _ := net.SplitHostPort(fresh.Addr())
	if err := fresh.Client().Do(bg, "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	if err := old.Client().Do(bg, "REPLICAOF", host, port).Err(); err != nil {
		t.Fatal(err)
	}
	target.Store(fresh)
	within := func(what string, ask func() error) {
		t.Helper()
		for n := range 5 {
			err := ask()
			if err == nil {
				return
			}
			if !errors.Is(err, queue.ErrUnavailable) || n == 4 {
				t.Fatalf("%s, ask %d: %v", what, n+1, err)
			}
		}
	}
	within("renew", func() error { return r.q.Renew(bg, []queue.Grant{ds[0].Lease.Grant})[0].Err })
	within("complete", func() error { return r.q.Complete(bg, settlements(ds[:1]))[0].Err })
	tok := r.q.NewToken()
	within("enqueue", func() error { return r.q.Enqueue(bg, tok, tasksNamed("c"))[0].Err })
	r.onlyAt("a", "")
	r.onlyAt("b", "pending")
	r.onlyAt("c", "waiting")
	if n := fresh.Client().Exists(bg, r.key(0, "stream")).Val(); n != 1 {
		t.Error("the calls went to the other server")
	}
}

// TestD3Eviction: the probe warns of a server that would evict what it holds.
// Nothing of a queue has an expiry, so the policies that evict what has one
// leave it alone, and are warned of all the same.
func TestD3Eviction(t *testing.T) {
	srv := redistest.Start(t, "--maxmemory", "100mb")
	r := rigOn(t, srv.Client())
	for policy, warned := range map[string]bool{"allkeys-lru": true, "volatile-ttl": true, "noeviction": false} {
		r.c.ConfigSet(bg, "maxmemory-policy", policy)
		report, err := r.q.Probe(bg)
		if err != nil || report.Fatal() {
			t.Fatalf("%+v %v", report, err)
		}
		at := slices.IndexFunc(report.Findings, func(f queue.Finding) bool { return f.What == "maxmemory-policy" })
		if (at >= 0) != warned {
			t.Errorf("%s: %+v", policy, report.Findings)
		} else if warned && (!strings.Contains(report.Findings[at].Detail, policy) || !strings.Contains(report.Findings[at].Remedy, "noeviction")) {
			t.Errorf("%s: %+v", policy, report.Findings[at])
		}
	}
	r.add(tasksNamed(numbered("t", 6)...)...)
	r.add(queue.Task{ID: "later", Kind: "k", Delay: time.Hour})
	ds := r.take("w", 6)
	if _, err := r.q.StepIntent(bg, ds[0].Lease, "s", "key", r.q.NewToken()); err != nil {
		t.Fatal(err)
	}
	r.must(queue.Completed, r.q.Complete(bg, settlements(ds[1:2])))
	r.must(queue.DeadLettered, r.q.DeadLetter(bg, settlements(ds[2:3], rejected)))
	r.must(queue.Retried, r.q.Retry(bg, settlements(ds[3:4], func(s *queue.Settlement) { s.Delay = time.Hour })))
	keys := r.c.Keys(bg, "*").Val()
	for _, key := range keys {
		if ttl := r.c.PTTL(bg, key).Val(); ttl != -1 {
			t.Errorf("%s ends in %v", key, ttl)
		}
	}
	if len(keys) < 8 {
		t.Errorf("only %v: the test proves little", keys)
	}
}

// slot is the slot of a key in a cluster.
func slot(key string) uint16 {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			key = tag
		}
	}
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % 16384
}

// clusterNode is a cluster of one node with all slots.
func clusterNode(t *testing.T) *redistest.Server {
	t.Helper()
	srv := redistest.Start(t, "--cluster-enabled", "yes")
	c := srv.Client()
	if err := c.Do(bg, "CLUSTER", "ADDSLOTSRANGE", 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the cluster is up", func() bool { return strings.Contains(c.ClusterInfo(bg).Val(), "cluster_state:ok") })
	return srv
}

// TestJ1EveryScriptInOneSlot runs each script, rare ones too, on a cluster: a
// key that is in another slot, or that is used without being declared, would be
// refused there.
func TestJ1EveryScriptInOneSlot(t *testing.T) {
	srv := clusterNode(t)
	c := srv.Client()
	for _, key := range []string{"{q.0}x", "a{b}c", "abc", "{}x"} {
		if want := c.ClusterKeySlot(bg, key).Val(); int64(slot(key)) != want {
			t.Fatalf("the slot of %q is %d, here %d", key, want, slot(key))
		}
	}
	slots := map[uint16]int{}
	for name, tr := range transitions {
		f := &failing{rig: rigOn(t, srv.Client()), ids: numbered("t", 6)}
		ask := tr.prepare(f)
		if got, err := ask(); err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if _, err := ask(); err != nil {
			t.Errorf("%s again: %v", name, err)
		}
		for what := range documentedKeys(t) {
			slots[slot(f.key(0, what))]++
		}
	}
	for _, key := range c.Keys(bg, "*").Val() {
		slots[slot(key)]++
	}
	if len(slots) != 1 {
		t.Errorf("the keys of one partition are in the slots %v", slots)
	}
	// That a key of another slot would be refused, or the above proves nothing.
	if err := c.Eval(bg, "return redis.call('GET', 'elsewhere')", []string{"{q.0}x"}).Err(); err == nil {
		t.Error("a script may use any key here")
	}
}

// TestJ1ClusterIsRefused: a client of a cluster is refused when the queue is
// made, and a plain client of one of its nodes by the probe.
func TestJ1ClusterIsRefused(t *testing.T) {
	srv := clusterNode(t)
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{srv.Addr()}})
	defer cluster.Close()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": srv.Addr()}})
	defer ring.Close()
	for _, c := range []redis.UniversalClient{cluster, ring} {
		_, err := queue.New(queue.Config{Name: "q", Client: c})
		var field *queue.FieldError
		if !errors.Is(err, queue.ErrInvalidConfig) || !errors.As(err, &field) || field.Field != "Client" || !strings.Contains(field.Remedy, "one server") {
			t.Errorf("%T: %v", c, err)
		}
	}
	r := rigOn(t, srv.Client())
	report, err := r.q.Probe(bg)
	if err != nil || !report.Fatal() {
		t.Fatalf("%+v %v", report, err)
	}
	if f := find(report, "cluster"); !strings.Contains(f.Detail, "cluster") || f.Remedy == "" {
		t.Errorf("%+v", report)
	}
}

func find(r queue.ProbeReport, what string) queue.Finding {
	for _, f := range r.Findings {
		if f.What == what {
			return f
		}
	}
	return queue.Finding{}
}

// TestJ2Forbidden: a user that may not do something is told what, and what to
// permit, before the first task.
func TestJ2Forbidden(t *testing.T) {
	srv := redistest.Start(t)
	admin := srv.Client()
	prefix := redistest.Prefix(t)
	for _, tt := range []struct {
		name, rules, what, detail, remedy string
		fatal                             bool
	}{
		{"nothing forbidden", "~* +@all", "", "", "", false},
		{"no EVAL", "~* +@all -eval -evalsha", "scripts", "evalsha", "permit EVAL", true},
		{"no INFO", "~* +@all -info", "INFO", "not permitted", "permit INFO", false},
		{"no XCLAIM", "~* +@all -xclaim", "XCLAIM", "", "permit the command", true},
		{"no XREADGROUP", "~* +@all -xreadgroup", "XREADGROUP", "", "permit the command", true},
		{"no HSCAN", "~* +@all -hscan", "HSCAN", "", "permit the command", true},
		{"other keys only", "~other:* +@all", "scripts", "NOPERM", prefix + ":*", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			words := []any{"ACL", "SETUSER", "u", "reset", "on", ">p"}
			for w := range strings.FieldsSeq(tt.rules) {
				words = append(words, w)
			}
			if err := admin.Do(bg, words...).Err(); err != nil {
				t.Fatal(err)
			}
			c := srv.Client(func(o *redis.Options) { o.Username, o.Password = "u", "p" })
			q, err := queue.New(queue.Config{Name: "q", Client: c, Prefix: prefix})
			if err != nil {
				t.Fatal(err)
			}
			defer q.Close()
			report, err := q.Probe(bg)
			if err != nil {
				t.Fatal(err)
			}
			if report.Fatal() != tt.fatal {
				t.Errorf("fatal %v: %+v", report.Fatal(), report)
			}
			if tt.what == "" {
				return
			}
			f := find(report, tt.what)
			if f.Fatal != tt.fatal || !strings.Contains(f.Detail, tt.detail) || f.Detail == "" || !strings.Contains(f.Remedy, tt.remedy) {
				t.Errorf("%+v in %+v", f, report)
			}
		})
	}
	if n := len(admin.Keys(bg, "*").Val()); n != 0 {
		t.Errorf("the probe left %d keys", n)
	}
}

// saysOfItself has INFO answer as another server would.
type saysOfItself string

func (s saysOfItself) DialHook(next redis.DialHook) redis.DialHook { return next }
func (s saysOfItself) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s saysOfItself) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if info, ok := cmd.(*redis.StringCmd); ok && cmd.Name() == "info" {
			info.SetVal(string(s))
			return nil
		}
		return next(ctx, cmd)
	}
}

// TestJ2Versions: a server that is too old is named, with the version needed.
func TestJ2Versions(t *testing.T) {
	for _, tt := range []struct {
		info  string
		fatal bool
		what  string
	}{
		{"redis_version:6.0.16", true, "redis 6.0.16"},
		{"redis_version:6.2.14", true, "redis 6.2.14"},
		{"redis_version:7.0.4", true, "redis 7.0.4"},
		{"redis_version:7.0.5", false, ""},
		{"redis_version:8.10.0", false, ""},
		{"redis_version:10", false, ""},
		{"redis_version:7.2.4\r\nvalkey_version:7.2.5", false, ""},
		{"redis_version:7.2.4\r\nvalkey_version:7.1.9", true, "valkey 7.1.9"},
		{"redis_version:7.0.15\r\nrole:slave", true, "replica"},
		{"something_else:1", false, "does not say"},
		{"", false, "does not say"},
		{"redis_version:not a number", true, "not a number"},
	} {
		c := redistest.Shared(t).Client()
		r := rigOn(t, c)
		c.AddHook(saysOfItself(tt.info + "\r\n"))
		report, err := r.q.Probe(bg)
		if err != nil {
			t.Fatal(err)
		}
		if report.Fatal() != tt.fatal {
			t.Errorf("%q: fatal %v: %+v", tt.info, report.Fatal(), report.Findings)
		}
		if text := fmt.Sprintf("%+v", report.Findings); !strings.Contains(text, tt.what) {
			t.Errorf("%q: %s", tt.info, text)
		}
		if f := find(report, "version"); tt.fatal && f.What != "" && !strings.Contains(f.Remedy, "7.0.5") {
			t.Errorf("%q: %+v", tt.info, f)
		}
	}
}

// TestL1Numbers: what waits, what is pending and the rest are told apart, also
// after someone deleted or trimmed entries, and with tasks pending and none
// waiting, where a length or a lag would mislead an autoscaler.
func TestL1Numbers(t *testing.T) {
	r := newRig(t)
	want := func(step string, waiting, pending, scheduled, dead int64) {
		t.Helper()
		s, err := r.q.Stats(bg)
		if err != nil {
			t.Fatal(err)
		}
		if s.Waiting != waiting || s.Pending != pending || s.Scheduled != scheduled || s.Dead != dead {
			t.Errorf("%s: %+v", step, s.PartitionStats)
		}
		if s.Unfinished() != waiting+pending+scheduled {
			t.Errorf("%s: %d unfinished", step, s.Unfinished())
		}
	}
	want("empty", 0, 0, 0, 0)
	r.add(tasksNamed(numbered("t", 10)...)...)
	r.add(queue.Task{ID: "later", Kind: "k", Delay: time.Hour})
	want("added", 10, 0, 1, 0)
	es := r.read("w", 5)
	want("read, not begun", 5, 5, 1, 0)
	ds := r.begin(es, 5).Deliveries
	r.must(queue.DeadLettered, r.q.DeadLetter(bg, settlements(ds[:1], rejected)))
	want("one dead letter", 5, 4, 1, 1)

	// An entry that nobody was given is deleted from outside: the server's own
	// lag is unknown from then on.
	last := r.c.XRevRange(bg, r.key(0, "stream"), "+", "-").Val()[0]
	r.c.XDel(bg, r.key(0, "stream"), last.ID)
	want("one deleted", 4, 4, 1, 1)
	if g := r.c.XInfoGroups(bg, r.key(0, "stream")).Val()[0]; g.Lag == 4 {
		t.Error("the server knows the lag: the test proves little")
	}
	// All that waits is taken: pending and nothing waiting is work to do.
	more := r.take("w", 4)
	want("none waiting", 0, 8, 1, 1)
	r.must(queue.Completed, r.q.Complete(bg, settlements(append(ds[1:], more...))))
	want("done", 0, 0, 1, 1)

	// Trimmed from outside: what is pending and gone counts until somebody
	// looks, and at no time is there less than what is there.
	r.add(tasksNamed(numbered("u", 6)...)...)
	r.take("w", 3)
	r.c.XTrimMaxLen(bg, r.key(0, "stream"), 2)
	if s, err := r.q.Stats(bg); err != nil || s.Waiting < 0 || s.Unfinished() < 2+1 {
		t.Errorf("trimmed: %+v, %v", s.PartitionStats, err)
	}
	r.advance(time.Minute)
	r.reclaim(0, "w", 10)
	want("looked after", 2, 0, 1, 1)
}

// TestM1LeaseEnds: a lease ends when its time has passed, on the in-process
// server too, whose clocks stand still until both are moved: a test that
// forgets that proves nothing about what comes after a lease.
func TestM1LeaseEnds(t *testing.T) {
	const lease = 10 * time.Second
	m, c := redistest.Mini(t)
	now := time.Now()
	m.SetTime(now)
	pass := func(d time.Duration) {
		now = now.Add(d)
		m.SetTime(now)   // TIME, entry IDs, idle times
		m.FastForward(d) // expiry
	}
	r := rigOn(t, c, func(c *queue.Config) { c.Lease = lease })
	r.add(tasksNamed("a")...)
	first := r.take("w", 1)[0]
	if s, _ := r.q.Stats(bg); s.ServerNow.Sub(now).Abs() > time.Second {
		t.Fatalf("the server's clock is %v, not %v", s.ServerNow, now)
	}
	pass(lease - time.Second)
	if got := r.reclaim(0, "other", 1); len(got.Entries) != 0 {
		t.Fatalf("a live lease was taken over: %+v", got)
	}
	if got := r.q.Renew(bg, []queue.Grant{first.Lease.Grant})[0]; got.Err != nil {
		t.Fatal(got.Err)
	}
	pass(lease + time.Second)
	got := r.reclaim(0, "other", 1)
	if len(got.Entries) != 1 {
		t.Fatalf("the lease does not end: %+v", got)
	}
	if err := r.q.Renew(bg, []queue.Grant{first.Lease.Grant})[0].Err; !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("an ended lease was renewed: %v", err)
	}
	second := r.begin(got.Entries, 1)
	if len(second.Deliveries) != 1 || second.Deliveries[0].Lease.Fence <= first.Lease.Fence || second.Deliveries[0].Lease.Interruptions != 1 {
		t.Errorf("%+v after %+v", second, first.Lease)
	}
	if s := r.q.Complete(bg, settlements([]queue.Delivery{first}))[0]; s.Outcome != queue.Lost {
		t.Errorf("%+v", s)
	}
}

// TestM2Differences: what the in-process server may answer otherwise is a list
// of traces that exist, and that do differ there; all others are replayed on
// both servers by TestProtocol.
func TestM2Differences(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(miniredisDiffers)) {
		_, c := redistest.Mini(t)
		want, got := play(t, "testdata/protocol/"+name+".txt", redistest.Backend{Name: "miniredis", Client: c})
		if want == got {
			t.Errorf("%s does not differ any more: take it from the list", name)
		}
	}
}

// TestF4DeletedIDIsFree: an ID is free as soon as its task was deleted, wherever
// it was, and what a handler that was running says later leaves nothing behind.
func TestF4DeletedIDIsFree(t *testing.T) {
	r := newRig(t)
	for _, place := range []queue.Place{queue.Waiting, queue.Scheduled, queue.Pending, queue.Dead, queue.Done} {
		t.Run(string(place), func(t *testing.T) {
			id := queue.TaskID("T-" + string(place))
			task := queue.Task{ID: id, Kind: "k", Payload: []byte("p")}
			var ds []queue.Delivery
			if place == queue.Scheduled {
				task.Delay = time.Hour
			}
			r.add(task)
			switch place {
			case queue.Pending, queue.Dead, queue.Done:
				ds = r.take("w", 1)
			}
			switch place {
			case queue.Dead:
				r.must(queue.DeadLettered, r.q.DeadLetter(bg, settlements(ds, rejected)))
			case queue.Done:
				r.must(queue.Completed, r.q.Complete(bg, settlements(ds)))
			}
			if got := r.q.Delete(bg, []queue.TaskID{id})[0]; got.Err != nil || got.From != place {
				t.Fatalf("%+v", got)
			}
			for _, d := range ds {
				if _, err := r.q.StepResult(bg, d.Lease, "s", queue.StepDone, []byte("late")); !errors.Is(err, queue.ErrLeaseLost) {
					t.Errorf("a late step: %v", err)
				}
				for name, verb := range settlingVerbs(r.q) {
					if got := verb(bg, settlements([]queue.Delivery{d}, rejected))[0]; got.Outcome != queue.Lost {
						t.Errorf("a late %s: %+v", name, got)
					}
				}
			}
			for what, typ := range documentedKeys(t) {
				if typ == "hash" && r.c.HExists(bg, r.key(0, what), string(id)).Val() {
					t.Errorf("%s has something of it", what)
				}
			}
			if info := r.inspect(string(id)); info.Place != queue.Unknown {
				t.Errorf("%+v", info)
			}
			r.onlyAt(string(id), "")
			r.add(queue.Task{ID: id, Kind: "k"})
			r.onlyAt(string(id), "waiting")
			r.must(queue.Completed, r.q.Complete(bg, settlements(r.take("w", 1))))
		})
	}
}
