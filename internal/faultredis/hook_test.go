package faultredis_test

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/claimq/claimq/internal/faultredis"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// setup returns a client with a hook, one without that sees the truth, and a
// key of the test's own.
func setup(t *testing.T, b redistest.Backend) (h *faultredis.Hook, broken, sound *redis.Client, key string) {
	opt := *b.Client.Options()
	opt.DialerRetries = 1 // a refused dial is refused at once
	broken = redis.NewClient(&opt)
	t.Cleanup(func() { _ = broken.Close() })
	return faultredis.New(broken), broken, b.Client, redistest.Prefix(t) + ":n"
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

func wantValue(t *testing.T, sound *redis.Client, key, want string) {
	t.Helper()
	got, err := sound.Get(t.Context(), key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("on the server: %q, want %q", got, want)
	}
}

func TestFailBeforeSendsNothing(t *testing.T) {
	redistest.Both(t, func(t *testing.T, b redistest.Backend) {
		h, broken, sound, key := setup(t, b)
		f := h.Inject(faultredis.FailBefore(faultredis.Command("incr")).Once())
		if err := broken.Incr(t.Context(), key).Err(); !isTimeout(err) {
			t.Errorf("err = %v, want a timeout", err)
		}
		wantValue(t, sound, key, "")
		if err := broken.Incr(t.Context(), key).Err(); err != nil {
			t.Errorf("after the one time: %v", err)
		}
		if f.Fired() != 1 {
			t.Errorf("fired %d times, want 1", f.Fired())
		}
	})
}

func TestFailBeforeWithAnotherError(t *testing.T) {
	_, c := redistest.Mini(t)
	h := faultredis.New(c)
	h.Inject(faultredis.FailBefore(nil).With(faultredis.ErrRefused))
	op, ok := errors.AsType[*net.OpError](c.Ping(t.Context()).Err())
	if !ok || op.Op != "dial" || op.Timeout() {
		t.Errorf("err = %v, want a refused dial", op)
	}
}

func TestLoseReplyApplies(t *testing.T) {
	redistest.Both(t, func(t *testing.T, b redistest.Backend) {
		h, broken, sound, key := setup(t, b)
		f := h.Inject(faultredis.LoseReply(faultredis.Command("incr")).Times(2))
		for range 2 {
			got, err := broken.Incr(t.Context(), key).Result()
			if !isTimeout(err) || got != 0 {
				t.Errorf("got %d, %v; want nothing and a timeout", got, err)
			}
		}
		wantValue(t, sound, key, "2")
		if f.Fired() != 2 {
			t.Errorf("fired %d times, want 2", f.Fired())
		}
	})
}

func TestLoseReplyOfABrokenConnectionReportsThat(t *testing.T) {
	m, c := redistest.Mini(t)
	h := faultredis.New(c)
	h.Inject(faultredis.LoseReply(nil))
	m.Close()
	if err := c.Ping(t.Context()).Err(); isTimeout(err) || err == nil {
		t.Errorf("err = %v, want the broken connection", err)
	}
}

func TestReplyErrorIsOneForTheClient(t *testing.T) {
	redistest.Both(t, func(t *testing.T, b redistest.Backend) {
		h, broken, sound, key := setup(t, b)
		for text, is := range map[string]func(error) bool{
			"LOADING Redis is loading the dataset in memory":             redis.IsLoadingError,
			"READONLY You can't write against a read only replica.":      redis.IsReadOnlyError,
			"OOM command not allowed when used memory > 'maxmemory'.":    redis.IsOOMError,
			"NOPERM this user has no permissions to run the command":     redis.IsPermissionError,
			"BUSY Redis is busy running a script.":                       func(err error) bool { return redis.HasErrorPrefix(err, "BUSY") },
			"MASTERDOWN Link with MASTER is down":                        redis.IsMasterDownError,
			"NOREPLICAS Not enough good replicas to write.":              redis.IsNoReplicasError,
			"NOAUTH Authentication required.":                            redis.IsAuthError,
			"CLUSTERDOWN The cluster is down":                            redis.IsClusterDownError,
			"NOGROUP No such key 'x' or consumer group":                  func(err error) bool { return redis.HasErrorPrefix(err, "NOGROUP") },
			"ERR max number of clients reached":                          redis.IsMaxClientsError,
			"UNBLOCKED the stream key no longer exists, or is different": func(err error) bool { return redis.HasErrorPrefix(err, "UNBLOCKED") },
		} {
			h.Inject(faultredis.ReplyError(faultredis.Command("incr"), text).Once())
			err := broken.Incr(t.Context(), key).Err()
			if !is(err) || err.Error() != text {
				t.Errorf("%q came back as %v", text, err)
			}
			if _, ok := errors.AsType[redis.Error](err); !ok {
				t.Errorf("%q is not a redis.Error", text)
			}
		}
		wantValue(t, sound, key, "")
	})
}

func TestScriptMatchesByDigestAndBySource(t *testing.T) {
	redistest.Both(t, func(t *testing.T, b redistest.Backend) {
		h, broken, sound, key := setup(t, b)
		// The key is in the source, so that the server cannot know the script yet.
		source := "-- " + key + "\nreturn redis.call('INCR', KEYS[1])"
		other := redis.NewScript("return 7")
		f := h.Inject(faultredis.LoseReply(faultredis.After(1, faultredis.Script(source))))
		err := redis.NewScript(source).Run(t.Context(), broken, []string{key}).Err()
		if !isTimeout(err) {
			t.Errorf("EVAL after NOSCRIPT: %v, want a timeout", err)
		}
		err = redis.NewScript(source).Run(t.Context(), broken, []string{key}).Err()
		if !isTimeout(err) {
			t.Errorf("EVALSHA: %v, want a timeout", err)
		}
		if err := other.Run(t.Context(), broken, nil).Err(); err != nil {
			t.Errorf("another script: %v", err)
		}
		wantValue(t, sound, key, "2")
		if f.Fired() != 2 {
			t.Errorf("fired %d times, want 2", f.Fired())
		}
	})
}

func TestMatchers(t *testing.T) {
	ctx := t.Context()
	get, set := redis.NewCmd(ctx, "GET", "a:1"), redis.NewCmd(ctx, "set", "b:1", 5)
	for name, c := range map[string]struct {
		m        faultredis.Match
		get, set bool
	}{
		"command":  {faultredis.Command("get", "mget"), true, false},
		"mentions": {faultredis.Mentions("b:"), false, true},
		"all":      {faultredis.All(faultredis.Command("get"), faultredis.Mentions("b:")), false, false},
		"script":   {faultredis.Script("return 1"), false, false},
	} {
		if c.m(get) != c.get || c.m(set) != c.set {
			t.Errorf("%s: get %v, set %v", name, c.m(get), c.m(set))
		}
	}
	second := faultredis.After(1, faultredis.Command("get"))
	if second(get) || second(set) || !second(get) || !second(get) {
		t.Error("After(1) does not let exactly the first one pass")
	}
}

func TestHoldBeforeAndAfter(t *testing.T) {
	redistest.Both(t, func(t *testing.T, b redistest.Backend) {
		for name, c := range map[string]struct {
			fault faultredis.Fault
			held  string // on the server while the command is held
		}{
			"before": {faultredis.HoldBefore(faultredis.Command("set")), ""},
			"after":  {faultredis.HoldAfter(faultredis.Command("set")), "v"},
		} {
			t.Run(name, func(t *testing.T) {
				h, broken, sound, key := setup(t, b)
				f := h.Inject(c.fault)
				result := make(chan error, 1)
				go func() { result <- broken.Set(t.Context(), key, "v", time.Minute).Err() }()
				await(t, f.Reached())
				wantValue(t, sound, key, c.held)
				select {
				case err := <-result:
					t.Fatalf("returned while held: %v", err)
				default:
				}
				f.Release()
				if err := <-result; err != nil {
					t.Error(err)
				}
				wantValue(t, sound, key, "v")
			})
		}
	})
}

func TestHeldCommandEndsWithItsContext(t *testing.T) {
	_, c := redistest.Mini(t)
	for name, fault := range map[string]faultredis.Fault{
		"before": faultredis.HoldBefore(nil),
		"after":  faultredis.HoldAfter(nil),
	} {
		h := faultredis.New(c)
		f := h.Inject(fault)
		ctx, cancel := context.WithCancelCause(t.Context())
		result := make(chan error, 1)
		go func() { result <- c.Ping(ctx).Err() }()
		await(t, f.Reached())
		cause := errors.New("given up")
		cancel(cause)
		if err := <-result; !errors.Is(err, cause) {
			t.Errorf("%s: %v, want the cause", name, err)
		}
		f.Remove()
	}
}

func TestFailDialAndClear(t *testing.T) {
	redistest.Both(t, func(t *testing.T, b redistest.Backend) {
		h, broken, _, _ := setup(t, b)
		f := h.Inject(faultredis.FailDial())
		op, ok := errors.AsType[*net.OpError](broken.Ping(t.Context()).Err())
		if !ok || op.Op != "dial" {
			t.Errorf("err = %v, want a refused dial", op)
		}
		if f.Fired() == 0 {
			t.Error("no dial was counted")
		}
		h.Clear()
		if err := broken.Ping(t.Context()).Err(); err != nil {
			t.Errorf("after Clear: %v", err)
		}
	})
}

func await(t *testing.T, done <-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	select {
	case <-done:
	case <-ctx.Done():
		t.Fatal("did not happen in a minute")
	}
}
