package consumer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/queue"
)

// partitioned stands in for a server that has queues of several partitions, and
// takes down how they are read.
type partitioned struct {
	answering

	mu      sync.Mutex
	waiting map[*queue.Queue][]int // entries, by partition
	arrived chan struct{}          // closed when there are more
	n       int
	reads   []looked
	begun   []begun
}

// looked is a read of some partitions of a queue.
type looked struct {
	at         time.Time
	queue      *queue.Queue
	partitions []int
	max        int
	block      time.Duration
	got        int
}

// begun is a task of a partition that was begun.
type begun struct {
	at        time.Time
	queue     *queue.Queue
	partition int
}

func (p *partitioned) put(q *queue.Queue, partition, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting[q][partition] += n
	close(p.arrived)
	p.arrived = make(chan struct{})
}

// read divides Max among the streams as queue.Read does.
func (p *partitioned) read(ctx context.Context, r queue.ReadRequest) ([]queue.Entry, error) {
	type at struct {
		q *queue.Queue
		p int
	}
	var streams []at
	for _, q := range r.Queues {
		partitions := r.Partitions
		if partitions == nil {
			partitions = make([]int, q.Partitions())
			for i := range partitions {
				partitions[i] = i
			}
		}
		for _, i := range partitions {
			streams = append(streams, at{q, i})
		}
	}
	rounds := (len(streams) + r.Max - 1) / r.Max
	if rounds > 1 {
		var picked []at
		for i := range r.Max {
			picked = append(picked, streams[(r.Turn*r.Max+i)%len(streams)])
		}
		streams = picked
	}
	late := time.NewTimer(r.Block / time.Duration(rounds))
	defer late.Stop()
	began := time.Now()
	for {
		p.mu.Lock()
		var out []queue.Entry
		looks := map[*queue.Queue]*looked{}
		for _, s := range streams {
			l := looks[s.q]
			if l == nil {
				l = &looked{at: began, queue: s.q, max: r.Max, block: r.Block}
				looks[s.q] = l
			}
			l.partitions = append(l.partitions, s.p)
			for range min(p.waiting[s.q][s.p], max(1, r.Max/len(streams))) {
				p.waiting[s.q][s.p]--
				p.n++
				l.got++
				out = append(out, queue.Entry{Queue: s.q, Partition: s.p, ID: queue.EntryID(fmt.Sprint(p.n)), Fields: []string{"k"}})
			}
		}
		arrived := p.arrived
		if len(out) > 0 || r.Block == 0 || ctx.Err() != nil || !time.Now().Before(began.Add(r.Block/time.Duration(rounds))) {
			for _, l := range looks {
				p.reads = append(p.reads, *l)
			}
			p.mu.Unlock()
			return out, nil
		}
		p.mu.Unlock()
		select {
		case <-arrived:
		case <-late.C:
		case <-ctx.Done():
		}
	}
}

func (p *partitioned) Begin(ctx context.Context, r queue.BeginRequest) (queue.Batch, error) {
	p.mu.Lock()
	for _, e := range r.Entries {
		p.begun = append(p.begun, begun{time.Now(), e.Queue, e.Partition})
	}
	p.mu.Unlock()
	return p.answering.Begin(ctx, r)
}

func (p *partitioned) Release(_ context.Context, in []queue.Settlement) []queue.Settled {
	return p.settle(in, queue.Released)
}

// calls is how many script calls the tasks that came needed to be begun: one for
// each partition of each read.
func (p *partitioned) calls() (tasks, calls int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, b := range p.begun {
		if i == 0 || p.begun[i-1] != b {
			calls++
		}
	}
	return len(p.begun), calls
}

