package metrics

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
)

// Build registers the gauge that tells which program this is.
func Build(reg prometheus.Registerer, version, revision string) {
	gauge(reg, "build_info").WithLabelValues(version, revision, runtime.Version()).Set(1)
}
