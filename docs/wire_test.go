package docs_test

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/queue"
)

// TestProducers runs the programs of wire-format.md, and a worker's first
// calls on what they have added.
func TestProducers(t *testing.T) {
	for _, p := range []struct{ file, run, debian string }{
		{"producer.py", "python3", "python3"},
		{"producer.sh", "redis-cli", "redis-tools"},
	} {
		t.Run(p.file, func(t *testing.T) {
			if _, err := exec.LookPath(p.run); err != nil {
				t.Fatalf("%s is needed and was not found: install the package %s (apt-get install %s)", p.run, p.debian, p.debian)
			}
			interpreter := "python3"
			if strings.HasSuffix(p.file, ".sh") {
				interpreter = "sh"
			}
			program := filepath.Join(t.TempDir(), p.file)
			if err := os.WriteFile(program, []byte(block(t, p.file)), 0o600); err != nil {
				t.Fatal(err)
			}
			prefix := redistest.Prefix(t)
			q := newQueue(t, redistest.Shared(t).Client(), prefix, 1)
			payloads := map[queue.TaskID]string{
				"invoice-4821-send": `{"number":4821}`,
				"empty":             "",
				"binary":            "a\x00b\r\nc\xff\n",
			}
			for id, payload := range payloads {
				out, err := start(t, prefix, payload, interpreter, program, string(id), "invoice.send")
				if err != nil {
					t.Fatalf("%s: %v\n%s", p.file, err, out)
				}
			}
			// A second time it is a copy.
			if out, err := start(t, prefix, "other", interpreter, program, "invoice-4821-send", "invoice.send"); err != nil {
				t.Fatalf("%s: %v\n%s", p.file, err, out)
			}
			batch := begin(t, q)
			if len(batch.Duplicates) != 1 || len(batch.Buried) != 0 || len(batch.Deliveries) != len(payloads) {
				t.Fatalf("%d deliveries, duplicates %v, buried %v", len(batch.Deliveries), batch.Duplicates, batch.Buried)
			}
			for _, d := range batch.Deliveries {
				want, ok := payloads[d.Task.ID]
				if !ok || d.Task.Kind != "invoice.send" || string(d.Task.Payload) != want {
					t.Errorf("task %q of kind %q with payload %q, want %q", d.Task.ID, d.Task.Kind, d.Task.Payload, want)
				}
			}
			// A refusal by the server is a failure of the program.
			if err := q.Config().Client.Set(t.Context(), prefix+":{broken.0}:stream", "no stream", 0).Err(); err != nil {
				t.Fatal(err)
			}
			t.Setenv("QUEUE", "broken")
			if out, err := start(t, prefix, "x", interpreter, program, "a", "k"); err == nil {
				t.Errorf("%s succeeded although the server refused: %s", p.file, out)
			}
		})
	}
}

// start runs a program of the page with a payload on its standard input.
func start(t *testing.T, prefix, payload, command string, args ...string) ([]byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	host, port, err := net.SplitHostPort(redistest.Shared(t).Addr())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Env = append([]string{"QUEUE=mail"}, os.Environ()...) // what the test sets wins
	cmd.Env = append(cmd.Env, "REDIS_HOST="+host, "REDIS_PORT="+port, "PREFIX="+prefix)
	cmd.Stdin = strings.NewReader(payload)
	return cmd.CombinedOutput()
}

// block returns the block of wire-format.md with a title.
func block(t *testing.T, title string) string {
	t.Helper()
	m := regexp.MustCompile("(?ms)^```\\w+ " + regexp.QuoteMeta(title) + "\n(.*?)^```$").FindStringSubmatch(read(t, "wire-format.md"))
	if m == nil {
		t.Fatalf("wire-format.md has no block titled %s", title)
	}
	return m[1]
}

func newQueue(t *testing.T, client *redis.Client, prefix string, partitions int) *queue.Queue {
	t.Helper()
	q, err := queue.New(queue.Config{Name: "mail", Client: client, Prefix: prefix, Partitions: partitions})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
	return q
}

