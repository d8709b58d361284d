package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

// pool reports the connection pool of a Redis client at scrape.
type pool struct {
	stats    func() *redis.PoolStats
	max      int
	readings readings
}

func newPool(c *redis.Client) pool {
	return pool{c.PoolStats, c.Options().PoolSize, newReadings(
		"redis_pool_connections", "redis_pool_max_connections", "redis_pool_hits_total", "redis_pool_misses_total",
		"redis_pool_waits_total", "redis_pool_wait_seconds_total", "redis_pool_timeouts_total",
		"redis_pool_stale_connections_total",
	)}
}

// Describe implements prometheus.Collector.
func (p pool) Describe(ch chan<- *prometheus.Desc) { p.readings.describe(ch) }

// Collect implements prometheus.Collector.
func (p pool) Collect(ch chan<- prometheus.Metric) {
	s := p.stats()
	idle := min(s.IdleConns, s.TotalConns) // they are counted one after the other
	p.readings.send(ch, "redis_pool_connections", float64(idle), "idle")
	p.readings.send(ch, "redis_pool_connections", float64(s.TotalConns-idle), "used")
	p.readings.send(ch, "redis_pool_max_connections", float64(p.max))
	p.readings.send(ch, "redis_pool_hits_total", float64(s.Hits))
	p.readings.send(ch, "redis_pool_misses_total", float64(s.Misses))
	p.readings.send(ch, "redis_pool_waits_total", float64(s.WaitCount))
	p.readings.send(ch, "redis_pool_wait_seconds_total", time.Duration(s.WaitDurationNs).Seconds())
	p.readings.send(ch, "redis_pool_timeouts_total", float64(s.Timeouts))
	p.readings.send(ch, "redis_pool_stale_connections_total", float64(s.StaleConns))
}
