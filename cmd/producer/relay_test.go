package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/internal/faultredis"
	"github.com/claimq/claimq/internal/pgtest"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/producer/outbox"
	"github.com/claimq/claimq/queue"
)

// TestRelayScripts runs testdata/relay/*.txt, each with a database and keys of
// its own.
func TestRelayScripts(t *testing.T) {
	server, database := redistest.Shared(t), pgtest.Shared(t)
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "relay"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("REDIS_URL", server.URL())
			env.Setenv("REDIS_KEY_PREFIX", redistest.Prefix(t))
			env.Setenv("POSTGRES_URL", database.DSN(t))
			env.Setenv("GORACE", "atexit_sleep_ms=0") // else a second for each run
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"code": code, "waiting": waiting, "sql": execSQL, "sent": sent, "forget": forget,
		},
	})
}

// sql STATEMENT: runs it in the database.
func execSQL(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: sql STATEMENT")
	}
	conn, err := pgx.Connect(context.Background(), ts.Getenv("POSTGRES_URL"))
	ts.Check(err)
	defer func() { _ = conn.Close(context.Background()) }()
	_, err = conn.Exec(context.Background(), args[0])
	ts.Check(err)
}

// sent QUEUE: waits until the outbox holds nothing for the queue.
func sent(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: sent QUEUE")
	}
	conn, err := pgx.Connect(context.Background(), ts.Getenv("POSTGRES_URL"))
	ts.Check(err)
	defer func() { _ = conn.Close(context.Background()) }()
	until(ts, func() bool {
		var n int
		ts.Check(conn.QueryRow(context.Background(), "select count(*) from claimq.outbox where queue = $1", args[0]).Scan(&n))
		return n == 0
	})
}

// forget QUEUE ID: deletes a task, as if the server had lost it.
func forget(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: forget QUEUE ID")
	}
	ts.Check(open(ts, args[0]).Delete(context.Background(), []queue.TaskID{queue.TaskID(args[1])})[0].Err)
}

// process is one relay, as its users run it.
type process struct {
	cmd *exec.Cmd
	log text
}

// text is what a process has written up to now.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (t *text) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(b)
}

func (t *text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

func startRelay(t *testing.T, env ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command("producer", "relay")}
	p.cmd.Env = append([]string{"GORACE=atexit_sleep_ms=0", "LOG_FORMAT=json", "LOG_LEVEL=debug", "OPS_ADDR=off"}, env...)
	p.cmd.Stderr = &p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// kill ends it as a crash would.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // an error: it has ended already
	_ = p.cmd.Wait()
}

// terminate asks it to stop and returns its exit code.
func (p *process) terminate(t *testing.T) int {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	_ = p.cmd.Wait() // how it ended is in its state
	return p.cmd.ProcessState.ExitCode()
}

const (
	relays  = 3
	kills   = 12
	writers = 3
)

