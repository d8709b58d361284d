package consumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/claimq/claimq/queue"
)

const most = 5 // tasks ahead, in TestSlotsNeverExceeded

// TestSlotsNeverExceeded makes random legal moves and checks the invariant of
// slots after each.
func TestSlotsNeverExceeded(t *testing.T) {

	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := slots{concurrency: 1 + r.IntN(8), prefetch: r.IntN(8), maxStuck: r.IntN(4)}
		for range 400 {
			move(&s, r)
			if s.busy+s.over() > s.concurrency {
				t.Fatalf("seed %d: more handlers than slots: %+v", seed, s)
			}
			if s.inHand() > s.concurrency+s.prefetch+most {
				t.Fatalf("seed %d: more in hand than there are places: %+v", seed, s)
			}
			if min(s.reserved, s.promised, s.held, s.ready, s.busy, s.stuck) < 0 || s.promised > s.reserved {
				t.Fatalf("seed %d: a count is off: %+v", seed, s)
			}
		}
	}
}

func move(s *slots, r *rand.Rand) {
	switch r.IntN(10) {
	case 0:
		s.reserve(r.IntN(20), r.IntN(most+1))
	case 1:
		s.promise(r.IntN(20), r.IntN(most+1))
	case 2:
		s.unreserve(r.IntN(s.reserved - s.promised + 1))
	case 3:
		if s.promised > 0 {
			s.beganStarted()
		}
	case 4:
		if s.reserved > s.promised {
			s.beganHeld()
		}
	case 5:
		if s.held > 0 && s.free() > 0 {
			s.start()
		}
	case 6:
		if s.busy > 0 {
			s.stick()
		}
	case 7:
		if n := s.busy + s.stuck; n > 0 {
			s.end(r.IntN(n) >= s.busy)
		}
	case 8:
		if s.ready > 0 && s.vacant() > 0 {
			s.run()
		}
	case 9:
		if s.ready > 0 {
			s.dropReady()
		}
	}
}

func TestSlotsHeldComeFirst(t *testing.T) {
	s := slots{concurrency: 4, prefetch: 4}
	s.reserve(8, 0)
	for range 3 {
		s.beganHeld()
	}
	if n := s.promise(5, 0); n != 1 {
		t.Errorf("promised %d slots, want 1: three of the four belong to held tasks", n)
	}
}

// TestShareByWeight: over many fetches each queue gets its part, whatever the
// sizes of the fetches.
func TestShareByWeight(t *testing.T) {
	var s share
	weights := []int{1, 3, 6}
	queues := []int{0, 1, 2}
	for _, w := range weights {
		s.add(w, 1)
	}
	r := rand.New(rand.NewPCG(3, 4))
	var got [3]int
	total := 0
	for range 2000 {
		want := 1 + r.IntN(16)
		left := want
		for _, i := range s.order(queues) {
			n := min(left, s.part(i, want, queues))
			if n == 0 {
				continue
			}
			s.turns[i].note(0, time.Time{}, n, n, true)
			s.charge(i, n, queues)
			got[i] += n
			total += n
			left -= n
		}
	}
	for i, w := range weights {
		share := float64(got[i]) / float64(total)
		if want := float64(w) / 10; share < want*0.95 || share > want*1.05 {
			t.Errorf("queue of weight %d got %.3f of all, want %.1f", w, share, want)
		}
	}
}

// TestShareOfOneFetch: one fetch is divided too, so that long tasks of one
// queue do not fill all slots.
func TestShareOfOneFetch(t *testing.T) {
	var s share
	s.add(1, 1)
	s.add(3, 1)
	if a, b := s.part(0, 16, []int{0, 1}), s.part(1, 16, []int{0, 1}); a != 4 || b != 12 {
		t.Errorf("of 16 entries the queues get %d and %d, want 4 and 12", a, b)
	}
}

