package contender

import (
	"bufio"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// settle is how long drain goes on after its last handler, so that what is
// settled in the background is on the bill too.
const settle = 200 * time.Millisecond

// enqueue adds N tasks from Callers goroutines, Batch in a call.
func enqueue(q Queue, o Options, start func()) (Result, error) {
	seed := time.Now().UnixNano()
	ids := make([]string, o.N)
	for i := range ids {
		ids[i] = ID(seed, i, o.IDBytes)
	}
	payloads := NewPayloads(o.Size)
	start()
	stop, err := profile(o)
	if err != nil {
		return Result{}, err
	}
	before, began := Spent(), time.Now()
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for range o.Callers {
		wg.Go(func() {
			batch := make([]string, 0, o.Batch)
			for failed.Load() == nil {
				i := int(next.Add(int64(o.Batch))) - o.Batch
				if i >= o.N {
					return
				}
				if err := add(q, ids[i:min(i+o.Batch, o.N)], batch, payloads); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	wg.Wait()
	r := Result{N: o.N, Seconds: time.Since(began).Seconds(), LastNS: time.Now().UnixNano()}
	r.Since(before, o.N)
	if e := failed.Load(); e != nil {
		return r, fmt.Errorf("enqueue: %w", *e)
	}
	if err := stop(); err != nil {
		return r, err
	}
	return r, writeAllocs(o)
}

// add makes one call; batch is room for its payloads.
func add(q Queue, ids, batch []string, payloads Payloads) error {
	if cap(batch) == 1 {
		return q.Enqueue(ids[0], payloads.Make())
	}
	batch = batch[:0]
	for range ids {
		batch = append(batch, payloads.Make())
	}
	return q.EnqueueBatch(ids, batch)
}

// drain runs N tasks that are waiting, or are being added, and says how long
// it took from the first handler to the last.
func drain(q Queue, o Options, start func()) (Result, error) {
	s := &Sink{want: int64(o.N), work: o.Work, done: make(chan struct{})}
	start()
	stop, err := profile(o)
	if err != nil {
		return Result{}, err
	}
	before := Spent()
	if err := q.Consume(o.Handlers, s); err != nil {
		return Result{}, fmt.Errorf("consume: %w", err)
	}
	<-s.done
	time.Sleep(settle)
	r := Result{N: o.N, Seconds: float64(s.last.Load()-s.first.Load()) / 1e9, LastNS: s.last.Load(), Repeats: int(s.n.Load()) - o.N}
	r.Since(before, o.N)
	if err := stop(); err != nil {
		return r, err
	}
	return r, writeAllocs(o)
}

// serve runs tasks until a line comes in, and says how long each took from the
// call that enqueued it to the start of its handler.
func serve(q Queue, o Options, start func(), in *bufio.Reader) (Result, error) {
	start()
	s := &Sink{work: o.Work, look: true, warm: time.Now().Add(o.Warm), done: make(chan struct{})}
	before, began := Spent(), time.Now()
	if err := q.Consume(o.Handlers, s); err != nil {
		return Result{}, fmt.Errorf("consume: %w", err)
	}
	fmt.Println("consuming")
	_, _ = in.ReadString('\n')
	n := int(s.n.Load())
	r := Result{N: n, Seconds: time.Since(began).Seconds()}
	r.Since(before, max(n, 1))
	s.mu.Lock()
	defer s.mu.Unlock()
	r.latencies(s.ms)
	return r, nil
}

// feed adds Rate tasks each second, For this long. A task that its turn comes
// too late for is added at once.
func feed(q Queue, o Options, start func()) (Result, error) {
	payloads := NewPayloads(o.Size)
	seed := time.Now().UnixNano()
	turns := make(chan int, o.Rate)
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for range o.Callers {
		wg.Go(func() {
			for i := range turns {
				if err := q.Enqueue(ID(seed, i, o.IDBytes), payloads.Make()); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	start()
	before, began, sent := Spent(), time.Now(), 0
	for time.Since(began) < o.For {
		for due := int(time.Since(began).Seconds() * float64(o.Rate)); sent < due; sent++ {
			turns <- sent
		}
		time.Sleep(500 * time.Microsecond)
	}
	close(turns)
	wg.Wait()
	r := Result{N: sent, Seconds: time.Since(began).Seconds()}
	r.Since(before, sent)
	if e := failed.Load(); e != nil {
		return r, fmt.Errorf("enqueue: %w", *e)
	}
	return r, nil
}

// tell runs tasks and prints each with the time. Where hold is set no handler
// ever returns.
func tell(q Queue, o Options, start func(), hold bool) (Result, error) {
	s := &Sink{look: true, tell: true, hold: hold, done: make(chan struct{})}
	start()
	if err := q.Consume(o.Handlers, s); err != nil {
		return Result{}, fmt.Errorf("consume: %w", err)
	}
	fmt.Println("consuming")
	select {}
}
