package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/claimq/claimq/producer/outbox"
	"github.com/claimq/claimq/queue"
)

// TestRelayDefaultsAreTheLibrary's, as in TestDefaultsAreTheLibraries.
func TestRelayDefaultsAreTheLibrarys(t *testing.T) {
	r, err := LoadRelay([]string{"REDIS_URL=redis://localhost:6379/0", "POSTGRES_URL=postgres://localhost/app"})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Warnings) > 0 {
		t.Errorf("the defaults warn: %q", r.Warnings)
	}
	for _, c := range []struct {
		name      string
		got, want any
	}{
		{"POSTGRES_SCHEMA", r.Postgres.Schema, outbox.DefaultSchema},
		{"RELAY_BATCH", r.Move.Batch, outbox.DefaultBatch},
		{"RELAY_POLL", r.Move.Poll, outbox.DefaultPoll},
		{"RELAY_TIMEOUT", r.Move.Timeout, outbox.DefaultTimeout},
		{"RELAY_KEEP", r.Move.Keep, outbox.DefaultKeep},
	} {
		if c.got != c.want {
			t.Errorf("%s: default %v, the library's is %v", c.name, c.got, c.want)
		}
	}
}

func TestRelayProblems(t *testing.T) {
	both := []string{"REDIS_URL=redis://localhost:6379/0", "POSTGRES_URL=postgres://localhost/app"}
	for _, c := range []struct {
		env            []string
		variable, says string
	}{
		{[]string{both[0]}, "POSTGRES_URL", "not set"},
		{[]string{both[1]}, "REDIS_URL", "not set"},
		{append(both, "RELAY_BATCH=1001"), "RELAY_BATCH", "1 to 1000"},
		{append(both, "RELAY_POOL=1s"), "RELAY_POOL", "did you mean RELAY_POLL?"},
		{[]string{both[0], "POSTGRES_URL=localhost:5432"}, "POSTGRES_URL", "postgres://"},
		{[]string{both[0], "POSTGRES_URL=postgres://localhost:port/app"}, "POSTGRES_URL", "postgres://"},
	} {
		_, err := LoadRelay(c.env)
		if !errors.Is(err, queue.ErrInvalidConfig) || !strings.Contains(err.Error(), ": "+c.variable+": ") ||
			!strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", c.env, err)
		}
	}
}

// TestPostgresPasswordIsHidden from everything that prints, also when the URL
// does not parse.
func TestPostgresPasswordIsHidden(t *testing.T) {
	r, err := LoadRelay([]string{"REDIS_URL=redis://localhost:6379/0", "POSTGRES_URL=postgres://user:hunter2@db.example.com:6432/app?sslmode=disable"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(r.Postgres)
	if err != nil {
		t.Fatal(err)
	}
	_, bad := LoadRelay([]string{"POSTGRES_URL=postgres://admin:hunter2@db.example.com:x/app"})
	for _, shown := range []string{
		fmt.Sprint(r.Postgres), fmt.Sprintf("%#v", r.Postgres), r.Postgres.URL.LogValue().String(), string(text), bad.Error(),
	} {
		if strings.Contains(shown, "hunter2") || strings.Contains(shown, "user:h") || strings.Contains(shown, "admin") {
			t.Errorf("shown: %s", shown)
		}
	}
	if s := r.Postgres.URL.String(); s != "postgres://db.example.com:6432/app" {
		t.Errorf("%s", s)
	}
	conf := r.Postgres.PoolConfig(50)
	if conf.MaxConns != 50 || conf.ConnConfig.Password != "hunter2" || conf.ConnConfig.ConnectTimeout != 5*time.Second {
		t.Errorf("%d connections, %v", conf.MaxConns, conf.ConnConfig.ConnectTimeout)
	}
	if (Postgres{}).PoolConfig(1) != nil || (PostgresURL{}).IsSet() {
		t.Error("a database that is not named has settings")
	}
}
