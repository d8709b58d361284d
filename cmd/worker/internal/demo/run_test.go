package demo

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/internal/embedded"
	"github.com/claimq/claimq/queue"
)

// testConfig is a run on an embedded Redis whose workers are this test binary
// with other arguments: they deliver nothing.
func testConfig(t *testing.T, args ...string) Config {
	t.Helper()
	srv, err := embedded.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	t.Cleanup(func() { rdb.Close() })
	q, err := queue.New(queue.Config{Name: "demo", Client: rdb, Lease: Lease})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	tasks, err := Generate(5)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Tasks: tasks, Queue: q, Command: append([]string{self}, args...), Arg0: os.Args[0],
		Env: []string{idleVar + "=1"}, Out: io.Discard, Began: time.Now(),
	}
}

// idleVar makes this test binary a worker that only waits.
const idleVar = "CLAIMQ_TEST_IDLE_WORKER"

// TestIdleWorker is no test: it is the process that the others start. Like a
// worker, it stays until its input ends.
func TestIdleWorker(t *testing.T) {
	if os.Getenv(idleVar) == "" {
		return
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		t.Fatal(err)
	}
}

func TestAWorkerThatEndsByItselfFailsTheRun(t *testing.T) {
	_, err := Run(t.Context(), testConfig(t, "-test.run=^$"))
	if err == nil || !strings.Contains(err.Error(), "ended by itself") {
		t.Errorf("%v", err)
	}
}

func TestOutOfTimeSaysHowFarItCame(t *testing.T) {
	cfg := testConfig(t, "-test.run=^TestIdleWorker$")
	cfg.Began = time.Now().Add(time.Second - limit)
	_, err := Run(t.Context(), cfg)
	if !errors.Is(err, errTime) || !strings.Contains(err.Error(), "5 waiting, 0 pending") {
		t.Errorf("%v", err)
	}
}

// Run returns only when every process it started is gone; were one left, its
// goroutines here would be too, and TestMain would say so.
func TestInterruptLeavesNoProcess(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("interrupted")
	cfg := testConfig(t, "-test.run=^TestIdleWorker$")
	cfg.Out = writerFunc(func(b []byte) {
		if strings.Contains(string(b), "enqueued again") {
			cancel(stop)
		}
	})
	if _, err := Run(ctx, cfg); !errors.Is(err, stop) {
		t.Errorf("%v", err)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}
