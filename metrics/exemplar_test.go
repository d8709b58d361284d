package metrics_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/internal/ops"
	"github.com/claimq/claimq/metrics"
	"github.com/claimq/claimq/queue"
)

const trace = "0af7651916cd43dd8448eb211c80319c"

// openMetrics scrapes as Prometheus does that stores exemplars.
func openMetrics(t *testing.T, reg prometheus.Gatherer) string {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	w := httptest.NewRecorder()
	ops.Handler(ops.Config{Gatherer: reg}).ServeHTTP(w, r)
	body, err := io.ReadAll(w.Result().Body)
	if err != nil || w.Code != http.StatusOK {
		t.Fatal(w.Code, err)
	}
	return string(body)
}

// TestExemplars: a value of a task that was sent in a sampled trace names the
// trace; of any other text in its header nothing is shown.
func TestExemplars(t *testing.T) {
	events := func(traceparent string) string {
		reg := prometheus.NewPedanticRegistry()
		o := metrics.New(reg, offline(t, "a")...)
		o.Started(consumer.Started{Queue: "a", Kind: "k", Wait: time.Second, TraceParent: traceparent})
		o.Ended(consumer.Ended{
			Queue: "a", Kind: "k", Outcome: queue.Completed, Ran: true, Attempt: 1,
			Duration: time.Second, SinceEnqueue: time.Second, TraceParent: traceparent,
		})
		return openMetrics(t, reg)
	}
	for _, sampled := range []string{
		"00-" + trace + "-b7ad6b7169203331-01",
		"00-" + trace + "-b7ad6b7169203331-ff",
		"cc-" + trace + "-b7ad6b7169203331-03-of-a-later-version",
	} {
		text := events(sampled)
		for _, name := range []string{"claimq_wait_duration_seconds", "claimq_process_duration_seconds", "claimq_end_to_end_duration_seconds"} {
			found := false
			for line := range strings.Lines(text) {
				found = found || strings.HasPrefix(line, name+"_bucket") && strings.Contains(line, `# {trace_id="`+trace+`"} 1.0`)
			}
			if !found {
				t.Errorf("%s: %s has no exemplar", sampled, name)
			}
		}
	}
	for _, other := range []string{
		"",
		"00-" + trace + "-b7ad6b7169203331-00", // not sampled
		"00-" + trace + "-b7ad6b7169203331-02",
		"00-" + strings.Repeat("0", 32) + "-b7ad6b7169203331-01",
		"00-" + trace + "-0000000000000000-01",
		"ff-" + trace + "-b7ad6b7169203331-01",
		"00-" + trace + "-b7ad6b7169203331-01-more",
		"01-" + trace + "-b7ad6b7169203331-01more",
		"00-" + strings.ToUpper(trace) + "-b7ad6b7169203331-01",
		"00-" + trace[:31] + "\"-b7ad6b7169203331-01",
		"00-" + trace + "-b7ad6b7169203331-0x",
		"00_" + trace + "-b7ad6b7169203331-01",
		strings.Repeat("-", 55), strings.Repeat("x", 4000),
	} {
		if text := events(other); strings.Contains(text, "trace_id") {
			t.Errorf("%q has an exemplar", other)
		}
	}
}
