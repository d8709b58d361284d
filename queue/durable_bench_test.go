package queue_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/queue"
)

// BenchmarkEnqueueDurably is what waiting for a replica on the same machine
// costs: time of a call, and microseconds of server CPU for each task.
func BenchmarkEnqueueDurably(b *testing.B) {
	primary := redistest.Start(b, "--repl-diskless-sync-delay", "0")
	host, port, _ := strings.Cut(primary.Addr(), ":")
	redistest.Start(b, "--replicaof", host+" "+port)
	c := primary.Client()
	for c.Wait(bg, 1, 100_000_000).Val() != 1 {
	}
	n := 0
	for _, batch := range []int{1, 100} {
		for _, replicas := range []int{0, 1} {
			b.Run(fmt.Sprintf("batch=%d/replicas=%d", batch, replicas), func(b *testing.B) {
				q, err := queue.New(queue.Config{Name: "q", Client: c, Prefix: fmt.Sprintf("b%d-%d-%d", batch, replicas, n)})
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { q.Close() })
				before := serverCPU(b, c)
				for b.Loop() {
					tasks := make([]queue.Task, batch)
					for i := range tasks {
						n++
						tasks[i] = queue.Task{ID: queue.TaskID(fmt.Sprintf("task-%d", n)), Kind: "k", Payload: make([]byte, 256)}
					}
					for _, r := range q.EnqueueDurably(bg, q.NewToken(), tasks, queue.Durability{Replicas: replicas}) {
						if !r.Added {
							b.Fatal(r.Err)
						}
					}
				}
				b.ReportMetric((serverCPU(b, c)-before)*1e6/float64(b.N*batch), "server-µs/task")
			})
		}
	}
}

// serverCPU is what the server has used so far, in seconds.
func serverCPU(b *testing.B, c *redis.Client) float64 {
	b.Helper()
	used := c.InfoMap(bg, "cpu").Val()["CPU"]
	var user, sys float64
	fmt.Sscan(used["used_cpu_user_main_thread"], &user)
	fmt.Sscan(used["used_cpu_sys_main_thread"], &sys)
	return user + sys
}
