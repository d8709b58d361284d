package demo

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/claimq/claimq/queue"
)

func post(t *testing.T, c *http.Client, url, task, fence, key string) *http.Response {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]string{"Claimq-Task-Id": task, "Claimq-Fence": fence, "Claimq-Attempt": "1", "Idempotency-Key": key} {
		if v != "" {
			req.Header.Set(name, v)
		}
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return resp
}

func TestReceiverCountsEverythingAndActsOnce(t *testing.T) {
	r, err := startReceiver(1, 0, time.Millisecond, func(request) <-chan struct{} { return nil })
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Transport: &http.Transport{}}
	defer r.close()
	defer c.CloseIdleConnections()

	first := post(t, c, r.url("worker-1"), "a", "7", `"k"`).Header.Get("X-External-Id")
	again := post(t, c, r.url("worker-2"), "a", "8", `"k"`).Header.Get("X-External-Id")
	other := post(t, c, r.url("worker-2"), "b", "9", `"l"`).Header.Get("X-External-Id")
	if first == "" || first != again || first == other {
		t.Errorf("external IDs %q, %q, %q", first, again, other)
	}
	if code := post(t, c, r.url("worker-2"), "", "9", `"l"`).StatusCode; code != http.StatusBadRequest {
		t.Errorf("no task: %d", code)
	}
	if requests, effects := r.counts(); requests != 3 || effects != 2 {
		t.Errorf("%d requests, %d effects", requests, effects)
	}
	byTask, effects, odd := r.snapshot()
	if len(byTask["a"]) != 2 || byTask["a"][1].worker != "worker-2" || byTask["a"][1].fence != 8 || effects["a"] != 1 || len(odd) != 1 {
		t.Errorf("%+v, %v, %v", byTask["a"], effects, odd)
	}
	if sent := r.sentBy("worker-2"); len(sent) != 2 {
		t.Errorf("worker-2 sent %+v", sent)
	}
}

func TestClosingTheReceiverEndsHeldRequests(t *testing.T) {
	held := make(chan struct{})
	r, err := startReceiver(1, 0, 1, func(request) <-chan struct{} {
		close(held)
		return make(chan struct{}) // never closed
	})
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Transport: &http.Transport{}}
	defer c.CloseIdleConnections()
	done := make(chan struct{})
	go func() {
		defer close(done)
		post(t, c, r.url("worker-1"), "a", "7", `"k"`)
	}()
	<-held
	r.close()
	<-done
}

func TestPlanStrikesTwiceAndNeverTheDead(t *testing.T) {
	for n := range 40 {
		p := newPlan(uint64(n), n+1)
		seq := 0
		next := func(worker string) bool {
			seq++
			return p.arrived(request{seq: seq, worker: worker}) != nil
		}
		for !next("w1") {
			if seq > n+1 {
				t.Fatalf("%d tasks: no strike after %d requests", n+1, seq)
			}
		}
		if next("w2") {
			t.Fatalf("%d tasks: a second strike before the first is done", n+1)
		}
		p.rearm("w1")
		for range n + 2 {
			if next("w1") {
				t.Fatalf("%d tasks: the dead are struck", n+1)
			}
		}
		<-p.caught
		if !next("w2") {
			t.Fatalf("%d tasks: no second strike", n+1)
		}
		p.rearm("w2")
		if next("w3") {
			t.Fatalf("%d tasks: a third strike", n+1)
		}
	}
}

func TestTasks(t *testing.T) {
	a, err := Generate(100)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := Generate(100)
	seen := map[queue.TaskID]bool{}
	for i := range a {
		if a[i].ID != b[i].ID || string(a[i].Payload) != string(b[i].Payload) || seen[a[i].ID] {
			t.Fatalf("task %d: %s, then %s", i, a[i].ID, b[i].ID)
		}
		seen[a[i].ID] = true
	}
	early, late := twice(a)
	if len(early) != 5 || len(late) != 5 {
		t.Errorf("%d and %d are enqueued twice", len(early), len(late))
	}
	if early, late := twice(a[:1]); len(early)+len(late) != 1 {
		t.Error("of one task, none is enqueued twice")
	}
	for _, n := range []int{0, -1, MaxTasks + 1} {
		if _, err := Generate(n); err == nil {
			t.Errorf("%d tasks are made", n)
		}
	}
}