// TestShareIsNotSavedUp: a queue that was empty for long does not then shut
// the others out.
func TestShareIsNotSavedUp(t *testing.T) {
	var s share
	s.add(1, 1)
	s.add(1, 1)
	for range 1000 {
		s.turns[1].note(0, time.Time{}, 8, 0, true)
		s.charge(1, 0, []int{0, 1})
		s.turns[0].note(0, time.Time{}, 8, 8, true)
		s.charge(0, 8, []int{0, 1})
	}
	if p := s.part(1, 16, []int{0, 1}); p > 16 || s.credit[1] > 16 {
		t.Errorf("credit of the empty queue grew to %v", s.credit[1])
	}
}

func TestRetryDelay(t *testing.T) {
	j := newJitter(rand.NewPCG(1, 2))
	base, limit := time.Second, 15*time.Minute
	for failures := range 70 {
		least := min(time.Duration(1<<min(failures, 30))*base, limit)
		different := map[time.Duration]bool{}
		for range 50 {
			d := j.retryDelay(base, limit, failures)
			if d < least || d > least+least/4 {
				t.Fatalf("after %d failures: %v, want %v and a quarter more at most", failures, d, least)
			}
			different[d] = true
		}
		if len(different) < 40 {
			t.Errorf("after %d failures only %d different delays in 50: no jitter", failures, len(different))
		}
	}
}

func TestServerBackoffIsCapped(t *testing.T) {
	j := newJitter(rand.NewPCG(1, 2))
	for n := 1; n < 100; n++ {
		if d := j.serverBackoff(n); d < minBackoff/2 || d > maxBackoff {
			t.Fatalf("backoff %d is %v", n, d)
		}
	}
}

func TestVerdict(t *testing.T) {
	w := &Worker{cfg: Config{RetryBase: time.Second, RetryMax: time.Minute}, jitter: newJitter(rand.NewPCG(1, 2)), drain: make(chan struct{})}
	boom := errors.New("boom")
	tests := []struct {
		name   string
		err    error
		result []byte
		cause  error
		verb   verb
		reason FailureReason
		stands bool
	}{
		{name: "nil", verb: verbComplete, stands: true},
		{name: "nil after the timeout", cause: ErrTaskTimeout, verb: verbComplete, stands: true},
		{name: "nil after the lease", cause: queue.ErrLeaseLost, verb: verbComplete, stands: true},
		{name: "result too long", result: make([]byte, queue.MaxResultBytes+1), verb: verbDeadLetter, reason: FailedError, stands: true},
		{name: "error", err: boom, verb: verbRetry, reason: FailedError},
		{name: "error after timeout", err: boom, cause: ErrTaskTimeout, verb: verbRetry, reason: FailedTimeout},
		{name: "error while draining", err: boom, cause: ErrDraining, verb: verbRelease, reason: FailedCanceled},
		{name: "error after the lease", err: boom, cause: queue.ErrLeaseLost, verb: verbRetry, reason: FailedCanceled},
		{name: "panic while draining", err: &PanicError{}, cause: ErrDraining, verb: verbRetry, reason: FailedPanic},
		{name: "dead letter", err: fmt.Errorf("a: %w", DeadLetter(boom)), cause: ErrDraining, verb: verbDeadLetter, reason: FailedError, stands: true},
		{name: "retry after", err: fmt.Errorf("a: %w", RetryAfter(time.Hour, boom)), verb: verbRetry, reason: FailedError, stands: true},
		{name: "release", err: fmt.Errorf("a: %w", Release(nil)), verb: verbRelease, stands: true},
		{name: "joined", err: errors.Join(boom, DeadLetter(boom)), verb: verbDeadLetter, reason: FailedError, stands: true},
		{name: "hostile", err: hostileError{}, verb: verbRetry, reason: FailedError},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := w.verdictOf(&item{}, tt.result, tt.err, tt.cause)
			if v.verb != tt.verb || v.reason != tt.reason || v.stands != tt.stands {
				t.Errorf("verdict %+v", v)
			}
		})
	}
	v := w.verdictOf(&item{}, nil, RetryAfter(time.Hour, boom), nil)
	if d := v.delay; d < time.Hour || d > time.Hour+time.Hour/20 {
		t.Errorf("RetryAfter(1h) gave %v", d)
	}
	if !errors.Is(DeadLetter(boom), boom) || !errors.Is(RetryAfter(1, boom), boom) || !errors.Is(Release(boom), boom) {
		t.Error("the cause cannot be found in an outcome")
	}
}

