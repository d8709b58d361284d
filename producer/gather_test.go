package producer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/internal/faultredis"
	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/queue"
)

// wire is a server that answers when it is told to.
type wire struct {
	mu     sync.Mutex
	sends  [][]queue.TaskID
	tokens []queue.Token
	answer chan error // one for each send; nil: added
}

func (w *wire) send(ctx context.Context, token queue.Token, tasks []queue.Task) []queue.Receipt {
	w.mu.Lock()
	var ids []queue.TaskID
	for _, t := range tasks {
		ids = append(ids, t.ID)
	}
	w.sends, w.tokens = append(w.sends, ids), append(w.tokens, token)
	w.mu.Unlock()
	var err error
	select {
	case err = <-w.answer:
	case <-ctx.Done():
		err = fmt.Errorf("%w: %w", queue.ErrIndefinite, ctx.Err())
	}
	receipts := make([]queue.Receipt, len(tasks))
	for i, t := range tasks {
		receipts[i] = queue.Receipt{ID: t.ID, Added: err == nil, Err: err}
	}
	return receipts
}

func (w *wire) sent() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, ids := range w.sends {
		all = append(all, strings.Trim(fmt.Sprint(ids), "[]"))
	}
	return strings.Join(all, "; ")
}

// gathering is a producer on a wire, in a bubble, and its calls under way.
type gathering struct {
	*wire
	t    *testing.T
	p    *producer.Producer
	said map[queue.TaskID]error
	wg   sync.WaitGroup
}

func newGathering(t *testing.T, cfg producer.Config) *gathering {
	g := &gathering{wire: &wire{answer: make(chan error)}, t: t, said: map[queue.TaskID]error{}}
	g.p = unconnected(t, cfg, &recorder{})
	g.p.Intercept(func(producer.Send) producer.Send { return g.send })
	return g
}

// call enqueues a task in a goroutine of its own and returns once that waits.
func (g *gathering) call(ctx context.Context, id queue.TaskID, bytes int) {
	g.wg.Go(func() {
		r, err := g.p.Enqueue(ctx, queue.Task{ID: id, Kind: "k", Payload: make([]byte, bytes)})
		g.mu.Lock()
		defer g.mu.Unlock()
		if (err == nil) != r.Added {
			g.t.Errorf("%s: %+v, %v", id, r, err)
		}
		g.said[id] = err
	})
	synctest.Wait()
}

func (g *gathering) want(sends string) {
	g.t.Helper()
	synctest.Wait()
	if got := g.sent(); got != sends {
		g.t.Errorf("sent %q, want %q", got, sends)
	}
}

// Calls that come while others are on the wire go out together when one of
// those is answered, as far as they fit into a batch; a lone call goes at once.
func TestCallsGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGathering(t, producer.Config{Batch: 3, BatchBytes: 100})
		for _, id := range []queue.TaskID{"a", "b", "c", "d", "e", "f"} {
			g.call(t.Context(), id, 1)
		}
		g.call(t.Context(), "large", 99) // with f just as much as a batch may have
		g.call(t.Context(), "f", 1)
		g.call(t.Context(), "g", 50)
		g.call(t.Context(), "h", 50)
		g.want("a; b")
		for range 2 {
			g.answer <- nil
			synctest.Wait()
		}
		g.want("a; b; c d e; f large")
		g.answer <- nil
		g.want("a; b; c d e; f large; f g") // the second f is not under the token of the first, and h is too much
		for range 3 {
			g.answer <- nil
		}
		g.wg.Wait()
		g.want("a; b; c d e; f large; f g; h")
		if len(g.said) != 9 {
			t.Errorf("%v", g.said)
		}
		for id, err := range g.said {
			if err != nil {
				t.Errorf("%s: %v", id, err)
			}
		}
		g.call(t.Context(), "z", 1)
		g.want("a; b; c d e; f large; f g; h; z")
		g.answer <- nil
	})
}

// Where batches are of one there is nothing to wait for.
func TestBatchesOfOneDoNotGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGathering(t, producer.Config{Batch: 1})
		for _, id := range []queue.TaskID{"a", "b", "c", "d"} {
			g.call(t.Context(), id, 1)
		}
		g.want("a; b; c; d")
		for range 4 {
			g.answer <- nil
		}
	})
}