func TestReadTasks(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	tasks, again, err := ReadTasks(strings.NewReader(`
{"id":"a","kind":"k","payload":{"b": 1,"a":2},"due":"ignored"}
{"id":"a","kind":"k"}
{"id":"b","kind":"k","payload":"` + long + `"}`))
	if err != nil || len(tasks) != 2 || again != 1 {
		t.Fatalf("%d tasks, %d again, %v", len(tasks), again, err)
	}
	if string(tasks[0].Payload) != `{"b": 1,"a":2}` || len(tasks[1].Payload) != len(long)+2 {
		t.Errorf("payloads of %d and %d bytes", len(tasks[0].Payload), len(tasks[1].Payload))
	}
	for in, want := range map[string]string{
		"":                               "no task",
		"{}":                             "line 1: id and kind",
		`{"id":"a","kind":"k"}` + "\n[]": "line 2",
	} {
		if _, _, err := ReadTasks(strings.NewReader(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", in, err, want)
		}
	}
}

func TestCountersAreReadFromMetrics(t *testing.T) {
	text := "# HELP x y\nclaimq_reclaimed_entries_total{queue=\"a\"} 3\nclaimq_reclaimed_entries_total{queue=\"b\"} 1e+01\n" +
		"claimq_refused_settles_total{queue=\"a\"} 2\nclaimq_leases_lost_total{queue=\"a\"} 1\n" +
		"claimq_duplicates_suppressed_total{queue=\"a\"} 5\nother{a=\"b\"} nonsense\nplain 1\n"
	got, ok := parseCounters(strings.NewReader(text))
	if want := (counters{reclaimed: 13, refused: 2, leasesLost: 1, duplicates: 5}); !ok || got != want {
		t.Errorf("%+v, %v", got, ok)
	}
	if _, ok := parseCounters(strings.NewReader("")); ok {
		t.Error("nothing is taken for counters")
	}
}

func TestLogTail(t *testing.T) {
	l := &logTail{addr: make(chan string, 1)}
	fmt.Fprint(l, `{"msg":"serving","ad`)
	fmt.Fprint(l, `dr":"127.0.0.1:1"}`+"\nplain\n")
	for i := range 100 {
		fmt.Fprintf(l, "line %d\n", i)
	}
	if a := <-l.addr; a != "127.0.0.1:1" {
		t.Errorf("address %q", a)
	}
	if s := l.String(); strings.Contains(s, "line 79\n") || !strings.HasSuffix(s, "line 99") {
		t.Errorf("tail %q", s)
	}
}

func TestViewRedrawsItsBlockOnly(t *testing.T) {
	var b strings.Builder
	v := &view{w: &b, terminal: true, began: time.Now()}
	v.show(figures{tasks: 10, done: 5, workers: []string{"worker-1 running"}})
	v.event("something happened")
	v.show(figures{tasks: 10, done: 10})
	v.finish()
	if n := strings.Count(b.String(), "\x1b[3A\r\x1b[J"); n != 3 {
		t.Errorf("the block was erased %d times in %q", n, b.String())
	}
	if !strings.Contains(b.String(), "####....") || strings.Count(b.String(), "\x1b[?7l") != strings.Count(b.String(), "\x1b[?7h")-3 {
		t.Errorf("%q", b.String())
	}
	b.Reset()
	v = &view{w: &b, began: time.Now()}
	v.show(figures{tasks: 10, done: 5})
	if strings.Contains(b.String(), "\x1b") || !strings.Contains(b.String(), "done 5") {
		t.Errorf("plain: %q", b.String())
	}
}