// TestRelaysAreKilled at random moments, several at work: each task of a
// committed transaction comes to the queue once, and none of one that was
// rolled back. (I5)
func TestRelaysAreKilled(t *testing.T) {
	server, database := redistest.Shared(t), pgtest.Shared(t)
	dsn := database.DSN(t)
	pool := pgtest.Connect(t, dsn)
	if _, err := outbox.Migrate(t.Context(), pool, ""); err != nil {
		t.Fatal(err)
	}
	client := server.Client()
	q, err := queue.New(queue.Config{Name: "default", Prefix: redistest.Prefix(t), Client: client})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	// A batch takes long enough to be killed in the middle of it.
	slow := faultredis.NewProxy(t, database.Addr())
	slow.Delay(4 * time.Millisecond)
	env := []string{
		"REDIS_URL=" + server.URL(), "REDIS_KEY_PREFIX=" + q.Config().Prefix, "RELAY_BATCH=10", "RELAY_POLL=50ms",
		"POSTGRES_URL=" + strings.Replace(dsn, database.Addr(), slow.Addr(), 1),
	}
	var fleet []*process
	for range relays {
		fleet = append(fleet, startRelay(t, env...))
	}
	t.Cleanup(func() {
		for _, p := range fleet {
			p.kill()
		}
	})
	done := work(t, q)

	writing, stop := context.WithCancel(t.Context())
	var committed sync.Map
	var wg sync.WaitGroup
	for n := range writers {
		wg.Go(func() { write(t, writing, pool, n, &committed) })
	}
	var logs strings.Builder
	for n := range kills {
		alarm := time.NewTimer(time.Duration(100+rand.IntN(300)) * time.Millisecond)
		<-alarm.C
		p := n % relays
		fleet[p].kill()
		logs.WriteString(fleet[p].log.String())
		fleet[p] = startRelay(t, env...)
	}
	stop()
	wg.Wait()
	want := 0
	committed.Range(func(any, any) bool { want++; return true })
	runs := done(want)
	for id, n := range runs {
		if _, ok := committed.Load(id); !ok || n != 1 {
			t.Errorf("%s ran %d times; committed: %v", id, n, ok)
		}
	}
	if len(runs) != want {
		t.Errorf("%d tasks ran, %d were committed", len(runs), want)
	}
	stats, err := q.Stats(t.Context())
	if err != nil || stats.Added != int64(want) || stats.Unfinished() != 0 || stats.Dead != 0 {
		t.Errorf("%+v, %v; want %d added", stats.PartitionStats, err, want)
	}
	var left, sent int
	err = pool.QueryRow(t.Context(), "select (select count(*) from claimq.outbox), (select count(*) from claimq.outbox_sent)").Scan(&left, &sent)
	if err != nil || left != 0 || sent != want {
		t.Errorf("%d rows left, %d sent, %v", left, sent, err)
	}
	for _, p := range fleet {
		if code := p.terminate(t); code != exitDone {
			t.Errorf("exit code %d\n%s", code, p.log.String())
		}
		logs.WriteString(p.log.String())
	}
	again := 0
	for _, m := range regexp.MustCompile(`"duplicate":(\d+),"refused":0,"left"`).FindAllStringSubmatch(logs.String(), -1) {
		n, _ := strconv.Atoi(m[1])
		again += n
	}
	t.Logf("%d tasks, %d kills; %d were sent again and known", want, kills, again)
}

// write adds tasks in transactions until ctx ends. Every fourth is rolled back.
func write(t *testing.T, ctx context.Context, pool *pgxpool.Pool, writer int, committed *sync.Map) {
	box, err := outbox.New(outbox.Config{Queue: "default"})
	if err != nil {
		t.Error(err)
		return
	}
	live := context.WithoutCancel(ctx)            // a transaction that was begun is ended
	pace := time.NewTicker(10 * time.Millisecond) // that of relays which are killed all the time
	defer pace.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		<-pace.C
		tx, err := pool.Begin(live)
		if err != nil {
			t.Error(err)
			return
		}
		var tasks []queue.Task
		for i := range 1 + n%5 {
			tasks = append(tasks, queue.Task{ID: queue.TaskID(fmt.Sprintf("w%d-%d-%d", writer, n, i)), Kind: "k"})
		}
		end := tx.Commit
		if n%4 == 3 {
			end = tx.Rollback
		}
		if err := box.Add(live, tx, tasks...); err != nil {
			t.Error(err)
		}
		if n%4 != 3 {
			for _, task := range tasks {
				committed.Store(task.ID, true)
			}
		}
		if err := end(live); err != nil {
			t.Error(err)
		}
	}
}

