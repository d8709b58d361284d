package outbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// session is the connection of one Run: batches go over it, and between them
// it listens. It belongs to one goroutine.
type session struct {
	relay *Relay
	conn  *pgxpool.Conn // nil: there is none
	deaf  bool          // it does not listen
}

// open gives the session its connection.
func (s *session) open(ctx context.Context) error {
	if s.conn != nil && s.conn.Conn().IsClosed() {
		s.close()
	}
	if s.conn != nil {
		return nil
	}
	conn, err := s.relay.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	s.conn = conn
	if err := s.relay.schema.check(ctx, conn); err != nil {
		s.close()
		return err
	}
	if s.relay.cfg.PollOnly || s.deaf {
		s.deaf = true
		return nil
	}
	// A server or a pooler that cannot is no reason to stop: there is polling.
	if _, err := conn.Exec(ctx, "listen "+channel); err != nil {
		s.deaf = true
	}
	return nil
}

// close gives the connection back as it was.
func (s *session) close() {
	if s.conn == nil {
		return
	}
	if !s.deaf && !s.conn.Conn().IsClosed() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := s.conn.Exec(ctx, "unlisten "+channel); err != nil {
			_ = s.conn.Conn().Close(ctx) // the pool makes another
		}
	}
	s.conn.Release() // a closed one is dropped
	s.conn = nil
}

// round relays one batch over the connection of the session.
func (s *session) round(ctx context.Context) Round {
	began := time.Now()
	ctx, cancel := s.relay.context(ctx)
	defer cancel()
	round := Round{Queue: s.relay.q.Name()}
	if round.Err = s.open(ctx); round.Err == nil {
		s.heard()
		s.relay.batch(ctx, s.conn, &round)
		round.Err = s.relay.schema.said(round.Err)
	}
	round.Duration = time.Since(began)
	return round
}

// heard drops what woke the relay up to now: what it says is about to be seen.
func (s *session) heard() {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for {
		if n, err := s.conn.Conn().WaitForNotification(over); n == nil || err != nil {
			return
		}
	}
}

// wait returns when rows may have come, when the time is over, or when ctx
// ends.
func (s *session) wait(ctx context.Context, d time.Duration) {
	if s.deaf || s.conn == nil || s.conn.Conn().IsClosed() {
		s.pause(ctx, d)
		return
	}
	waiting, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for {
		n, err := s.conn.Conn().WaitForNotification(waiting)
		if err != nil && waiting.Err() == nil {
			s.close() // the connection is gone: the next round makes another
			return
		}
		if err != nil || s.mine(n) {
			return
		}
	}
}

func (s *session) mine(n *pgconn.Notification) bool {
	return n.Payload == s.relay.schema.wakes(s.relay.q.Name())
}

// pause returns when the time is over or ctx ends.
func (s *session) pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// forget deletes some of the sent rows that were kept long enough, if it is
// time to, and reports whether there may be more. The next look is soon enough
// for one that failed.
func (s *session) forget(ctx context.Context, last *time.Time) (more bool) {
	if time.Since(*last) < forgetEvery {
		return false
	}
	ctx, cancel := s.relay.context(ctx)
	defer cancel()
	n, err := s.relay.forget(ctx, s.conn)
	if more = err == nil && n == forgetRows; !more {
		*last = time.Now()
	}
	return more
}
