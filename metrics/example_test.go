package metrics_test

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/dedupe"
	"github.com/claimq/claimq/metrics"
	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/queue"
)

// A program that runs tasks and enqueues some. Its registry is served by
// promhttp.HandlerFor, with EnableOpenMetrics for the exemplars.
func Example() {
	work := func(ctx context.Context, rdb *redis.Client, reg *prometheus.Registry, mux *consumer.Mux) error {
		metrics.Client(reg, rdb) // before the client is used
		metrics.Build(reg, "v1.2.3", "")
		q, err := queue.New(queue.Config{Name: "invoices", Client: rdb})
		if err != nil {
			return err
		}
		defer q.Close()
		observer := metrics.New(reg, q)
		observer.Kinds("invoice.send", "invoice.remind")
		_ = observer.Ledger(dedupe.NewRedisLedger(q)) // the ledger to give to dedupe.Step
		_, err = producer.New(q, producer.Config{Observer: metrics.NewProducer(reg, q)})
		if err != nil {
			return err
		}
		w, err := consumer.New(q, consumer.Config{Handler: mux, Observer: observer})
		if err != nil {
			return err
		}
		observer.Watch(w.Status)
		return w.Run(ctx)
	}
	_ = work
}