// rotating runs f, in virtual time, beside a worker of several queues whose
// handlers take so long. A read takes a millisecond.
func rotating(t *testing.T, handlers int, work time.Duration, partitions []int, weights []int, f func(p *partitioned, q []*queue.Queue)) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // never connected
	t.Cleanup(func() { client.Close() })
	p := &partitioned{waiting: map[*queue.Queue][]int{}, arrived: make(chan struct{})}
	p.add = accepts
	var qs []*queue.Queue
	for i, n := range partitions {
		q, err := queue.New(queue.Config{Name: fmt.Sprint("q", i), Client: client, ReadClient: client, Partitions: n})
		if err != nil {
			t.Fatal(err)
		}
		qs = append(qs, q)
		p.waiting[q] = make([]int, n)
	}
	synctest.Test(t, func(t *testing.T) {
		p.arrived = make(chan struct{})
		cfg := Config{Concurrency: handlers, Weight: weights[0], Handler: HandlerFunc(func(context.Context, Delivery) ([]byte, error) {
			time.Sleep(work)
			return nil, nil
		})}
		for i, q := range qs[1:] {
			cfg.More = append(cfg.More, Weighted{Queue: q, Weight: weights[i+1]})
		}
		w, err := New(qs[0], cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range w.sources {
			s.server = p
		}
		w.read = func(ctx context.Context, r queue.ReadRequest) ([]queue.Entry, error) {
			time.Sleep(time.Millisecond)
			return p.read(ctx, r)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		f(p, qs)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// TestBacklogIsReadDeep: where tasks wait in all of 64 partitions, those that
// are read together are begun with hardly more calls than those of one.
func TestBacklogIsReadDeep(t *testing.T) {
	for _, work := range []time.Duration{0, 10 * time.Millisecond} {
		each := map[int]float64{}
		for _, partitions := range []int{1, 64} {
			rotating(t, 64, work, []int{partitions}, []int{1}, func(p *partitioned, qs []*queue.Queue) {
				for i := range partitions {
					p.put(qs[0], i, 1_000_000)
				}
				time.Sleep(2 * time.Second)
				tasks, calls := p.calls()
				t.Logf("%d partitions, handlers of %s: %d tasks in %d calls", partitions, work, tasks, calls)
				each[partitions] = float64(tasks) / float64(calls)
			})
		}
		if each[64] < .7*each[1] {
			t.Errorf("handlers of %s: %.1f tasks in a call with 64 partitions, %.1f with one", work, each[64], each[1])
		}
	}
}

// TestEveryPartitionGetsItsTurn: while tasks wait in all partitions, none is
// passed over for longer than richTurn and a round, or for longer than one
// rotation where the worker has little room.
func TestEveryPartitionGetsItsTurn(t *testing.T) {
	for _, c := range []struct {
		handlers int
		work     time.Duration
		most     time.Duration
	}{
		{64, 10 * time.Millisecond, richTurn + 20*time.Millisecond},
		{64, 300 * time.Millisecond, richTurn + 300*time.Millisecond},
		{64, 2 * time.Second, 2100 * time.Millisecond},
		{1, 10 * time.Millisecond, 64 * 20 * time.Millisecond}, // reads one task at a time
	} {
		t.Run(fmt.Sprintf("%d handlers of %s", c.handlers, c.work), func(t *testing.T) {
			rotating(t, c.handlers, c.work, []int{64}, []int{1}, func(p *partitioned, qs []*queue.Queue) {
				for i := range 64 {
					p.put(qs[0], i, 100_000)
				}
				began := time.Now()
				time.Sleep(20 * time.Second)
				last, worst := map[int]time.Time{}, time.Duration(0)
				for i := range 64 {
					last[i] = began
				}
				p.mu.Lock()
				defer p.mu.Unlock()
				for _, b := range p.begun {
					worst = max(worst, b.at.Sub(last[b.partition]))
					last[b.partition] = b.at
				}
				for _, at := range last {
					worst = max(worst, time.Since(at))
				}
				t.Logf("no partition waited longer than %s", worst)
				if worst > c.most {
					t.Errorf("a partition waited for %s, want %s at most", worst, c.most)
				}
			})
		})
	}
}

// TestLoneTaskBesideABacklog: a task in a partition that was empty is found soon,
// while another partition has more than the worker can do.
func TestLoneTaskBesideABacklog(t *testing.T) {
	rotating(t, 16, 5*time.Millisecond, []int{64}, []int{1}, func(p *partitioned, qs []*queue.Queue) {
		p.put(qs[0], 7, 1_000_000)
		time.Sleep(time.Second)
		for _, partition := range []int{0, 6, 8, 63} {
			at := time.Now()
			p.put(qs[0], partition, 1)
			time.Sleep(time.Second)
			p.mu.Lock()
			i := slices.IndexFunc(p.begun, func(b begun) bool { return b.partition == partition })
			if i < 0 {
				t.Errorf("the task of partition %d was not begun within a second", partition)
			} else if d := p.begun[i].at.Sub(at); d > poorTurn+60*time.Millisecond {
				t.Errorf("the task of partition %d was begun after %s", partition, d)
			}
			p.mu.Unlock()
		}
		if tasks, calls := p.calls(); tasks < 5000 || calls*3 > tasks {
			t.Errorf("%d tasks were begun with %d calls: the one that has tasks must be read deep", tasks, calls)
		}
	})
}

// TestIdleWorkerReadsAllAtOnce: with nothing to do, a worker waits in a single
// read of all partitions of all queues, also after a backlog.
func TestIdleWorkerReadsAllAtOnce(t *testing.T) {
	rotating(t, 64, time.Millisecond, []int{8, 8}, []int{1, 1}, func(p *partitioned, qs []*queue.Queue) {
		for i := range 8 {
			p.put(qs[i%2], i, 500)
		}
		time.Sleep(2 * time.Second)
		p.mu.Lock()
		p.reads = nil
		p.mu.Unlock()
		time.Sleep(10 * time.Second)
		p.mu.Lock()
		defer p.mu.Unlock()
		if n := len(p.reads); n > 2*25+2 { // asks end the wait every 0.4 to 0.5 s
			t.Errorf("%d reads of an idle worker in 10 s", n)
		}
		for _, r := range p.reads {
			if len(r.partitions) != 8 || r.block == 0 {
				t.Errorf("read %v of %s, block %s: want one read of everything that waits", r.partitions, r.queue.Name(), r.block)
			}
		}
	})
}

// TestWeightsHoldWithPartitions: queues get their shares whatever the number of
// their partitions.
func TestWeightsHoldWithPartitions(t *testing.T) {
	for _, partitions := range [][]int{{16, 16}, {1, 64}, {64, 1}} {
		rotating(t, 32, 10*time.Millisecond, partitions, []int{3, 1}, func(p *partitioned, qs []*queue.Queue) {
			for _, q := range qs {
				for i := range q.Partitions() {
					p.put(q, i, 100_000/q.Partitions())
				}
			}
			time.Sleep(10 * time.Second)
			p.mu.Lock()
			defer p.mu.Unlock()
			heavy := 0
			for _, b := range p.begun {
				if b.queue == qs[0] {
					heavy++
				}
			}
			share := float64(heavy) / float64(len(p.begun))
			if share < .72 || share > .78 || len(p.begun) < 10_000 {
				t.Errorf("%v partitions: the queue of weight 3 in 4 got %.2f of %d tasks", partitions, share, len(p.begun))
			}
		})
	}
}

// TestRotationPassesNobodyOver: whatever reads bring, partitions that are rich
// come round one after the other.
func TestRotationPassesNobodyOver(t *testing.T) {
	const partitions = 16
	rnd := rand.New(rand.NewPCG(5, 6))
	r := newRotation(partitions)
	now, last := time.Unix(0, 0), [partitions]int{}
	for turn := 1; turn < 10_000; turn++ {
		now = now.Add(time.Duration(rnd.IntN(3)) * time.Millisecond)
		got := slices.Clone(r.next(1))
		if len(got) == 0 {
			got = slices.Clone(r.order)
		}
		for _, p := range got {
			if last[p] > 0 && turn-last[p] > 2*partitions {
				t.Fatalf("partition %d was passed over for %d turns", p, turn-last[p])
			}
			last[p] = turn
			r.note(p, now, 10, 10-rnd.IntN(4)/3*10, true) // mostly all that was asked for
		}
		n := 0
		for p := range partitions {
			if r.has[p] == rich {
				n++
			} else {
				last[p] = turn // it is not its turn
			}
		}
		if n != r.rich {
			t.Fatalf("%d partitions are rich, and counted are %d", n, r.rich)
		}
	}
}

// TestOneOfOneSaysLittle: a partition that gave the one entry it was asked for
// counts as rich once that has happened twice, or if all others gave theirs too.
func TestOneOfOneSaysLittle(t *testing.T) {
	r := newRotation(3)
	now := time.Now()
	r.note(0, now, 1, 1, false)
	r.note(1, now, 1, 1, true)
	r.note(2, now, 2, 2, false)
	if got := r.next(3); !slices.Equal(got, []int{1, 2}) {
		t.Errorf("rich are %v", got)
	}
	r.note(0, now, 1, 1, false)
	r.note(1, now, 1, 0, false)
	if got := r.next(3); !slices.Equal(got, []int{2, 0}) {
		t.Errorf("rich are %v", got)
	}
}
