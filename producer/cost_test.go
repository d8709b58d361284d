package producer_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/queue"
)

// costRig is a producer for measuring, and tasks for it that never repeat.
type costRig struct {
	tb     testing.TB
	client *redis.Client
	p      *producer.Producer
	next   atomic.Int64
	sends  counter
}

func newCostRig(tb testing.TB) *costRig {
	tb.Helper()
	r := &costRig{tb: tb, client: redistest.Shared(tb).Client()}
	q, err := queue.New(queue.Config{Name: "q", Client: r.client, Prefix: redistest.Prefix(tb)})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = q.Close() })
	if r.p, err = producer.New(q, producer.Config{}); err != nil {
		tb.Fatal(err)
	}
	if err := q.Ensure(context.Background()); err != nil {
		tb.Fatal(err)
	}
	r.enqueue()
	return r
}

var payload256 = make([]byte, 256)

func (r *costRig) task() queue.Task {
	return queue.Task{ID: queue.TaskID("01890a5d-ac96-774b-bcce-" + strconv.FormatInt(1e11+r.next.Add(1), 10)), Kind: "webhook.push", Payload: payload256}
}

func (r *costRig) tasks(n int) []queue.Task {
	ts := make([]queue.Task, n)
	for i := range ts {
		ts[i] = r.task()
	}
	return ts
}

func (r *costRig) enqueue() {
	if got, err := r.p.Enqueue(context.Background(), r.task()); !got.Added || err != nil {
		r.tb.Errorf("%+v, %v", got, err)
	}
}

// xadd adds what the entry of a task holds, with a plain command.
func (r *costRig) xadd() {
	t := r.task()
	err := r.client.XAdd(context.Background(), &redis.XAddArgs{Stream: "xadd", Values: []any{"id", string(t.ID), "kind", t.Kind, "payload", t.Payload}}).Err()
	if err != nil {
		r.tb.Error(err)
	}
}

func (r *costRig) many(ts []queue.Task) {
	if got, err := r.p.EnqueueMany(context.Background(), ts); len(got) != len(ts) || err != nil {
		r.tb.Errorf("%+v, %v", got, err)
	}
}

// ofTask is how many allocations a task of the rig makes by itself.
const ofTask = 2

// Allocations of a lone call, and for each task of a batch of 100 and of 64
// callers. The bounds are somewhat above what is needed, so that one more does
// not pass. Of a lone call 8 are the client's.
func TestAllocations(t *testing.T) {
	r := newCostRig(t)
	lone := testing.AllocsPerRun(500, r.enqueue) - ofTask
	ts := make(chan []queue.Task, 100)
	for range cap(ts) {
		ts <- r.tasks(100)
	}
	many := testing.AllocsPerRun(50, func() { r.many(<-ts) }) / 100
	const callers, each = 64, 20
	callersRun := testing.AllocsPerRun(10, func() {
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for range each {
					r.enqueue()
				}
			})
		}
		wg.Wait()
	})/(callers*each) - ofTask
	limits := []float64{14.5, 0.6, 2.5} // the last depends on how the calls gather
	if raceDetector {                   // pools forget things on purpose
		limits[0], limits[2] = limits[0]+1, 20
	}
	for i, got := range []float64{lone, many, callersRun} {
		name := [...]string{"lone call", "task of a batch", "task of many callers"}[i]
		t.Logf("%s: %.2f allocations", name, got)
		if got > limits[i] {
			t.Errorf("%s: %.2f allocations, want at most %.1f", name, got, limits[i])
		}
	}
}

// spent is the processor time of this process and of the server.
func (r *costRig) spent() (client, server time.Duration) {
	var ru syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &ru)
	used := r.client.InfoMap(context.Background(), "cpu").Val()["CPU"]
	var seconds float64
	for _, name := range []string{"used_cpu_user_main_thread", "used_cpu_sys_main_thread"} {
		s, _ := strconv.ParseFloat(used[name], 64)
		seconds += s
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano()), time.Duration(seconds * 1e9)
}

// slowScript is xadd after a loop that keeps the server busy for about as long
// as a script of the queue does.
const slowScript = `local x = 0
for i = 1, 2500 do x = x + i end
return redis.call('XADD', KEYS[1], '*', 'id', ARGV[1], 'kind', ARGV[2], 'payload', ARGV[3])`

func (r *costRig) script(sha string) {
	t := r.task()
	if err := r.client.EvalSha(context.Background(), sha, []string{"xadd"}, string(t.ID), t.Kind, t.Payload).Err(); err != nil {
		r.tb.Error(err)
	}
}

// BenchmarkLoneCaller is one goroutine that adds one task after the other, and
// beside it one that adds the same bytes with a bare XADD, and one with a script
// that is merely slow: what a client spends while it waits longer. Each takes
// turns with another, a few hundred calls long, so that all see the same
// machine, and only its own are timed.
func BenchmarkLoneCaller(b *testing.B) {
	const turn = 200
	for own, name := range []string{"enqueue", "xadd", "script"} {
		b.Run(name, func(b *testing.B) {
			r := newCostRig(b)
			sha := r.client.ScriptLoad(context.Background(), slowScript).Val()
			works := []func(){r.enqueue, r.xadd, func() { r.script(sha) }}
			var client, server time.Duration
			b.ReportAllocs()
			b.StopTimer()
			for left := b.N; left > 0; left -= turn {
				n := min(left, turn)
				for range n {
					works[(own+1)%len(works)]()
				}
				c, s := r.spent()
				b.StartTimer()
				for range n {
					works[own]()
				}
				b.StopTimer()
				c2, s2 := r.spent()
				client, server = client+c2-c, server+s2-s
			}
			b.ReportMetric(float64(client.Nanoseconds())/1e3/float64(b.N), "client-µs/op")
			b.ReportMetric(float64(server.Nanoseconds())/1e3/float64(b.N), "server-µs/op")
		})
	}
}

// BenchmarkCallers is many goroutines that add one task after the other.
func BenchmarkCallers(b *testing.B) {
	for _, callers := range []int{2, 8, 64, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			r := newCostRig(b)
			r.client.AddHook(&r.sends)
			measure(b, r, func() {
				var left atomic.Int64
				left.Store(int64(b.N))
				var wg sync.WaitGroup
				for range callers {
					wg.Go(func() {
						for left.Add(-1) >= 0 {
							r.enqueue()
						}
					})
				}
				wg.Wait()
			}, b.N)
			b.ReportMetric(float64(b.N)/float64(max(1, r.sends.sends()-1)), "tasks/send")
		})
	}
}

// BenchmarkEnqueueMany is one goroutine that adds tasks 100 and 1,000 at a time.
func BenchmarkEnqueueMany(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprintf("tasks=%d", n), func(b *testing.B) {
			r := newCostRig(b)
			ts := make([]queue.Task, n)
			measure(b, r, func() {
				for range b.N {
					for i := range ts {
						ts[i] = r.task()
					}
					r.many(ts)
				}
			}, b.N*n)
		})
	}
}

func measure(b *testing.B, r *costRig, work func(), tasks int) {
	b.ReportAllocs()
	client, server := r.spent()
	b.ResetTimer()
	work()
	b.StopTimer()
	c, s := r.spent()
	b.ReportMetric(float64((c-client).Nanoseconds())/1e3/float64(tasks), "client-µs/task")
	b.ReportMetric(float64((s-server).Nanoseconds())/1e3/float64(tasks), "server-µs/task")
	b.ReportMetric(float64(tasks)/b.Elapsed().Seconds(), "tasks/s")
}
