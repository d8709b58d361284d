package producer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/queue"
)

// A second send does not go before as many wait as are in the first, so that
// two of about the same size take turns; then it goes at once, sent by the call
// that made them as many.
func TestSendsAreOfOneSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGathering(t, producer.Config{})
		for _, id := range []queue.TaskID{"a", "b", "c", "d", "e"} {
			g.call(t.Context(), id, 1)
		}
		g.want("a; b") // one and one
		g.answer <- nil
		g.answer <- nil
		g.want("a; b; c d e")
		g.call(t.Context(), "f", 1)
		g.call(t.Context(), "g", 1)
		g.want("a; b; c d e")
		g.call(t.Context(), "h", 1)
		g.want("a; b; c d e; f g h")
		g.call(t.Context(), "i", 1)
		g.answer <- nil // of c d e; f g h are more than wait
		g.want("a; b; c d e; f g h")
		g.answer <- nil
		g.want("a; b; c d e; f g h; i")
		g.answer <- nil
	})
}

// No call outlasts Config.Timeout, whoever sends for it, where a client keeps to
// the deadlines of contexts; and nobody needs a timer while it waits.
func TestTimeoutOfGatheredCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := unconnected(t, producer.Config{Timeout: time.Second}, &recorder{})
		p.Intercept(func(producer.Send) producer.Send {
			return func(ctx context.Context, _ queue.Token, tasks []queue.Task) []queue.Receipt {
				by, ok := ctx.Deadline()
				if !ok {
					t.Error("a send without a deadline")
				}
				time.Sleep(time.Until(by)) // the server does not answer
				receipts := make([]queue.Receipt, len(tasks))
				for i := range tasks {
					receipts[i] = queue.Receipt{ID: tasks[i].ID, Err: fmt.Errorf("%w: i/o timeout", queue.ErrIndefinite)}
				}
				return receipts
			}
		})
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				began := time.Now()
				_, err := p.Enqueue(t.Context(), queue.Task{ID: queue.TaskID(fmt.Sprint(i)), Kind: "k"})
				if took := time.Since(began); took > time.Second || err == nil {
					t.Errorf("call %d: %v after %v", i, err, took)
				}
			})
			time.Sleep(70 * time.Millisecond)
		}
		wg.Wait()
	})
}

// Calls to a server that has frozen end in time, one that is alone and those
// that wait for others, and the producer works on when the server does.
func TestFrozenServer(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(func(o *redis.Options) { o.ContextTimeoutEnabled, o.MaxRetries, o.ReadTimeout = true, -1, time.Minute })
	q, err := queue.New(queue.Config{Name: "q", Client: client})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	p, err := producer.New(q, producer.Config{Timeout: 300 * time.Millisecond, MaxRetries: -1})
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	add := func(id queue.TaskID) error {
		_, err := p.Enqueue(context.Background(), queue.Task{ID: id, Kind: "k"})
		return err
	}
	for _, callers := range []int{1, 30} {
		if err := add("before"); err != nil {
			t.Fatal(err)
		}
		server.Stop()
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				began := time.Now()
				err := add(queue.TaskID(fmt.Sprint(callers, "-", i)))
				if took := time.Since(began); !queue.IsRetryable(err) || took > 30*time.Second {
					t.Errorf("%v after %v", err, took)
				}
			})
		}
		wg.Wait()
		server.Cont()
		for {
			if add(queue.TaskID(fmt.Sprint("after-", callers))) == nil {
				break
			}
		}
	}
}

// What a caller does with its task once its call has returned is its own
// affair, also when another call sends it a moment later.
func TestTaskOfWhoLeftIsNotTouched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGathering(t, producer.Config{})
		var sent []string
		g.p.Intercept(func(next producer.Send) producer.Send {
			return func(ctx context.Context, token queue.Token, tasks []queue.Task) []queue.Receipt {
				receipts := next(ctx, token, tasks)
				g.mu.Lock()
				defer g.mu.Unlock()
				for _, t := range tasks {
					sent = append(sent, fmt.Sprint(string(t.Payload), t.Headers))
				}
				return receipts
			}
		})
		g.call(t.Context(), "a", 1)
		g.call(t.Context(), "b", 1)
		g.call(t.Context(), "c", 1)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			task := queue.Task{ID: "d", Kind: "k", Payload: []byte("as it was"), Headers: map[string]string{"h": "as it was"}}
			if _, err := g.p.Enqueue(ctx, task); !errors.Is(err, queue.ErrIndefinite) {
				t.Error(err)
			}
			copy(task.Payload, "written over")
			task.Headers["h"] = "written over"
		}()
		synctest.Wait()
		g.answer <- nil
		g.want("a; b; c d")
		cancel()
		<-done
		for range 2 {
			g.answer <- nil
		}
		g.wg.Wait()
		if got := strings.Join(sent, " "); !strings.Contains(got, "as it wasmap[h:as it was]") || strings.Contains(got, "over") {
			t.Errorf("sent %q", got)
		}
	})
}

// A send that panics, in a hook of the client, ends the call that made it. The
// others ask again by themselves, and the wire is free.
func TestSendThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGathering(t, producer.Config{})
		var sends atomic.Int64
		g.p.Intercept(func(next producer.Send) producer.Send {
			return func(ctx context.Context, token queue.Token, tasks []queue.Task) []queue.Receipt {
				sends.Add(1)
				receipts := next(ctx, token, tasks)
				if tasks[0].ID == "first" || len(tasks) > 1 {
					panic("hook")
				}
				return receipts
			}
		})
		survive := func(id queue.TaskID) {
			g.wg.Go(func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: no panic", id)
					}
				}()
				_, _ = g.p.Enqueue(t.Context(), queue.Task{ID: id, Kind: "k"})
			})
			synctest.Wait()
		}
		survive("first")
		g.answer <- nil
		g.call(t.Context(), "a", 1)
		g.call(t.Context(), "b", 1)
		survive("leader")
		g.call(t.Context(), "d", 1)
		g.call(t.Context(), "e", 1)
		g.answer <- nil
		g.want("first; a; b; leader d e")
		for range 4 {
			g.answer <- nil
			synctest.Wait()
			time.Sleep(time.Second)
		}
		g.wg.Wait()
		if g.said["d"] != nil || g.said["e"] != nil || sends.Load() != 6 {
			t.Errorf("%v after %d sends", g.said, sends.Load())
		}
		g.call(t.Context(), "after", 1)
		g.answer <- nil
		g.wg.Wait()
		if err, ok := g.said["after"]; !ok || err != nil {
			t.Errorf("after: %v, %v", ok, err)
		}
	})
}
