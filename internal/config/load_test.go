package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/producer"
	"github.com/claimq/claimq/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestDefaultsAreTheLibraries: what the file calls a default is what a program
// gets that leaves the field zero.
func TestDefaultsAreTheLibraries(t *testing.T) {
	w, err := LoadWorker([]string{})
	if err != nil {
		t.Fatal(err)
	}
	if len(w.Warnings) > 0 {
		t.Errorf("the defaults warn: %q", w.Warnings)
	}
	p, err := LoadProducer([]string{"REDIS_URL=redis://localhost:6379/0"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name      string
		got, want any
	}{
		{"REDIS_KEY_PREFIX", w.Redis.KeyPrefix, queue.DefaultPrefix},
		{"QUEUE_LEASE", w.Queue.Lease, queue.DefaultLease},
		{"QUEUE_RETENTION", w.Queue.Retention, queue.DefaultRetention},
		{"QUEUE_MAX_PAYLOAD_BYTES", int(w.Queue.MaxPayload), queue.DefaultMaxPayload},
		{"QUEUE_MAX_FAILURES", w.Queue.MaxFailures, queue.DefaultMaxFailures},
		{"QUEUE_MAX_INTERRUPTIONS", w.Queue.MaxInterruptions, queue.DefaultMaxInterruptions},
		{"QUEUE_NO_HANDLER_AFTER", w.Queue.NoHandlerAfter, queue.DefaultNoHandlerAfter},
		{"WORKER_CONCURRENCY", w.Run.Concurrency, consumer.DefaultConcurrency},
		{"WORKER_MAX_STUCK", w.Run.MaxStuck, consumer.DefaultConcurrency},
		{"WORKER_TIMEOUT", w.Run.Timeout, consumer.DefaultTimeout},
		{"WORKER_GRACE", w.Run.Grace, consumer.DefaultGrace},
		{"WORKER_BLOCK", w.Run.Block, consumer.DefaultBlock},
		{"WORKER_DRAIN_TIMEOUT", w.Run.DrainTimeout, consumer.DefaultDrainTimeout},
		{"WORKER_RETRY_BASE", w.Run.RetryBase, consumer.DefaultRetryBase},
		{"WORKER_RETRY_MAX", w.Run.RetryMax, consumer.DefaultRetryMax},
		{"PRODUCER_TIMEOUT", p.Produce.Timeout, producer.DefaultTimeout},
		{"PRODUCER_MAX_RETRIES", p.Produce.MaxRetries, producer.DefaultMaxRetries},
		{"PRODUCER_BATCH", p.Produce.Batch, producer.DefaultBatch},
		{"PRODUCER_BATCH_BYTES", int(p.Produce.BatchBytes), producer.DefaultBatchBytes},
	} {
		if c.got != c.want {
			t.Errorf("%s: default %v, the library's is %v", c.name, c.got, c.want)
		}
	}
}

// TestProblems: each mistake is named by its variable, with the remedy.
func TestProblems(t *testing.T) {
	for _, c := range []struct{ env, variable, says string }{
		{"QUEUE_LEASE=5", "QUEUE_LEASE", `"5" has no unit; write for instance 5s`},
		{"QUEUE_LEASE=soon", "QUEUE_LEASE", "a number with a unit"},
		{"QUEUE_LEASE=2h", "QUEUE_LEASE", "use 200ms to 1h, got 2h"},
		{"QUEUE_LEASE=1500500us", "QUEUE_LEASE", "whole milliseconds"},
		{"QUEUE_KIND_LEASES=a:5s,b:1ms", "QUEUE_KIND_LEASES", `kind "b": use 200ms`},
		{"QUEUE_KIND_LEASES=a:5", "QUEUE_KIND_LEASES", "has no unit"},
		{"QUEUE_KIND_LEASES=a:5s,a:6s", "QUEUE_KIND_LEASES", "named twice"},
		{"QUEUE_KIND_LEASES=5s", "QUEUE_KIND_LEASES", "kind:duration"},
		{"QUEUE_PARTITIONS=two", "QUEUE_PARTITIONS", "whole number"},
		{"QUEUE_PARTITIONS=300", "QUEUE_PARTITIONS", "1 to 256"},
		{"QUEUE_MAX_PAYLOAD_BYTES=1GiB", "QUEUE_MAX_PAYLOAD_BYTES", "number of bytes"},
		{"QUEUE_MAX_PAYLOAD_BYTES=65MiB", "QUEUE_MAX_PAYLOAD_BYTES", "use 1 to 64MiB"},
		{"QUEUES=a:0", "QUEUES", "weight of 1 to 100"},
		{"QUEUES=a,a", "QUEUES", "named twice"},
		{"QUEUES=a{b}", "QUEUES", "letters, digits"},
		{"QUEUES= ,", "QUEUES", "name 1 to"},
		{"REDIS_KEY_PREFIX=a:b", "REDIS_KEY_PREFIX", "letters, digits"},
		{"REDIS_URL=localhost:6379", "REDIS_URL", "redis://"},
		{"REDIS_URL=http://localhost", "REDIS_URL", "redis://"},
		{"REDIS_URL=redis://localhost/zero", "REDIS_URL", "database number"},
		{"REDIS_URL=redis://localhost/0?pool_sise=4", "REDIS_URL", "option"},
		{"REDIS_CA_FILE=/does/not/exist", "REDIS_CA_FILE", "no such file"},
		{"REDIS_HOST=localhost", "REDIS_HOST", "no such variable"},
		{"REDIS_PORT=6379", "REDIS_PORT", "no such variable"},
		{"WORKER_CONCURENCY=4", "WORKER_CONCURENCY", "did you mean WORKER_CONCURRENCY?"},
		{"QUEUES_=a", "QUEUES_", "did you mean QUEUES?"},
		{"LOG_LEVEL=loud", "LOG_LEVEL", "debug, info, warn or error"},
		{"LOG_FORMAT=xml", "LOG_FORMAT", "auto, text or json"},
		{"OPS_ADDR=9090", "OPS_ADDR", "host:port"},
		{"OPS_PPROF=maybe", "OPS_PPROF", "true or false"},
		{"WORKER_RETRY_BASE=1h", "WORKER_RETRY_BASE", "WORKER_RETRY_MAX"},
		{"WORKER_DRAIN_TIMEOUT=1s", "WORKER_BLOCK", "WORKER_DRAIN_TIMEOUT"},
		{"PUSH_URLS=https://example.com", "PUSH_URLS", "kind=URL"},
		{"PUSH_URLS=https://example.com/?a=b", "PUSH_URLS", "kind=URL"},
		{"PUSH_URLS=a*b=https://example.com", "PUSH_URLS", "only at the end"},
		{"PUSH_URLS=a=ftp://example.com", "PUSH_URLS", "not an http://"},
		{"PUSH_URLS=a=https://x/,b=https://y/", "PUSH_URLS", "spaces, not commas"},
		{"PUSH_URLS=a=https://x/ a=https://y/", "PUSH_URLS", "named twice"},
		{"PUSH_DEAD_STATUS=429", "PUSH_DEAD_STATUS", "PUSH_RETRY_STATUS"},
		{"PUSH_DEAD_STATUS=200", "PUSH_DEAD_STATUS", "300 to 599"},
		{"PUSH_SIGNING_SECRET=abc", "PUSH_SIGNING_SECRET", "whsec_"},
		{"PUSH_SIGNING_SECRET=whsec_YWJj", "PUSH_SIGNING_SECRET", "3 bytes"},
		{"PUSH_EXTERNAL_ID_HEADER=a b", "PUSH_EXTERNAL_ID_HEADER", "name of a header"},
		{"PUSH_SIGNING_SECRET_FILE=/does/not/exist", "PUSH_SIGNING_SECRET_FILE", "no such file"},
	} {
		_, err := LoadWorker([]string{c.env})
		if !errors.Is(err, queue.ErrInvalidConfig) {
			t.Errorf("%s: error %v, want ErrInvalidConfig", c.env, err)
			continue
		}
		if s := err.Error(); !strings.Contains(s, ": "+c.variable+": ") || !strings.Contains(s, c.says) || strings.Contains(s, "\n") {
			t.Errorf("%s: error %q, want one line with %q and %q", c.env, s, c.variable, c.says)
		}
	}
}

func TestEveryProblemAtOnce(t *testing.T) {
	_, err := LoadProducer([]string{"QUEUE_LEASE=5", "QUEUE_PARTITIONS=0", "PRODUCER_BACH=3", "PRODUCER_BATCH=1000"})
	for _, name := range []string{"QUEUE_LEASE", "QUEUE_PARTITIONS", "PRODUCER_BACH", "PRODUCER_BATCH:", "REDIS_URL"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v does not name %s", err, name)
		}
	}
}

