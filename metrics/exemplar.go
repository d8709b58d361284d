package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// observe adds a value to a histogram, with the trace as its exemplar when the
// task was sent in one that is sampled.
func observe(h prometheus.Observer, v float64, traceparent string) {
	if id := sampledTrace(traceparent); id != "" {
		if e, ok := h.(prometheus.ExemplarObserver); ok {
			e.ObserveWithExemplar(v, prometheus.Labels{"trace_id": id})
			return
		}
	}
	h.Observe(v)
}

// sampledTrace returns the trace ID of a traceparent (W3C Trace Context) whose
// sampled flag is set: version, trace ID, parent ID and flags in hexadecimal.
// It is empty for any other text; the header comes from whoever enqueues.
func sampledTrace(traceparent string) string {
	const (
		length = 55 // of version 00, and of the part of later ones that is known
		sample = 1
	)
	if len(traceparent) < length || traceparent[2] != '-' || traceparent[35] != '-' || traceparent[52] != '-' {
		return ""
	}
	version, trace, parent, flags := traceparent[:2], traceparent[3:35], traceparent[36:52], traceparent[53:55]
	for _, part := range [...]string{version, trace, parent, flags} {
		if strings.Trim(part, "0123456789abcdef") != "" {
			return ""
		}
	}
	switch {
	case version == "ff", version == "00" && len(traceparent) > length,
		len(traceparent) > length && traceparent[length] != '-':
		return ""
	case strings.Trim(trace, "0") == "", strings.Trim(parent, "0") == "":
		return ""
	case strings.IndexByte("0123456789abcdef", flags[1])&sample == 0:
		return ""
	}
	return strings.Clone(trace)
}
