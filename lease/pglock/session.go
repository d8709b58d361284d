package pglock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/claimq/claimq/lease"
	"github.com/claimq/claimq/queue"
)

// lockNotAvailable is what a wait answers that lock_timeout ended.
const lockNotAvailable = "55P03"

// session is one connection that holds one lock, or has held it.
type session struct {
	key   int64
	fence queue.Fence

	mu     sync.Mutex // one statement at a time
	conn   *pgx.Conn
	hungUp bool // by us, in the middle of a statement: what was held is given back
}

func (each *session) end() {
	each.mu.Lock()
	defer each.mu.Unlock()
	hangUp(each.conn)
}

// connect opens a session for a lease.
func (s *Store) connect(ctx context.Context, r lease.Request) (*pgx.Conn, error) {
	cfg := s.cfg.Conn.Copy()
	// A connection that lives for a few statements has no use for prepared ones.
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	if cfg.RuntimeParams == nil {
		cfg.RuntimeParams = map[string]string{}
	}
	seconds := func(d time.Duration) string { return strconv.Itoa(int((d + time.Second - 1) / time.Second)) }
	name := "claimq lease " + r.Name
	for param, value := range map[string]string{
		"application_name":  name[:min(len(name), 63)],
		"statement_timeout": "0",
		"lock_timeout":      strconv.FormatInt(max(r.Wait.Milliseconds(), 1), 10),
		// The server takes the holder for gone no sooner than one length after it
		// last heard of it, and as soon as whole seconds permit.
		"tcp_keepalives_idle":     seconds(r.Length / 2),
		"tcp_keepalives_interval": seconds(r.Length / 6),
		"tcp_keepalives_count":    "3",
		"tcp_user_timeout":        strconv.FormatInt(r.Length.Milliseconds(), 10),
	} {
		cfg.RuntimeParams[param] = value
	}
	return pgx.ConnectConfig(ctx, cfg)
}

// lock takes the lock: at once, or within lock_timeout.
func lock(ctx context.Context, conn *pgx.Conn, key int64, wait time.Duration) (bool, error) {
	if wait <= 0 {
		var got bool
		err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", key).Scan(&got)
		return got, err
	}
	_, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", key)
	if timedOut(err) {
		return false, nil
	}
	return err == nil, err
}

// timedOut reports whether a wait for a lock ended in vain.
func timedOut(err error) bool {
	refusal, ok := errors.AsType[*pgconn.PgError](err)
	return ok && refusal.Code == lockNotAvailable
}

// holdsLock asks the server whether this session has the lock. It names the
// whole lock, for behind a pooler the session may be somebody else's.
const holdsLock = `SELECT pg_is_in_recovery(), EXISTS (
	SELECT FROM pg_locks
	WHERE locktype = 'advisory' AND granted AND pid = pg_backend_pid()
	  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
	  AND classid::bigint = $1 AND objid::bigint = $2 AND objsubid = 1)`

// check asks whether the lock is held. The error is that of the connection.
func (each *session) check(ctx context.Context) (held bool, err error) {
	var standby bool
	err = each.conn.QueryRow(ctx, holdsLock, int64(uint64(each.key)>>32), int64(uint32(each.key))).Scan(&standby, &held)
	return held && !standby, err
}

// nextFence takes a fence, in a transaction of its own.
func (s *Store) nextFence(ctx context.Context, conn *pgx.Conn, name string) (queue.Fence, error) {
	var fence int64
	err := conn.QueryRow(ctx, `
		INSERT INTO `+s.table+` AS f (name, fence) VALUES ($1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
		ON CONFLICT (name) DO UPDATE SET fence = greatest(f.fence + 1, excluded.fence)
		RETURNING fence`, s.cfg.Prefix+":"+name).Scan(&fence)
	if err != nil {
		return 0, fmt.Errorf("no fence from table %s (Setup makes it): %w", s.cfg.Table, err)
	}
	return queue.Fence(fence), nil
}
