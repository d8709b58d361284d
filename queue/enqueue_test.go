package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/internal/faultredis"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/queue"
)

func TestEnqueueNamesTheField(t *testing.T) {
	r := newRig(t, func(c *queue.Config) { c.MaxPayload = 100 })
	long := strings.Repeat("x", queue.MaxHeaderBytes)
	many := map[string]string{}
	for i := range queue.MaxHeaders + 1 {
		many[fmt.Sprint("h", i)] = ""
	}
	for field, task := range map[string]queue.Task{
		"ID":          {Kind: "k"},
		"Kind":        {ID: "a"},
		"Payload":     {ID: "a", Kind: "k", Payload: make([]byte, 101)},
		"ContentType": {ID: "a", Kind: "k", ContentType: "\xff"},
		"Headers":     {ID: "a", Kind: "k", Headers: many},
		"Headers[h]":  {ID: "a", Kind: "k", Headers: map[string]string{"h": long}},
		"Delay":       {ID: "a", Kind: "k", Delay: -1},
		"Due":         {ID: "a", Kind: "k", Delay: 1, Due: time.Now()},
		"Deadline":    {ID: "a", Kind: "k", Deadline: time.UnixMilli(-1)},
	} {
		got := r.q.Enqueue(bg, r.q.NewToken(), append(tasksNamed("good-"+field), task))
		if !got[0].Added {
			t.Errorf("%s: its neighbour is not added: %+v", field, got[0])
		}
		var fe *queue.FieldError
		if !errors.Is(got[1].Err, queue.ErrInvalidTask) || !errors.As(got[1].Err, &fe) || fe.Field != field {
			t.Errorf("%s: %v", field, got[1].Err)
		}
		if got[1].Added || got[1].Duplicate {
			t.Errorf("%s: %+v", field, got[1])
		}
	}
	// What is accepted is also read: the largest of everything at once.
	delete(many, "h0")
	for name := range many {
		many[name] = long[:queue.MaxHeaderBytes-len(name)]
	}
	r.add(queue.Task{ID: queue.TaskID(strings.Repeat("i", queue.MaxIDBytes)), Kind: strings.Repeat("k", queue.MaxKindBytes), Payload: make([]byte, 100),
		ContentType: long, Headers: many, Deadline: time.UnixMilli(1 << 52)})
	ds := r.take("w", 10)
	if got := ds[len(ds)-1].Task; len(got.Headers) != queue.MaxHeaders || got.ContentType != long || got.Deadline.UnixMilli() != 1<<52 {
		t.Errorf("%d headers, deadline %v", len(got.Headers), got.Deadline)
	}
}

func TestTaskIDs(t *testing.T) {
	r := newRig(t)
	for id, ok := range map[string]bool{
		"":                                     false,
		"a":                                    true,
		strings.Repeat("x", 200):               true,
		strings.Repeat("x", 201):               false,
		"with space":                           false,
		"tab\t":                                false,
		"nul\x00":                              false,
		"line\n":                               false,
		"umläut":                               false,
		"del\x7f":                              false,
		"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~":   true,
		"{tag}":                                true,
		"1700000000000-0":                      true,
		"01890a5d-ac96-774b-bcce-b302099a8057": true,
	} {
		got := r.q.Enqueue(bg, r.q.NewToken(), tasksNamed(id))[0]
		if got.Added != ok || errors.Is(got.Err, queue.ErrInvalidTask) == ok {
			t.Errorf("%q: %+v", id, got)
		}
	}
}

// TestEnqueueBatches covers many partitions, more than MaxBatch tasks in one of
// them, and more bytes than one call carries.
func TestEnqueueBatches(t *testing.T) {
	c := redistest.Shared(t).Client()
	sizes := &largestCommand{}
	c.AddHook(sizes)
	r := rigOn(t, c, func(c *queue.Config) { c.Partitions, c.MaxPayload = 8, 3<<20 })
	tasks := tasksNamed(numbered("t", 8*queue.MaxBatch+500)...)
	for i := range 5 {
		tasks = append(tasks, queue.Task{ID: queue.TaskID(fmt.Sprint("big", i)), Kind: "k", Payload: make([]byte, 3<<20)})
	}
	r.add(tasks...)
	if limit := 5 << 20; sizes.bytes > limit || sizes.bytes < 3<<20 {
		t.Errorf("the largest command has %d bytes, at most %d may be", sizes.bytes, limit)
	}
	for i, got := range r.q.Enqueue(bg, r.q.NewToken(), tasks) {
		if got.ID != tasks[i].ID || !got.Duplicate || got.Place != queue.Waiting {
			t.Fatalf("%d: %+v", i, got)
		}
	}
	total := int64(0)
	for p := range 8 {
		n := r.c.XLen(bg, r.q.StreamKey(p)).Val()
		if n == 0 {
			t.Errorf("partition %d is empty", p)
		}
		total += n
		for id := range r.places(p) {
			if r.q.PartitionOf(queue.TaskID(id)) != p {
				t.Errorf("%s is in partition %d", id, p)
			}
		}
	}
	if total != int64(len(tasks)) {
		t.Errorf("%d entries for %d tasks", total, len(tasks))
	}
}