type hostileError struct{}

func (hostileError) Error() string { panic("no text") }
func (hostileError) Is(error) bool { panic("no match") }
func (hostileError) As(any) bool   { panic("no type") }

func TestDecode(t *testing.T) {
	type invoice struct {
		Number int `json:"number"`
		To     struct {
			Name string `json:"name"`
		} `json:"to"`
	}
	const secret = "4242424242"
	for _, payload := range []string{`{"number": "` + secret + `"}`, secret + "x", `{"to": {"name": ` + secret + `}}`, "", `{"number": 1.5` + secret + `}`} {
		var in invoice
		err := decode([]byte(payload), &in)
		if d, ok := errors.AsType[*deadLetter](err); !ok || d.reason != FailedDecode {
			t.Errorf("payload %q: error %v is no dead letter", payload, err)
			continue
		}
		if strings.Contains(err.Error(), "4242") {
			t.Errorf("error quotes the payload: %v", err)
		}
		t.Log(err)
	}
	var in invoice
	if err := decode([]byte(`{"number": 7, "unknown": 1}`), &in); err != nil || in.Number != 7 {
		t.Errorf("%v %+v", err, in)
	}
	var s string
	var b []byte
	var none struct{}
	if decode([]byte("as it is"), &s) != nil || s != "as it is" || decode([]byte{0, 1}, &b) != nil || len(b) != 2 || decode(nil, &none) != nil {
		t.Error("text, bytes or nothing not taken as they are")
	}
}

func TestErrorCode(t *testing.T) {
	for text, want := range map[string]string{
		"NOGROUP No such key":                  "NOGROUP",
		"ERR NOGROUP No such key":              "NOGROUP",
		"UNBLOCKED the stream key no longer …": "UNBLOCKED",
		"ERR unknown command":                  "",
	} {
		if got := errorCode(fmt.Errorf("%w: read: %w", queue.ErrUnavailable, replyError(text))); got != want {
			t.Errorf("%q: code %q, want %q", text, got, want)
		}
	}
	if errorCode(errors.New("NOGROUP but not from the server")) != "" {
		t.Error("an error that is no reply has a code")
	}
}

type replyError string

func (e replyError) Error() string { return string(e) }
func (replyError) RedisError()     {}

func TestMux(t *testing.T) {
	var mux Mux
	var order []string
	trace := func(name string) func(Handler) Handler {
		return func(next Handler) Handler {
			return HandlerFunc(func(ctx context.Context, d Delivery) ([]byte, error) {
				order = append(order, name)
				return next.HandleTask(ctx, d)
			})
		}
	}
	mux.Use(trace("outer"))
	Handle(&mux, "a", func(context.Context, queue.Lease, string) error { order = append(order, "a"); return nil }, KindConfig{Timeout: time.Minute})
	mux.Use(trace("inner"))
	if mux.Handles("b") || !mux.Handles("a") {
		t.Error("Handles is wrong before there is a default")
	}
	mux.Default(func(_ context.Context, d Delivery) ([]byte, error) {
		order = append(order, "default "+d.Task.Kind)
		return nil, nil
	})
	for _, kind := range []string{"a", "b"} {
		if _, err := mux.HandleTask(t.Context(), Delivery{Task: queue.Task{Kind: kind}}); err != nil {
			t.Error(err)
		}
	}
	if got := strings.Join(order, " "); got != "outer inner a outer inner default b" {
		t.Errorf("called %q", got)
	}
	if r, _ := mux.Route("a"); r.Timeout != time.Minute {
		t.Errorf("timeout of kind a is %v", r.Timeout)
	}
}
