package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/internal/ops"
)

// TestL2Probes: what the probes of this program make of the state of its
// worker. /healthz knows nothing of the server, /readyz does.
func TestL2Probes(t *testing.T) {
	moving := []consumer.LoopStatus{{Name: "fetch", Beat: time.Now()}, {Name: "settle"}}
	for _, tt := range []struct {
		name           string
		status         consumer.Status
		healthy, ready int
		says           string
	}{
		{"idle", consumer.Status{State: consumer.StateRunning, Healthy: true, Ready: true, Loops: moving}, 200, 200, ""},
		{"starting", consumer.Status{State: consumer.StateStarting, Healthy: true, Reasons: []string{"worker is starting"}}, 200, 503, "starting"},
		{"draining", consumer.Status{State: consumer.StateDraining, Healthy: true, Reasons: []string{"worker is draining"}}, 200, 503, "draining"},
		{"a loop stands still", consumer.Status{State: consumer.StateRunning, Reasons: []string{"loop renew has not moved for 30s"}, Loops: moving}, 503, 503, "loop renew has not moved"},
		{"the server is away", consumer.Status{State: consumer.StateRunning, Healthy: true, Reasons: []string{"calls fail"},
			Loops: []consumer.LoopStatus{{Name: "fetch", Failing: 5, LastError: "NOAUTH", ErrorAt: time.Now()}}}, 200, 503, "NOAUTH"},
		{"one call failed", consumer.Status{State: consumer.StateRunning, Healthy: true, Ready: true,
			Loops: []consumer.LoopStatus{{Name: "fetch", Failing: 1, LastError: "EOF", ErrorAt: time.Now()}}}, 200, 200, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status := func() consumer.Status { return tt.status }
			h := ops.Handler(ops.Config{Live: liveness(status), Ready: readiness(status)})
			for path, want := range map[string]int{"/healthz": tt.healthy, "/readyz": tt.ready} {
				rec := httptest.NewRecorder()
				h.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
				if rec.Code != want {
					t.Errorf("%s answers %d, want %d: %s", path, rec.Code, want, rec.Body)
				}
				if want != http.StatusOK && !strings.Contains(rec.Body.String(), tt.says) {
					t.Errorf("%s does not say %q: %s", path, tt.says, rec.Body)
				}
			}
		})
	}
}