// TestI7EnqueueIsRecognised sends a call again in every state its task can be
// in: it is added for its own sender, a duplicate for everyone else.
func TestI7EnqueueIsRecognised(t *testing.T) {
	r := newRig(t)
	token := r.q.NewToken()
	task := tasksNamed("a")
	check := func(want queue.Place) {
		t.Helper()
		if got := r.q.Enqueue(bg, token, task)[0]; !got.Added || got.Duplicate || got.Place != want || got.Err != nil {
			t.Errorf("its own sender at %s: %+v", want, got)
		}
		if got := r.q.Enqueue(bg, r.q.NewToken(), task)[0]; got.Added || !got.Duplicate || got.Place != want || got.Err != nil {
			t.Errorf("another at %s: %+v", want, got)
		}
	}
	check(queue.Waiting)
	es := r.read("w", 1)
	check(queue.Waiting) // read and not begun
	ds := r.begin(es, 0).Deliveries
	check(queue.Pending)
	if errs := r.q.Start(bg, []queue.Lease{ds[0].Lease}); errs[0] != nil {
		t.Fatal(errs[0])
	}
	check(queue.Pending)
	r.must(queue.Retried, r.q.Retry(bg, settlements(ds)))
	check(queue.Scheduled)
	r.advance(time.Second)
	if _, err := r.q.Promote(bg, 0, 1); err != nil {
		t.Fatal(err)
	}
	check(queue.Waiting)
	ds = r.take("w", 1)
	check(queue.Pending)
	r.must(queue.Released, r.q.Release(bg, settlements(ds)))
	check(queue.Waiting)
	ds = r.take("w", 1)
	r.must(queue.DeadLettered, r.q.DeadLetter(bg, settlements(ds, func(s *queue.Settlement) { s.Reason = queue.DeadRejected })))
	check(queue.Dead)
	if m := r.q.Redrive(bg, []queue.TaskID{"a"}); m[0].Err != nil {
		t.Fatal(m[0].Err)
	}
	check(queue.Waiting)
	r.must(queue.Completed, r.q.Complete(bg, settlements(r.take("w", 1))))
	check(queue.Done)
	if n := r.c.XLen(bg, r.q.StreamKey(0)).Val(); n != 0 {
		t.Errorf("%d entries are left", n)
	}
}

// The same ID twice in one call is one task, also when the call is repeated.
func TestEnqueueSameIDTwiceInOneCall(t *testing.T) {
	r := newRig(t)
	token := r.q.NewToken()
	for range 2 {
		got := r.q.Enqueue(bg, token, tasksNamed("a", "b", "a"))
		if !got[0].Added || !got[1].Added || !got[2].Duplicate || got[2].Place != queue.Waiting {
			t.Errorf("%+v", got)
		}
	}
	r.onlyAt("a", "waiting")
}