// A call whose context ends keeps to it, wherever it is, and no other call
// suffers.
func TestCallsKeepToTheirContexts(t *testing.T) {
	for name, c := range map[string]struct {
		leave string // who gives up, while c, d and e wait
		late  bool   // not before they are on the wire
		sends string
		err   error
	}{
		"the first that waits":          {"c", false, "a; b; d e", queue.ErrUnavailable},
		"another that waits":            {"d", false, "a; b; c e", queue.ErrUnavailable},
		"one whose task is on the wire": {"d", true, "a; b; c d e", queue.ErrIndefinite},
		// The send of the three ends with the context of the one that made it.
		// The others ask again, under the same token.
		"the one that sends": {"c", true, "a; b; c d e; d; e", queue.ErrIndefinite},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGathering(t, producer.Config{})
				ctx, cancel := context.WithCancel(t.Context())
				g.call(t.Context(), "a", 1)
				g.call(t.Context(), "b", 1)
				for _, id := range []queue.TaskID{"c", "d", "e"} {
					if string(id) == c.leave {
						g.call(ctx, id, 1)
					} else {
						g.call(t.Context(), id, 1)
					}
				}
				if c.late {
					g.answer <- nil
					synctest.Wait()
				}
				cancel()
				synctest.Wait()
				g.mu.Lock()
				if err := g.said[queue.TaskID(c.leave)]; !errors.Is(err, c.err) {
					t.Errorf("who gave up was told %v, want %v", err, c.err)
				}
				g.mu.Unlock()
				stop := make(chan struct{})
				go func() { g.wg.Wait(); close(stop) }()
				for open := true; open; {
					select {
					case g.answer <- nil:
					case <-stop:
						open = false
					}
				}
				sends := strings.Split(g.sent(), "; ")
				want := strings.Split(c.sends, "; ")
				if strings.Join(sends[:min(3, len(sends))], "; ") != strings.Join(want[:3], "; ") || len(sends) != len(want) {
					t.Errorf("sent %q, want %q", sends, want)
				}
				for i := 3; i < len(g.tokens); i++ {
					if g.tokens[i] != g.tokens[2] {
						t.Errorf("asked again under another token: %v", g.tokens)
					}
				}
				for id, err := range g.said {
					if string(id) != c.leave && err != nil {
						t.Errorf("%s: %v", id, err)
					}
				}
			})
		})
	}
}

// Calls whose contexts end at the moment they are given the turn pass it on, to
// one that is still there.
func TestTurnIsPassedOn(t *testing.T) {
	for range 100 { // which of them comes first at one instant is chance
		synctest.Test(t, func(t *testing.T) {
			g := newGathering(t, producer.Config{})
			g.call(t.Context(), "a", 1)
			g.call(t.Context(), "b", 1)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			for i := range 20 {
				own := ctx
				if i%4 == 3 {
					own = t.Context()
				}
				g.call(own, queue.TaskID(fmt.Sprint(i)), 1)
			}
			stop := make(chan struct{})
			go func() { g.wg.Wait(); close(stop) }()
			time.Sleep(time.Second) // the contexts end, and the answers come
			for open := true; open; {
				select {
				case g.answer <- nil:
				case <-stop:
					open = false
				}
			}
			for i := 3; i < 20; i += 4 {
				if err, ok := g.said[queue.TaskID(fmt.Sprint(i))]; !ok || err != nil {
					t.Errorf("%d: %v, %v", i, ok, err)
				}
			}
			g.call(t.Context(), "after", 1) // the wire is free
			g.answer <- nil
		})
	}
}

// Many callers of a real server: each task is added once and told so, IDs that
// several callers have are added once, and the server sees far fewer calls.
func TestManyCallers(t *testing.T) {
	for name, fault := range map[string]func(faultredis.Match) faultredis.Fault{"well": nil, "replies lost": faultredis.LoseReply, "not applied": faultredis.FailBefore} {
		t.Run(name, func(t *testing.T) {
			p, q, hook := connected(t, queue.Config{Partitions: 2}, producer.Config{})
			calls := &counter{}
			q.Config().Client.(*redis.Client).AddHook(calls)
			if fault != nil {
				hook.Inject(fault(faultredis.Command("evalsha")).Times(3))
			}
			const callers, each = 64, 30
			var mu sync.Mutex
			added := map[queue.TaskID]int{}
			var wg sync.WaitGroup
			for c := range callers {
				wg.Go(func() {
					for n := range each {
						id := queue.TaskID(fmt.Sprintf("own-%d-%d", c, n))
						if n%3 == 0 {
							id = queue.TaskID(fmt.Sprintf("shared-%d", n))
						}
						r, err := p.Enqueue(t.Context(), queue.Task{ID: id, Kind: "k"})
						if err != nil || r.Added == r.Duplicate {
							t.Errorf("%+v, %v", r, err)
						}
						mu.Lock()
						if r.Added {
							added[id]++
						}
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			distinct := callers*each*2/3 + each/3
			if len(added) != distinct || waiting(t, q) != int64(distinct) {
				t.Errorf("%d IDs added, %d entries, want %d", len(added), waiting(t, q), distinct)
			}
			for id, n := range added {
				if n != 1 {
					t.Errorf("%s: added %d times", id, n)
				}
			}
			if n := calls.sends(); n > callers*each/2 {
				t.Errorf("%d sends for %d tasks of %d callers: they did not gather", n, callers*each, callers)
			}
		})
	}
}

// counter counts what is sent.
type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) sends() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

func (c *counter) count() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
}

func (c *counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.count()
		return next(ctx, cmd)
	}
}

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.count()
		return next(ctx, cmds)
	}
}
