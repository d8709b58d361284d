package killpoints

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/queue"
)

// reaper counts the points that a worker passes, and ends it at one of them.
type reaper struct {
	at   string // "": none
	pass int    // the how manieth time, from 1
	list bool   // say which points there are

	mu   sync.Mutex
	seen map[string]int
}

// reach is called at every point.
func (r *reaper) reach(point string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[point]++
	if r.list && r.seen[point] == 1 {
		fmt.Fprintln(os.Stdout, "point", point)
	}
	if point == r.at && r.seen[point] == r.pass {
		fmt.Fprintln(os.Stdout, "died", point)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // nothing else in this process runs on
		select {}
	}
}

// redisHook makes points of the commands to Redis.
type redisHook struct{ r *reaper }

func (h redisHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (h redisHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		name := "redis " + queue.CommandOf(cmd).Name
		h.r.reach("before " + name)
		err := next(ctx, cmd)
		h.r.reach("after " + name)
		return err
	}
}

func (h redisHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var names []string
		for _, cmd := range cmds {
			c := queue.CommandOf(cmd)
			if c.Setup {
				return next(ctx, cmds)
			}
			if name := "redis " + c.Name; len(names) == 0 || names[0] != name {
				names = append(names, name)
			}
		}
		for _, name := range names {
			h.r.reach("before " + name)
		}
		err := next(ctx, cmds)
		for _, name := range names {
			h.r.reach("after " + name)
		}
		return err
	}
}

// tracer makes points of the statements to PostgreSQL.
type tracer struct{ r *reaper }

type statementKey struct{}

func (t tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	name := "postgres " + statementName(d.SQL)
	t.r.reach("before " + name)
	return context.WithValue(ctx, statementKey{}, name)
}

func (t tracer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if name, ok := ctx.Value(statementKey{}).(string); ok {
		t.r.reach("after " + name)
	}
}

// statementName is the verb of a statement, its table, and the columns that an
// insert names, so that a claim is told from a note of a fence.
func statementName(sql string) string {
	words := strings.Fields(strings.NewReplacer("\n", " ", ";", " ").Replace(sql))
	if len(words) == 0 {
		return "nothing"
	}
	switch words[0] {
	case "insert":
		columns := ""
		if open := strings.IndexByte(sql, '('); open >= 0 {
			columns, _, _ = strings.Cut(sql[open:], ")")
		}
		return "insert " + words[2] + " " + strings.ReplaceAll(strings.Trim(columns, "("), ", ", ",")
	case "update":
		return "update " + words[1]
	default:
		return words[0]
	}
}
