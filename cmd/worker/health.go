package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/internal/ops"
)

// failingCalls is how many calls to the server may fail in a row before the
// worker counts as not ready. One lost connection is no news.
const failingCalls = 3

// liveness says whether the process should be restarted. It knows nothing of
// the server: a fleet must not be restarted because its Redis is down.
func liveness(status func() consumer.Status) func() []ops.Check {
	return func() []ops.Check {
		s := status()
		list := []ops.Check{{Name: "healthy", OK: s.Healthy}}
		if !s.Healthy {
			list[0].Detail = strings.Join(s.Reasons, "; ")
		}
		for _, l := range s.Loops {
			// Whether a loop has stood still for too long is the worker's
			// judgement, above; this is for the person who reads it.
			c := ops.Check{Name: "loop " + l.Name, OK: true, Detail: "not started"}
			if !l.Beat.IsZero() {
				c.Detail = fmt.Sprintf("moved %v ago", time.Since(l.Beat).Round(time.Millisecond))
			}
			list = append(list, c)
		}
		return list
	}
}

// readiness says whether the worker takes tasks: it is not draining and the
// server answered lately.
func readiness(status func() consumer.Status) func() []ops.Check {
	return func() []ops.Check {
		s := status()
		list := []ops.Check{
			{Name: "state", OK: s.State == consumer.StateRunning, Detail: string(s.State)},
			{Name: "ready", OK: s.Ready},
		}
		if !s.Ready {
			list[1].Detail = strings.Join(s.Reasons, "; ")
		}
		for _, l := range s.Loops {
			c := ops.Check{Name: "server, as " + l.Name + " sees it", OK: l.Failing < failingCalls}
			if l.Failing > 0 {
				c.Detail = fmt.Sprintf("%d calls failed, the last %v ago: %s", l.Failing, time.Since(l.ErrorAt).Round(time.Second), l.LastError)
			}
			list = append(list, c)
		}
		return list
	}
}
