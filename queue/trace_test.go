package queue_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/queue"
)

var rewrite = flag.Bool("rewrite", false, "write the protocol traces anew; review the diff")

// TestProtocol replays testdata/protocol/*.txt: blocks of a command line, a
// line "----", and what the queue answered and left behind. Entry IDs, fences
// and digests are replaced by labels in order of appearance. Every trace runs
// against a real server and the in-process one; blocks that may differ there
// are listed in miniredisDiffers.
func TestProtocol(t *testing.T) {
	files, err := filepath.Glob("testdata/protocol/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no traces: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			redistest.Both(t, func(t *testing.T, b redistest.Backend) {
				if why := miniredisDiffers[name]; why != "" && !b.Real {
					t.Logf("differs on miniredis: %s", why)
					return
				}
				replay(t, file, b)
			})
		})
	}
}

// miniredisDiffers lists the traces whose answers a real server alone gives.
var miniredisDiffers = map[string]string{
	"deleted-outside": "XCLAIM of a deleted entry leaves its row, XPENDING leaves it out, and XACK of it answers 0",
}

func replay(t *testing.T, file string, b redistest.Backend) {
	raw, got := play(t, file, b)
	if *rewrite {
		if b.Real {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	if diff := cmp.Diff(strings.Split(raw, "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// play gives a trace as it is on file and as it goes now.
func play(t *testing.T, file string, b redistest.Backend) (want, got string) {
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	w := newTraceWorld(t, b)
	var out strings.Builder
	for block := range strings.SplitSeq(strings.TrimRight(string(raw), "\n"), "\n\n") {
		head, _, found := strings.Cut(block, "----")
		if !found {
			out.WriteString(block + "\n\n") // comment
			continue
		}
		var lines []string
		for line := range strings.Lines(strings.TrimRight(head, "\n")) {
			line = strings.TrimRight(line, "\n")
			if line != "" && !strings.HasPrefix(line, "#") {
				lines = append(lines, w.do(line)...)
			}
		}
		out.WriteString(strings.TrimRight(head, "\n") + "\n----\n")
		for _, l := range lines {
			out.WriteString(w.label(l) + "\n")
		}
		out.WriteString("\n")
	}
	return string(raw), strings.TrimRight(out.String(), "\n") + "\n"
}

// traceWorld is one queue and what its pretended workers hold.
type traceWorld struct {
	t       *testing.T
	q       *queue.Queue
	b       redistest.Backend
	prefix  string
	entries map[string][]queue.Entry
	leases  map[string]map[queue.TaskID]queue.Lease
	seen    map[string]string
	count   map[byte]int
	told    string // the last event that was shown
}

func newTraceWorld(t *testing.T, b redistest.Backend) *traceWorld {
	w := &traceWorld{
		t: t, b: b, prefix: redistest.Prefix(t),
		entries: map[string][]queue.Entry{}, leases: map[string]map[queue.TaskID]queue.Lease{},
		seen: map[string]string{}, count: map[byte]int{},
	}
	w.q = newQueue(t, queue.Config{Name: "q", Client: b.Client, Prefix: w.prefix, MaxFailures: 3, MaxInterruptions: 3, NoHandlerAfter: time.Millisecond})
	return w
}

// newQueue makes a queue that is closed with the test, and its groups.
func newQueue(t *testing.T, cfg queue.Config) *queue.Queue {
	t.Helper()
	q, err := queue.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	if err := q.Ensure(context.Background()); err != nil {
		t.Fatal(err)
	}
	return q
}

// token makes a readable owner token of a name.
func token(name string) queue.Token {
	return queue.Token((name + "____________")[:12] + "AA")
}

var labelled = []struct {
	letter byte
	re     *regexp.Regexp
}{
	{'s', regexp.MustCompile(`S1\d{12}-\d+\b`)}, // the streams number their entries each for itself
	{'d', regexp.MustCompile(`D1\d{12}-\d+\b`)},
	{'e', regexp.MustCompile(`1\d{12}-\d+\b`)},

	{'f', regexp.MustCompile(`\b1\d{15}\b`)},
}

var moment = regexp.MustCompile(`\b1\d{12}\b`)

// label replaces what differs from run to run.
func (w *traceWorld) label(s string) string {
	for _, l := range labelled {
		s = l.re.ReplaceAllStringFunc(s, func(v string) string {
			if w.seen[v] == "" {
				w.count[l.letter]++
				w.seen[v] = fmt.Sprintf("%c%d", l.letter, w.count[l.letter])
			}
			return w.seen[v]
		})
	}
	return moment.ReplaceAllString(s, "<ms>")
}

// args splits words into plain ones and name=value ones.
func args(words []string) (plain []string, named map[string]string) {
	named = map[string]string{}
	for _, word := range words {
		if name, value, ok := strings.Cut(word, "="); ok {
			named[name] = value
		} else {
			plain = append(plain, word)
		}
	}
	return plain, named
}

func atoi(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

func duration(s string) time.Duration {
	d, _ := time.ParseDuration(s)
	return d
}
