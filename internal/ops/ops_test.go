package ops_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/claimq/claimq/internal/ops"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func TestProbes(t *testing.T) {
	live := []ops.Check{{Name: "fetch", OK: true, Detail: "moved 1s ago"}, {Name: "renew", OK: true}}
	ready := []ops.Check{{Name: "draining", OK: true}}
	h := ops.Handler(ops.Config{
		Live:  func() []ops.Check { return live },
		Ready: func() []ops.Check { return ready },
	})
	for _, tc := range []struct {
		path string
		code int
		body string
	}{
		{"/healthz", 200, "ok\n"},
		{"/healthz?verbose", 200, "[+] fetch: moved 1s ago\n[+] renew\nok\n"},
		{"/readyz", 200, "ok\n"},
		{"/metrics", 404, "404 page not found\n"},
		{"/debug/pprof/", 404, "404 page not found\n"},
		{"/", 404, "404 page not found\n"},
	} {
		if code, body := get(t, h, tc.path); code != tc.code || body != tc.body {
			t.Errorf("%s: %d %q, want %d %q", tc.path, code, body, tc.code, tc.body)
		}
	}
	live[1].OK, live[1].Detail = false, "has not moved for 1m0s"
	ready[0].OK = false
	if code, body := get(t, h, "/healthz"); code != 503 || !strings.Contains(body, "[-] renew: has not moved for 1m0s") {
		t.Errorf("a loop that stands still: %d %q", code, body)
	}
	if code, body := get(t, h, "/readyz"); code != 503 || body != "[-] draining\n" {
		t.Errorf("draining: %d %q", code, body)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/healthz", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST /healthz: %d", w.Code)
	}
}

// failing is a collector that has nothing to report but its failure.
type failing struct{ desc *prometheus.Desc }

func (f failing) Describe(ch chan<- *prometheus.Desc) { ch <- f.desc }
func (f failing) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.NewInvalidMetric(f.desc, errors.New("no answer"))
}

// TestMetricsOfWhatWorks: a collector that fails is logged and does not blind
// the rest.
func TestMetricsOfWhatWorks(t *testing.T) {
	reg := prometheus.NewRegistry()
	fine := prometheus.NewCounter(prometheus.CounterOpts{Name: "fine_total", Help: "Fine."})
	reg.MustRegister(fine, failing{prometheus.NewDesc("broken", "Broken.", nil, nil)})
	var logs strings.Builder
	h := ops.Handler(ops.Config{Gatherer: reg, Logger: slog.New(slog.NewTextHandler(&logs, nil))})
	if code, body := get(t, h, "/metrics"); code != 200 || !strings.Contains(body, "\nfine_total 0\n") {
		t.Errorf("%d %s", code, body)
	}
	if !strings.Contains(logs.String(), "no answer") {
		t.Errorf("logged: %s", logs.String())
	}
}

func TestListener(t *testing.T) {
	reg := prometheus.NewRegistry()
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "claimq_x_total", Help: "x."})
	reg.MustRegister(c)
	c.Inc()
	s, err := ops.Start("127.0.0.1:0", ops.Config{Gatherer: reg, Pprof: true})
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for path, want := range map[string]string{
		"/metrics":             "claimq_x_total 1",
		"/healthz":             "ok",
		"/debug/pprof/cmdline": os.Args[0],
	} {
		resp, err := client.Get("http://" + s.Addr() + path)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 200 || !strings.Contains(string(b), want) {
			t.Errorf("%s: %d %.200q, want %q", path, resp.StatusCode, b, want)
		}
	}
	client.CloseIdleConnections()
	if _, err := ops.Start(s.Addr(), ops.Config{}); err == nil || !strings.Contains(err.Error(), "ops listener") {
		t.Errorf("second listener on the same address: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A client that connects and says half a line must not hold Close, and so the
// end of the process, for ever.
func TestCloseWithASilentClient(t *testing.T) {
	s, err := ops.Start("127.0.0.1:0", ops.Config{Live: func() []ops.Check { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /healthz HTTP/1.1\r\n")
	start := time.Now()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("Close took %v", took)
	}
	if _, err := bufio.NewReader(conn).ReadString('\n'); err == nil {
		t.Error("the connection is still served")
	}
}
