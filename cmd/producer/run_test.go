package main

import (
	"bytes"
	"encoding/json"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/claimq/claimq/internal/faultredis"
	"github.com/claimq/claimq/internal/redistest"
)

// TestIndefinite: the answers stop coming in the middle. The tasks that may or
// may not be there are counted as such, and the next run finds out. (E1)
func TestIndefinite(t *testing.T) {
	proxy := faultredis.NewProxy(t, redistest.Shared(t).Addr())
	t.Setenv("REDIS_URL", "redis://"+proxy.Addr()+"/0?read_timeout=100ms")
	t.Setenv("REDIS_KEY_PREFIX", redistest.Prefix(t))
	t.Setenv("PRODUCER_MAX_RETRIES", "1")

	const first, second = `{"id":"a","kind":"k"}` + "\n", `{"id":"b","kind":"k"}` + "\n"
	if code, r, _ := publish(t, strings.NewReader(first)); code != exitDone || r.Added != 1 {
		t.Fatalf("exit code %d, %+v", code, r)
	}
	in, feed := io.Pipe()
	go func() {
		_, _ = io.WriteString(feed, first+second) // the reader may be gone
		_ = feed.Close()
	}()
	// The queue is looked up before the answers stop: the first read is after it.
	code, r, problems := publish(t, io.MultiReader(readFunc(func() { proxy.BlackholeReplies() }), in))
	_ = in.Close()
	if code != exitIndefinite || r.Indefinite != 2 || !r.Stopped {
		t.Errorf("exit code %d, %+v", code, r)
	}
	if !strings.Contains(problems, "line 2: outcome indefinite") {
		t.Errorf("problems %s", problems)
	}
	proxy.Heal()
	code, r, _ = publish(t, strings.NewReader(first+second))
	if code != exitDone || r.Added+r.Duplicate != 2 {
		t.Errorf("afterwards: exit code %d, %+v", code, r)
	}
}

// TestReadError: what was read before it is added, and the rest is not
// forgotten in silence.
func TestReadError(t *testing.T) {
	t.Setenv("REDIS_URL", redistest.Shared(t).URL())
	t.Setenv("REDIS_KEY_PREFIX", redistest.Prefix(t))
	in, feed := io.Pipe()
	go func() {
		_, _ = io.WriteString(feed, `{"id":"a","kind":"k"}`+"\n")
		_ = feed.CloseWithError(io.ErrUnexpectedEOF)
	}()
	code, r, problems := publish(t, in)
	if code != exitFailed || r.Added != 1 || r.ReadError == "" || !strings.Contains(problems, "line 2: unexpected EOF") {
		t.Errorf("exit code %d, %+v, %s", code, r, problems)
	}
}

// TestLongLineIsNotKept: a line that does not end costs no more memory than
// the limit, and the next one is read.
func TestLongLineIsNotKept(t *testing.T) {
	var before, after runtime.MemStats
	s := newSource(io.MultiReader(io.LimitReader(endless{}, 64<<20), strings.NewReader("\n{}\n")), nil, 0, 1000)
	runtime.ReadMemStats(&before)
	long, _ := s.next()
	next, _ := s.next()
	_, more := s.next()
	runtime.ReadMemStats(&after)
	if long.bad == nil || next.bad != nil || next.line != 2 || more {
		t.Errorf("%+v, then %+v, more %v", long, next, more)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
		t.Errorf("%d bytes were allocated", grown)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// readFunc calls itself at the first read, and is empty.
type readFunc func()

func (f readFunc) Read([]byte) (int, error) {
	f()
	return 0, io.EOF
}

func publish(t *testing.T, in io.Reader) (code int, r report, problems string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run([]string{"-file", "-", "-json"}, in, &stdout, &stderr)
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		t.Fatalf("%v in %q; %s", err, stdout.String(), stderr.String())
	}
	return code, r, stderr.String()
}