// TestForeignNames: what a container platform sets by itself is no mistake.
func TestForeignNames(t *testing.T) {
	_, err := LoadWorker([]string{
		"REDIS_SERVICE_HOST=10.0.0.1", "REDIS_SERVICE_PORT=6379", "REDIS_SERVICE_PORT_REDIS=6379",
		"REDIS_PORT=tcp://10.0.0.1:6379", "REDIS_PORT_6379_TCP=tcp://10.0.0.1:6379", "REDIS_PORT_6379_TCP_PROTO=tcp",
		"WORKER_SERVICE_HOST=10.0.0.2", "REDISTEST=1", "PATH=/bin",
	})
	if err != nil {
		t.Error(err)
	}
}

const password = "s3cr3t/p@ss" // not a real one

// TestSecretsStaySecret: no way of printing shows one, and neither does an
// error about a value that does not parse.
func TestSecretsStaySecret(t *testing.T) {
	key := "whsec_" + strings.Repeat("c2VjcmV0", 5)
	w, err := LoadWorker([]string{
		"REDIS_URL=rediss://alice:s3cr3t%2Fp%40ss@redis.example.com:6380/3",
		"PUSH_SIGNING_SECRET=" + key,
		"PUSH_URLS=*=https://u:tok3n@example.com/hook?t=tok3n",
	})
	if err != nil {
		t.Fatal(err)
	}
	var shown strings.Builder
	fmt.Fprintf(&shown, "%v %+v %#v\n", w, w, w)
	slog.New(slog.NewJSONHandler(&shown, nil)).Info("x", "redis", w.Redis, "push", w.Push, "url", w.Redis.URL, "urls", w.Push.URLs, "keys", w.Push.SigningSecrets)
	if err := json.NewEncoder(&shown).Encode(w); err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{password, "s3cr3t", "tok3n", "c2VjcmV0"} {
		if strings.Contains(shown.String(), secret) {
			t.Errorf("%q is shown in %s", secret, shown.String())
		}
	}
	if opt := w.RedisOptions(); opt.Password != password || opt.Username != "alice" || opt.DB != 3 || opt.TLSConfig == nil {
		t.Errorf("options: user %q, db %d, TLS %v, or the password is wrong", opt.Username, opt.DB, opt.TLSConfig != nil)
	}
	if got := w.Push.SigningSecrets.Reveal(); len(got) != 1 || got[0] != key {
		t.Error("the signing key is not what was given")
	}
	for _, env := range []string{
		"REDIS_URL=redis://:s3cr3t/p@ss@h/0", "REDIS_URL=redis://:s3cr3t%zz@h/0", "REDIS_URL=redis://u:1?s3cr3t@h/0",
		"REDIS_URL=redis://u:1#s3cr3t@h/x", "REDIS_URL=u:s3cr3t@h", "REDIS_URL=redis://h/s3cr3t", "REDIS_URL=redis://:s3cr3t@h:port/0",
		"PUSH_SIGNING_SECRET=s3cr3t", "PUSH_SIGNING_SECRET=whsec_s3cr3t", "PUSH_SIGNING_SECRET=whsec_!s3cr3t",
		"PUSH_URLS=s3cr3t", "PUSH_URLS=*=https://:s3cr3t%zz@h/", "PUSH_URLS=*=s3cr3t://h/",
	} {
		if _, err := LoadWorker([]string{env}); err == nil || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: error %v", env, err)
		}
	}
}

func TestSecretFromFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "url")
	write := func(s string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("redis://:pw@example.com:6379/1\n")
	p, err := LoadProducer([]string{"REDIS_URL_FILE=" + file})
	if err != nil {
		t.Fatal(err)
	}
	if got := p.RedisOptions(); got.Password != "pw" || got.DB != 1 {
		t.Errorf("options %+v", got)
	}
	if _, err := LoadProducer([]string{"REDIS_URL_FILE=" + file, "REDIS_URL=redis://x"}); err == nil || !strings.Contains(err.Error(), "keep one of the two") {
		t.Errorf("both set: %v", err)
	}
	write("redis://:pw@example.com:6379/1\n\n")
	if p, err := LoadProducer([]string{"REDIS_URL_FILE=" + file}); err == nil && p.RedisOptions().DB != 1 {
		t.Errorf("two newlines: %v", p)
	}
}

func TestValues(t *testing.T) {
	w, err := LoadWorker([]string{
		"QUEUES=high:3, low", "QUEUE_KIND_LEASES=a:b:5s,c:1m", "QUEUE_MAX_PAYLOAD_BYTES=1MiB", "OPS_ADDR=off",
		"PUSH_URLS=a.*=https://x/?q=1,2 *=http://y/", "PUSH_DEAD_STATUS=404", "LOG_LEVEL=WARN", "QUEUE_LEASE=",
		"REDIS_URL=redis://h:1/0?pool_size=77&max_retries=9",
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(w.Queue.Queues, w.Queue.KindLeases, w.Queue.MaxPayload, w.Ops.Addr == "", w.Push.DeadStatus, w.Log.Level.Level()); got !=
		"[{high 3} {low 1}] map[a:b:5s c:1m0s] 1MiB true [404] WARN" {
		t.Error(got)
	}
	if r := w.Push.URLs; len(r) != 2 || r[0] != (PushRoute{"a.*", "https://x/?q=1,2"}) {
		t.Errorf("routes %q", r)
	}
	if w.Queue.Lease != queue.DefaultLease {
		t.Errorf("an empty value gives %v, want the default", w.Queue.Lease)
	}
	if opt := w.RedisOptions(); opt.PoolSize != 77 || opt.MaxRetries != -1 {
		t.Errorf("pool %d, retries %d", opt.PoolSize, opt.MaxRetries)
	}
	if (Worker{}).RedisOptions() != nil || !(Redis{}).Embedded() {
		t.Error("without a URL there are no options")
	}
}

func TestTimeoutsFollowShortLeases(t *testing.T) {
	for lease, want := range map[string]time.Duration{"15s": 3 * time.Second, "3s": time.Second, "200ms": 100 * time.Millisecond} {
		w, err := LoadWorker([]string{"REDIS_URL=redis://h", "QUEUE_KIND_LEASES=a:" + lease})
		if err != nil {
			t.Fatal(err)
		}
		if got := w.RedisOptions().ReadTimeout; got != want {
			t.Errorf("lease %s: read timeout %v, want %v", lease, got, want)
		}
	}
}

// TestWarnings: allowed, and doubtful.
func TestWarnings(t *testing.T) {
	for _, c := range []struct{ env, says string }{
		{"QUEUE_RETENTION=10s", "QUEUE_RETENTION (10s) is shorter"}, // F2
		{"QUEUE_LEASE=1s", "WORKER_BLOCK (2s) is longer"},
		{"PUSH_URLS=*=https://x/", "PUSH_SIGNING_SECRET is not set"},
		{"REDIS_URL=rediss://h?skip_verify=true", "skip_verify"},
	} {
		w, err := LoadWorker([]string{c.env})
		if err != nil || !strings.Contains(strings.Join(w.Warnings, "\n"), c.says) {
			t.Errorf("%s: %v, warnings %q", c.env, err, w.Warnings)
		}
	}
}

// TestStepsOutlastRetries: steps that are kept in a database for a shorter time
// than attempts may take are warned of. (F2)
func TestStepsOutlastRetries(t *testing.T) {
	for retention, warns := range map[string]bool{"1h": true, "2160h": false} {
		w, err := LoadWorker([]string{"POSTGRES_URL=postgres://h/db", "POSTGRES_RETENTION=" + retention})
		if err != nil || strings.Contains(strings.Join(w.Warnings, "\n"), "POSTGRES_RETENTION") != warns {
			t.Errorf("%s: %q, %v", retention, w.Warnings, err)
		}
	}
}