// work runs the tasks of the queue and counts the runs of each. The function
// that it returns waits until so many are done and nothing is left, and then
// gives the counts.
func work(t *testing.T, q *queue.Queue) func(n int) map[queue.TaskID]int {
	t.Helper()
	var mu sync.Mutex
	runs := map[queue.TaskID]int{}
	w, err := consumer.New(q, consumer.Config{Handler: consumer.HandlerFunc(func(_ context.Context, d consumer.Delivery) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		runs[d.Task.ID]++
		return nil, nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	return func(n int) map[queue.TaskID]int {
		limit := time.NewTimer(3 * patience)
		defer limit.Stop()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for enough := false; !enough; {
			select {
			case <-tick.C:
			case <-limit.C:
				t.Errorf("not within %v", 3*patience)
				enough = true
			}
			stats, err := q.Stats(t.Context())
			mu.Lock()
			enough = enough || err == nil && len(runs) >= n && stats.Unfinished() == 0
			mu.Unlock()
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		return runs
	}
}

// TestRelayMetricsAndProbes: how the outbox stands, what was relayed, and
// readiness that follows the servers.
func TestRelayMetricsAndProbes(t *testing.T) {
	server, database := redistest.Start(t), pgtest.Shared(t)
	dsn := database.DSN(t)
	pool := pgtest.Connect(t, dsn)
	if _, err := outbox.Migrate(t.Context(), pool, ""); err != nil {
		t.Fatal(err)
	}
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec("insert into claimq.outbox (queue, task_id, kind, created_at) values ('elsewhere', 'a', 'k', now() - interval '1 hour')")
	exec("insert into claimq.outbox (queue, task_id, kind) values ('default', 'a', 'k')")
	p := startRelay(t, "REDIS_URL="+server.URL(), "POSTGRES_URL="+dsn, "OPS_ADDR=127.0.0.1:0", "PRODUCER_MAX_RETRIES=0", "RELAY_POLL=20ms")
	defer p.kill()
	var addr string
	eventually(t, func() bool {
		m := regexp.MustCompile(`"addr":"([0-9.:]+)"`).FindStringSubmatch(p.log.String())
		if m != nil {
			addr = m[1]
		}
		return m != nil
	})
	get := func(path string) (int, string) {
		res, err := http.Get("http://" + addr + path)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(b)
	}
	eventually(t, func() bool {
		_, text := get("/metrics")
		return strings.Contains(text, `claimq_outbox_relayed_total{outcome="added",queue="default"} 1`)
	})
	_, text := get("/metrics")
	for _, want := range []string{
		`claimq_outbox_lag_seconds\{queue="default"\} 0`, `claimq_outbox_lag_seconds\{queue="elsewhere"\} 36\d\d`,
		`claimq_outbox_rows\{queue="elsewhere",state="unsent"\} 1`, `claimq_outbox_collector_success 1`,
		`claimq_enqueued_total\{kind="k",queue="default"\} 1`, `claimq_outbox_failures_total\{queue="default"\} 0`,
	} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if code, _ := get("/readyz"); code != http.StatusOK {
		t.Errorf("ready: %d", code)
	}
	server.Kill()
	exec("insert into claimq.outbox (queue, task_id, kind) values ('default', 'b', 'k')")
	eventually(t, func() bool { code, _ := get("/readyz"); return code == http.StatusServiceUnavailable })
	if code, text := get("/healthz"); code != http.StatusOK {
		t.Errorf("alive: %d %s", code, text)
	}
	server.Restart()
	eventually(t, func() bool { code, _ := get("/readyz"); return code == http.StatusOK })
	if code := p.terminate(t); code != exitDone {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(p.log.String(), `"msg":"relaying again"`) {
		t.Errorf("%s", p.log.String())
	}
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	limit := time.NewTimer(3 * patience)
	defer limit.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("not within %v", 3*patience)
		}
	}
}

// TestRelayStopsAtOnce when it is told twice, although the database does not
// answer: what it had in hand stays in the outbox.
func TestRelayStopsAtOnce(t *testing.T) {
	server, database := redistest.Shared(t), pgtest.Shared(t)
	dsn := database.DSN(t)
	pool := pgtest.Connect(t, dsn)
	if _, err := outbox.Migrate(t.Context(), pool, ""); err != nil {
		t.Fatal(err)
	}
	silent := faultredis.NewProxy(t, database.Addr())
	p := startRelay(t, "REDIS_URL="+server.URL(), "REDIS_KEY_PREFIX="+redistest.Prefix(t), "RELAY_POLL=10ms", "RELAY_TIMEOUT=1h",
		"POSTGRES_URL="+strings.Replace(dsn, database.Addr(), silent.Addr(), 1))
	defer p.kill()
	if _, err := pool.Exec(t.Context(), "insert into claimq.outbox (queue, task_id, kind) values ('default', 'a', 'k')"); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return strings.Contains(p.log.String(), `"msg":"relayed"`) })
	silent.BlackholeReplies()
	for _, said := range []string{"stopping after the batch in progress", "stopped at once"} {
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		eventually(t, func() bool { return strings.Contains(p.log.String(), said) })
	}
	_ = p.cmd.Wait() // how it ended is in its state
	if code := p.cmd.ProcessState.ExitCode(); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
}
