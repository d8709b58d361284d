package claimqtest

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Pool returns connections of this worker's own, made as those of pool are:
// every statement is a point, and the worker's end closes them. Use them for
// everything that the handler does in PostgreSQL, a ledger included.
//
// A handler that is killed or paused between two statements leaves its
// transaction open, as a real one does, until the server knows that it is gone.
// ReplyLost does nothing on an encrypted connection.
func (w *Worker) Pool(pool *pgxpool.Pool) *pgxpool.Pool {
	cfg := pool.Config()
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := w.dial(seamPostgres, func() (net.Conn, error) { return dial(ctx, network, addr) })
		if err != nil {
			return nil, err
		}
		return &pgConn{gatedConn: c, bubble: !w.tr.plan.RealTime}, nil
	}
	cfg.ConnConfig.Fallbacks = nil
	cfg.ConnConfig.Tracer = tracer{w}
	cfg.MinConns, cfg.MinIdleConns = 0, 0
	own, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		w.err = errors.Join(w.err, err)
		return pool
	}
	w.closers = append(w.closers, own.Close)
	return own
}

// tracer makes points of statements.
type tracer struct{ w *Worker }

// traced is what the end of a statement knows of its beginning.
type traced struct{}

func (t tracer) TraceQueryStart(ctx context.Context, conn *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	return t.start(ctx, conn, shortSQL(d.SQL))
}

func (t tracer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) { t.end(ctx) }

func (t tracer) TraceBatchStart(ctx context.Context, conn *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return t.start(ctx, conn, "a batch")
}

func (t tracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (t tracer) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchEndData) { t.end(ctx) }

func (t tracer) start(ctx context.Context, conn *pgx.Conn, name string) context.Context {
	w := t.w
	if name == "rollback" {
		return ctx // whoever is gone rolls back
	}
	if s, ok := ctx.Value(stepKey{}).(step); ok {
		name += " for " + s.what + " of step " + s.name
	}
	f := w.tr.arrive(w, name, seamPostgres)
	if err := w.suffer(f, seamPostgres); err != nil {
		_ = conn.PgConn().Conn().Close()
	}
	if f == ReplyLost {
		loseReply(conn.PgConn().Conn())
	}
	if w.gate() != nil {
		_ = w.buried()
	}
	return context.WithValue(ctx, traced{}, true)
}

func (t tracer) end(ctx context.Context) {
	if ctx.Value(traced{}) != nil && t.w.gate() != nil {
		_ = t.w.buried()
	}
}

// shortSQL is how a statement is called: its first words.
func shortSQL(sql string) string {
	sql, _, _ = strings.Cut(sql, ";")
	words := strings.Fields(sql)
	if len(words) == 0 {
		return "a statement"
	}
	words[0] = strings.ToLower(words[0])
	most := 3 // insert into t, delete from t
	switch words[0] {
	case "begin", "commit", "rollback":
		most = 1
	case "update":
		most = 2
	case "select":
		from := slices.IndexFunc(words, func(w string) bool { return strings.EqualFold(w, "from") })
		if from > 0 {
			words = append(words[:1], words[from:]...)
		}
	}
	return strings.Join(words[:min(len(words), most)], " ")
}

// pgConn is a connection to PostgreSQL. In a bubble a read of a socket keeps
// time from going on, and where a statement waits for the lock of a worker that
// is paused, time has to: so it is read in short turns, and a little time goes
// by between them.
type pgConn struct {
	*gatedConn
	bubble bool

	mu       sync.Mutex
	deadline time.Time
	loses    bool // the reply to the next statement
}

const (
	turn      = 5 * time.Millisecond // of reading
	fastAfter = 20                   // turns; a server that takes longer may be waiting for a lock
	slowTurn  = 5 * time.Millisecond // of time in the bubble, for each turn
	fastTurn  = time.Second
)

func (c *pgConn) Read(b []byte) (int, error) {
	for turns := 1; ; turns++ {
		if c.bubble {
			_ = c.Conn.SetReadDeadline(c.until())
		}
		n, err := c.gatedConn.Read(b)
		if err == nil && c.drops(b[:n]) {
			_ = c.Close()
			return 0, errReply
		}
		if !c.bubble || n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || c.isOver() {
			return n, err
		}
		if turns > fastAfter && c.p.tr.somebodyIsPaused() {
			time.Sleep(fastTurn)
		} else {
			time.Sleep(slowTurn)
		}
	}
}

// until is the end of one turn.
func (c *pgConn) until() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := time.Now().Add(turn)
	if !c.deadline.IsZero() && c.deadline.Before(next) {
		return c.deadline
	}
	return next
}

func (c *pgConn) isOver() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.deadline.IsZero() && !time.Now().Before(c.deadline)
}

func (c *pgConn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.Conn.SetWriteDeadline(t)
}

func (c *pgConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	c.deadline = t
	c.mu.Unlock()
	return c.Conn.SetReadDeadline(t)
}

// loseReply drops the reply to the next statement that is run on c, and with it
// the connection.
func loseReply(c net.Conn) {
	if encrypted, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = encrypted.NetConn()
	}
	if p, ok := c.(*pgConn); ok {
		p.mu.Lock()
		p.loses = true
		p.mu.Unlock()
	}
}

// drops reports whether data is a reply to be lost: one that says that a
// statement is complete, not one to its preparation. On an encrypted connection
// they cannot be told apart, and none is.
func (c *pgConn) drops(data []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	const commandComplete, head = 'C', 5
	for c.loses && len(data) > 0 {
		if data[0] == commandComplete {
			return true
		}
		if len(data) < head {
			return false
		}
		n := uint64(binary.BigEndian.Uint32(data[1:head])) + 1
		if n < head || n > uint64(len(data)) {
			return false
		}
		data = data[n:]
	}
	return false
}