// begin makes the group, as a worker that comes later would, and takes leases
// on everything that waits.
func begin(t *testing.T, q *queue.Queue) queue.Batch {
	t.Helper()
	if err := q.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	entries, err := queue.Read(t.Context(), queue.ReadRequest{Queues: []*queue.Queue{q}, Consumer: "w1", Max: 100})
	if err != nil {
		t.Fatal(err)
	}
	batch, err := q.Begin(t.Context(), queue.BeginRequest{Token: q.NewToken(), Entries: entries, Start: 100})
	if err != nil {
		t.Fatal(err)
	}
	return batch
}

// TestPartitionVectors holds the table from which other languages check their
// CRC-32C.
func TestPartitionVectors(t *testing.T) {
	rdb := redistest.Shared(t).Client()
	four, sixtyFour := newQueue(t, rdb, "p", 4), newQueue(t, rdb, "p", 64)
	page := read(t, "wire-format.md")
	for _, id := range []queue.TaskID{"invoice-4821-send", "a", "order:77/refund"} {
		sum := crc32.Checksum([]byte(id), crc32.MakeTable(crc32.Castagnoli))
		row := fmt.Sprintf("| `%s` | `%08x` | %d | %d |", id, sum, four.PartitionOf(id), sixtyFour.PartitionOf(id))
		if !strings.Contains(page, row) {
			t.Errorf("wire-format.md lacks the row %s", row)
		}
	}
}

// TestPartitionsAreOnTheServer: the page tells others to read them there.
func TestPartitionsAreOnTheServer(t *testing.T) {
	prefix := redistest.Prefix(t)
	rdb := redistest.Shared(t).Client()
	q := newQueue(t, rdb, prefix, 4)
	if err := q.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := rdb.HGet(t.Context(), prefix+":{mail.0}:conf", "partitions").Result(); err != nil || got != "4" {
		t.Errorf("partitions %q, %v", got, err)
	}
}

// TestPythonCRC runs the function that the page gives.
func TestPythonCRC(t *testing.T) {
	page := read(t, "wire-format.md")
	_, rest, found := strings.Cut(page, "    def crc32c(data):\n")
	if !found {
		t.Fatal("wire-format.md has no crc32c in Python")
	}
	var source strings.Builder
	source.WriteString("def crc32c(data):\n")
	for line := range strings.Lines(rest) {
		indented, ok := strings.CutPrefix(line, "    ")
		if !ok {
			break
		}
		source.WriteString(indented)
	}
	source.WriteString("import sys\nprint('%08x' % crc32c(sys.stdin.buffer.read()))\n")
	out, err := start(t, "p", "invoice-4821-send", "python3", "-c", source.String())
	want := crc32.Checksum([]byte("invoice-4821-send"), crc32.MakeTable(crc32.Castagnoli))
	if err != nil || string(bytes.TrimSpace(out)) != fmt.Sprintf("%08x", want) {
		t.Errorf("python: %q, %v; want %08x\n%s", out, err, want, source.String())
	}
}

// TestDeadLetterFields holds the order that the page gives.
func TestDeadLetterFields(t *testing.T) {
	prefix := redistest.Prefix(t)
	rdb := redistest.Shared(t).Client()
	q := newQueue(t, rdb, prefix, 1)
	if err := rdb.Do(t.Context(), "XADD", q.StreamKey(0), "*", "payload", "p").Err(); err != nil {
		t.Fatal(err)
	}
	if b := begin(t, q); len(b.Buried) != 1 {
		t.Fatalf("buried %v", b.Buried)
	}
	reply, err := rdb.Do(t.Context(), "XRANGE", prefix+":{mail.0}:dead", "-", "+").Slice()
	if err != nil || len(reply) != 1 {
		t.Fatalf("%v, %v", reply, err)
	}
	fields := reply[0].([]any)[1].([]any)
	_, section, _ := strings.Cut(read(t, "wire-format.md"), "\n## Reading the dead letters\n")
	rows := regexp.MustCompile("(?m)^\\| `(dead_\\w+)` \\|").FindAllStringSubmatch(section, -1)
	if len(rows) != 8 || len(fields) != 2*len(rows)+2 {
		t.Fatalf("%d rows, %d strings: %v", len(rows), len(fields), fields)
	}
	for i, row := range rows {
		if fields[2*i] != row[1] {
			t.Errorf("field %d is %v, not %s", i, fields[2*i], row[1])
		}
	}
	if fields[15] != "2" || fields[16] != "payload" || fields[17] != "p" {
		t.Errorf("after the eight: %v", fields[15:])
	}
}
