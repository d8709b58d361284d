package faultredis_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/claimq/claimq/internal/faultredis"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// through returns a proxy to the shared server, a client that uses it and has
// a connection up, and a client that does not use it.
func through(t *testing.T) (p *faultredis.Proxy, far, near *redis.Client, key string) {
	t.Helper()
	s := redistest.Shared(t)
	p = faultredis.NewProxy(t, s.Addr())
	far = s.Client(func(o *redis.Options) {
		o.Addr = p.Addr()
		o.ReadTimeout = 300 * time.Millisecond
		o.DialerRetries = 1
	})
	if err := far.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	return p, far, s.Client(), redistest.Prefix(t) + ":k"
}

func TestProxyCutBreaksConnectionsAndTakesNewOnes(t *testing.T) {
	p, far, _, _ := through(t)
	if p.Connections() != 1 {
		t.Fatalf("%d connections, want 1", p.Connections())
	}
	conn := far.Conn() // holds on to its connection, where the pool would replace it
	defer conn.Close()
	if err := conn.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	p.Cut()
	if err := conn.Ping(t.Context()).Err(); err == nil {
		t.Error("a cut connection answered")
	}
	if err := far.Ping(t.Context()).Err(); err != nil {
		t.Errorf("new connection: %v", err)
	}
}

func TestProxyRefuseAndHeal(t *testing.T) {
	p, far, _, _ := through(t)
	for range 2 {
		p.Refuse()
		p.Refuse()
		p.Cut()
		until(t, func() bool { return errors.Is(far.Ping(t.Context()).Err(), syscall.ECONNREFUSED) })
		p.Heal()
		p.Heal()
		if err := far.Ping(t.Context()).Err(); err != nil {
			t.Errorf("after Heal: %v", err)
		}
	}
}

func TestProxyBlackholeRepliesAppliesAndTimesOut(t *testing.T) {
	p, far, near, key := through(t)
	p.BlackholeReplies()
	if err := far.Set(t.Context(), key, "v", time.Minute).Err(); !isTimeout(err) {
		t.Errorf("err = %v, want a timeout", err)
	}
	wantValue(t, near, key, "v")
	p.Heal()
	if err := far.Ping(t.Context()).Err(); err != nil {
		t.Errorf("after Heal: %v", err)
	}
}

func TestProxyBlackholeRequestsDeliversLate(t *testing.T) {
	p, far, near, key := through(t)
	p.BlackholeRequests()
	if err := far.Set(t.Context(), key, "v", time.Minute).Err(); !isTimeout(err) {
		t.Errorf("err = %v, want a timeout", err)
	}
	wantValue(t, near, key, "")
	p.Heal()
	// The client gave up long ago and closed the connection.
	until(t, func() bool { return near.Get(t.Context(), key).Val() == "v" })
}

func TestProxyCutDropsWhatABlackholeHolds(t *testing.T) {
	p, far, near, key := through(t)
	p.BlackholeRequests()
	if err := far.Set(t.Context(), key, "v", time.Minute).Err(); !isTimeout(err) {
		t.Errorf("err = %v, want a timeout", err)
	}
	p.Cut()
	until(t, func() bool { return p.Connections() == 0 })
	p.Heal()
	if err := far.Ping(t.Context()).Err(); err != nil {
		t.Errorf("after Heal: %v", err)
	}
	wantValue(t, near, key, "")
}

func TestProxyPassesLargeValues(t *testing.T) {
	p, far, near, key := through(t)
	large := string(make([]byte, 3<<20))
	if err := far.Set(t.Context(), key, large, time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	if got := near.StrLen(t.Context(), key).Val(); got != int64(len(large)) {
		t.Errorf("%d bytes arrived", got)
	}
	if got, err := far.Get(t.Context(), key).Result(); err != nil || got != large {
		t.Errorf("came back with %d bytes, %v", len(got), err)
	}
	if err := far.Close(); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return p.Connections() == 0 })
}

func TestProxyToNobody(t *testing.T) {
	s := redistest.Start(t)
	p := faultredis.NewProxy(t, s.Addr())
	c := s.Client(func(o *redis.Options) { o.Addr = p.Addr() })
	s.Kill()
	if err := c.Ping(t.Context()).Err(); err == nil {
		t.Error("answered without a server")
	}
}

// until polls for at most a minute.
func until(t *testing.T, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("did not come true in a minute")
		}
	}
}

func TestProxyRetargetMovesClients(t *testing.T) {
	p, far, _, key := through(t)
	other := redistest.Start(t)
	if err := other.Client().Set(t.Context(), key, "there", 0).Err(); err != nil {
		t.Fatal(err)
	}
	p.Retarget(other.Addr())
	until(t, func() bool { return far.Get(t.Context(), key).Val() == "there" })
}

func TestProxyDelayHoldsBack(t *testing.T) {
	p, far, _, _ := through(t)
	const delay = 50 * time.Millisecond
	p.Delay(delay)
	began := time.Now()
	if err := far.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 2*delay {
		t.Errorf("a round trip took %v, want at least %v", took, 2*delay)
	}
	p.Heal()
	if err := far.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
}
