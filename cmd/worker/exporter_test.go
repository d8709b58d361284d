package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/queue"
)

var servedAt = regexp.MustCompile(`"msg":"serving metrics and health checks","addr":"([^"]+)"`)

// get returns the answer of an ops listener.
func get(t *testing.T, addr, path string) (int, string) {
	t.Helper()
	r, err := http.Get("http://" + addr + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(body)
}

// serving runs a verb until the end of the test and returns the address of its
// listener.
func serving(t *testing.T, run func(std, []string) int) string {
	t.Helper()
	in, endIn, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	logs, logged := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- run(std{in: in, out: logged, err: logged}, []string{"-until-eof"})
		logged.Close()
	}()
	lines := bufio.NewScanner(logs)
	drained := make(chan struct{})
	t.Cleanup(func() {
		endIn.Close()
		if got := <-code; got != exitOK {
			t.Errorf("exit code %d", got)
		}
		<-drained
		in.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	for lines.Scan() {
		if m := servedAt.FindStringSubmatch(lines.Text()); m != nil {
			go func() { // or the verb would wait for a reader of its logs
				defer close(drained)
				_, _ = io.Copy(io.Discard, logs)
			}()
			return m[1]
		}
	}
	close(drained)
	t.Fatal("it ended without serving")
	return ""
}

// TestExporterReports: the backlog of a queue that has no worker, what cannot be
// read absent, and nothing made on the server.
func TestExporterReports(t *testing.T) {
	srv, prefix := redistest.Start(t), redistest.Prefix(t)
	t.Setenv("REDIS_URL", srv.URL())
	t.Setenv("REDIS_KEY_PREFIX", prefix)
	t.Setenv("QUEUES", "mail,never")
	t.Setenv("OPS_ADDR", "127.0.0.1:0")
	c := srv.Client()
	q, err := queue.New(queue.Config{Name: "mail", Client: c, Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	for _, r := range q.Enqueue(t.Context(), q.NewToken(), []queue.Task{{ID: "a", Kind: "k"}, {ID: "b", Kind: "k"}}) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	before := c.Keys(t.Context(), "*").Val()
	addr := serving(t, exporterVerb)
	if code, text := get(t, addr, "/readyz?verbose"); code != http.StatusOK || !strings.Contains(text, "queue mail: not read yet") {
		t.Errorf("%d %s", code, text)
	}
	_, text := get(t, addr, "/metrics")
	for _, line := range []string{
		`claimq_waiting_entries{queue="mail"} 2`,
		`claimq_waiting_entries{queue="never"} 0`,
		`claimq_pending_entries{queue="mail"} 0`,
		`claimq_entries_added_total{queue="mail"} 2`,
		`claimq_collector_success{queue="mail"} 1`,
		`claimq_queue_lease_seconds{queue="mail"} 15`,
		`claimq_redis_pool_max_connections `,
		`claimq_redis_command_duration_seconds_count{command="stats"} `,
		`claimq_build_info{goversion="`,
		`go_goroutines `,
	} {
		if !strings.Contains(text, "\n"+line) {
			t.Errorf("%s is not reported", line)
		}
	}
	for _, of := range []string{"claimq_worker_", "claimq_processed_", "claimq_enqueued_"} {
		if strings.Contains(text, of) {
			t.Errorf("an exporter reports %s…", of)
		}
	}
	if after := c.Keys(t.Context(), "*").Val(); len(after) != len(before) {
		t.Errorf("keys before: %v\nafter: %v", before, after)
	}
	for _, code := range []string{"/healthz", "/readyz"} {
		if got, text := get(t, addr, code); got != http.StatusOK {
			t.Errorf("%s: %d %s", code, got, text)
		}
	}
}

// TestExporterWithoutAServer: it says so in its metrics and its readiness, and
// is alive.
func TestExporterWithoutAServer(t *testing.T) {
	t.Setenv("REDIS_URL", "redis://127.0.0.1:1/0")
	t.Setenv("OPS_ADDR", "127.0.0.1:0")
	addr := serving(t, exporterVerb)
	_, text := get(t, addr, "/metrics")
	if !strings.Contains(text, "\n"+`claimq_collector_success{queue="default"} 0`) || strings.Contains(text, "claimq_waiting_entries{") {
		t.Errorf("%s", text)
	}
	if !strings.Contains(text, "\n"+`claimq_redis_command_failures_total{reason="network"} `) {
		t.Error("the failure is not counted")
	}
	if code, text := get(t, addr, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "[-] queue default") {
		t.Errorf("readyz: %d %s", code, text)
	}
	if code, _ := get(t, addr, "/healthz"); code != http.StatusOK {
		t.Errorf("healthz: %d", code)
	}
}