// TestBacklogIsExact has producers race for the last places of a queue.
func TestBacklogIsExact(t *testing.T) {
	const bound = 100
	r := newRig(t, func(c *queue.Config) { c.MaxBacklog = bound })
	var mu sync.Mutex
	added, full := 0, 0
	var wg sync.WaitGroup
	for p := range 8 {
		wg.Go(func() {
			for i := range 10 {
				tasks := tasksNamed(numbered(fmt.Sprintf("p%d-%d-", p, i), 3)...)
				tasks[1].Delay = time.Hour // scheduled ones count too
				for _, got := range r.q.Enqueue(bg, r.q.NewToken(), tasks) {
					mu.Lock()
					switch {
					case got.Added:
						added++
					case errors.Is(got.Err, queue.ErrQueueFull):
						full++
					default:
						t.Errorf("%+v", got)
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if added != bound || full != 240-bound {
		t.Errorf("%d added, %d refused, the bound is %d", added, full, bound)
	}
	// Running tasks count, finished ones do not; a duplicate is no new task.
	ds := r.take("w", 10)
	if got := r.q.Enqueue(bg, r.q.NewToken(), tasksNamed("one"))[0]; !errors.Is(got.Err, queue.ErrQueueFull) {
		t.Errorf("while ten run: %+v", got)
	}
	if got := r.q.Enqueue(bg, r.q.NewToken(), tasksNamed(string(ds[0].Task.ID)))[0]; !got.Duplicate {
		t.Errorf("a duplicate at the bound: %+v", got)
	}
	r.must(queue.Completed, r.q.Complete(bg, settlements(ds)))
	got := r.q.Enqueue(bg, r.q.NewToken(), tasksNamed(numbered("n", 11)...))
	if !got[9].Added || !errors.Is(got[10].Err, queue.ErrQueueFull) {
		t.Errorf("after ten finished: %+v", got)
	}
}

// TestEnqueueTimes has due times judged by the server's clock.
func TestEnqueueTimes(t *testing.T) {
	r := newRig(t)
	now := r.c.Time(bg).Val()
	deadline := time.UnixMilli(now.UnixMilli() + 5000)
	r.add(
		queue.Task{ID: "delay", Kind: "k", Delay: time.Hour, Deadline: deadline},
		queue.Task{ID: "due", Kind: "k", Due: now.Add(time.Hour)},
		queue.Task{ID: "past", Kind: "k", Due: now.Add(-time.Hour), Deadline: deadline},
		queue.Task{ID: "ancient", Kind: "k", Due: time.Unix(-5, 0)},
		queue.Task{ID: "tiny", Kind: "k", Delay: time.Nanosecond},
		queue.Task{ID: "far", Kind: "k", Due: now.AddDate(5000, 0, 0)},
	)
	for id, want := range map[string]string{"delay": "scheduled", "due": "scheduled", "past": "waiting", "ancient": "waiting", "tiny": "scheduled", "far": "scheduled"} {
		r.onlyAt(id, want)
	}
	for _, id := range []string{"delay", "due"} {
		if d := r.inspect(id).Due.Sub(now); d < time.Hour-time.Millisecond || d > time.Hour+time.Minute {
			t.Errorf("%s is due in %v", id, d)
		}
	}
	if got := r.inspect("far").Due; got.Year() != now.Year()+5000 {
		t.Errorf("far is due %v", got)
	}
	if got := r.inspect("delay").Task; got == nil || !got.Deadline.Equal(deadline) || got.EnqueuedAt.Sub(now).Abs() > time.Minute {
		t.Errorf("%+v", got)
	}
}

// TestC5ConcurrentProducers has 50 producers whose IDs look like stream IDs of
// all times; the server numbers the stream.
func TestC5ConcurrentProducers(t *testing.T) {
	r := newRig(t)
	var wg sync.WaitGroup
	for p := range 50 {
		wg.Go(func() {
			for i := range 20 {
				id := fmt.Sprintf("%d-%d", time.Now().UnixMilli()-int64(p%2)*2000, p*1000+i)
				if got := r.q.Enqueue(bg, r.q.NewToken(), tasksNamed(id))[0]; !got.Added {
					t.Errorf("%+v", got)
				}
			}
		})
	}
	wg.Wait()
	ds := r.take("w", 1000)
	last := ds[len(ds)-1]
	r.must(queue.Completed, r.q.Complete(bg, settlements(ds)))
	if got := r.q.Enqueue(bg, r.q.NewToken(), tasksNamed(string(last.Task.ID)))[0]; !got.Duplicate || got.Place != queue.Done {
		t.Errorf("%+v", got)
	}
	// The entry ID of the last one, deleted, as the name of a new task.
	if got := r.q.Enqueue(bg, r.q.NewToken(), tasksNamed(string(last.Lease.EntryID)))[0]; !got.Added {
		t.Errorf("%+v", got)
	}
}

// TestE1LostReply loses replies of an enqueue: one entry, and success in the end.
func TestE1LostReply(t *testing.T) {
	c := redistest.Shared(t).Client()
	r := rigOn(t, c, func(c *queue.Config) { c.Partitions = 4 })
	hook := faultredis.New(c)
	for name, fault := range map[string]faultredis.Fault{
		"reply lost":  faultredis.LoseReply(nil).Times(2),
		"not applied": faultredis.FailBefore(nil).Times(2),
	} {
		t.Run(name, func(t *testing.T) {
			ids := numbered(strings.ReplaceAll(name, " ", "-"), 20)
			at := hook.Inject(fault)
			defer at.Remove()
			token := r.q.NewToken()
			for range 2 {
				for _, got := range r.q.Enqueue(bg, token, tasksNamed(ids...)) {
					if !errors.Is(got.Err, queue.ErrIndefinite) || got.Added || got.Duplicate {
						t.Fatalf("%+v", got)
					}
				}
			}
			for _, got := range r.q.Enqueue(bg, token, tasksNamed(ids...)) {
				if !got.Added || got.Err != nil {
					t.Errorf("%+v", got)
				}
			}
			for _, id := range ids {
				r.onlyAt(id, "waiting")
			}
		})
	}
}

// A client that repeats by itself reports its last attempt only: what it says
// about that one proves nothing about the earlier ones.
func TestErrorsOfARepeatingClientAreIndefinite(t *testing.T) {
	for _, tt := range []struct {
		retries int
		fault   faultredis.Fault
		want    error
	}{
		{-1, faultredis.FailBefore(nil).With(faultredis.ErrRefused), queue.ErrUnavailable},
		{3, faultredis.FailBefore(nil).With(faultredis.ErrRefused), queue.ErrIndefinite},
		{-1, faultredis.ReplyError(nil, "READONLY You can't write against a read only replica."), queue.ErrUnavailable},
		{3, faultredis.ReplyError(nil, "READONLY You can't write against a read only replica."), queue.ErrIndefinite},
		{-1, faultredis.ReplyError(nil, "NOPERM this user has no permissions"), queue.ErrUnavailable},
		{3, faultredis.ReplyError(nil, "NOPERM this user has no permissions"), queue.ErrUnavailable},
		{3, faultredis.LoseReply(nil), queue.ErrIndefinite},
	} {
		c := redistest.Shared(t).Client(func(o *redis.Options) { o.MaxRetries = tt.retries })
		r := rigOn(t, c)
		at := faultredis.New(c).Inject(tt.fault)
		if got := r.q.Enqueue(bg, r.q.NewToken(), tasksNamed("a"))[0]; !errors.Is(got.Err, tt.want) {
			t.Errorf("%d retries: %v, want %v", tt.retries, got.Err, tt.want)
		}
		at.Remove()
	}
}

// TestWrongPartitions: whoever has another number is refused, and leaves
// nothing behind where nobody would read it.
func TestWrongPartitions(t *testing.T) {
	for made, other := range map[int]int{8: 4, 4: 8, 1: 2} {
		r := newRig(t, func(c *queue.Config) { c.Partitions = made })
		cfg := r.q.Config()
		cfg.Partitions = other
		q, err := queue.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { q.Close() })
		for _, got := range q.Enqueue(bg, q.NewToken(), tasksNamed(numbered("t", 100)...)) {
			if !errors.Is(got.Err, queue.ErrMismatch) || got.Added {
				t.Errorf("made with %d, asked with %d: %+v", made, other, got)
			}
		}
		if err := q.Ensure(bg); !errors.Is(err, queue.ErrMismatch) || !strings.Contains(err.Error(), fmt.Sprint("with ", made)) {
			t.Errorf("ensure: %v", err)
		}
		for p := range max(made, other) {
			if n := r.c.XLen(bg, r.key(p, "stream")).Val(); n != 0 {
				t.Errorf("%d entries in partition %d", n, p)
			}
			if exists := r.c.Exists(bg, r.key(p, "stream"), r.key(p, "conf")).Val(); p >= made && exists != 0 {
				t.Errorf("made with %d, and %d keys of partition %d exist", made, exists, p)
			}
		}
	}
}

// A queue that nobody has made yet is made by the first enqueue.
func TestEnqueueMakesTheQueue(t *testing.T) {
	cfg := queue.Config{Name: "q", Client: redistest.Shared(t).Client(), Prefix: redistest.Prefix(t), Partitions: 3}
	q, err := queue.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	for _, got := range q.Enqueue(bg, q.NewToken(), tasksNamed(numbered("t", 30)...)) {
		if !got.Added {
			t.Errorf("%+v", got)
		}
	}
	ctx, cancel := context.WithCancel(bg)
	cancel()
	for _, got := range q.Enqueue(ctx, q.NewToken(), tasksNamed("late")) {
		if !errors.Is(got.Err, queue.ErrIndefinite) && !errors.Is(got.Err, queue.ErrUnavailable) {
			t.Errorf("on a cancelled context: %+v", got)
		}
	}
}

// largestCommand is a hook that notes how large commands in pipelines are.
type largestCommand struct{ bytes int }

func (l *largestCommand) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (l *largestCommand) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (l *largestCommand) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			n := 0
			for _, arg := range cmd.Args() {
				switch s := arg.(type) {
				case string:
					n += len(s)
				case *string:
					n += len(*s)
				}
			}
			l.bytes = max(l.bytes, n)
		}
		return next(ctx, cmds)
	}
}
