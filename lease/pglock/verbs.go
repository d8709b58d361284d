package pglock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/claimq/claimq/lease"
)

// Acquire implements lease.Store. It queues at the server for r.Wait. After an
// error a lock that was granted unseen ends with its session, which is closed;
// if the server cannot be told, within the lease length and four seconds.
func (s *Store) Acquire(ctx context.Context, r lease.Request) (lease.Lease, error) {
	l := lease.Lease{Name: r.Name, Token: r.Token, Length: r.Length}
	if each := s.find(r.Token); each != nil {
		l.Fence = each.fence
		return s.Extend(ctx, l)
	}
	if err := s.reserve(); err != nil {
		return lease.Lease{}, err
	}
	each, sent, err := s.open(ctx, r)
	if err != nil {
		s.vacate()
		if errors.Is(err, lease.ErrHeld) {
			return lease.Lease{}, err
		}
		return lease.Lease{}, fmt.Errorf("%w: acquire: %w", lease.ErrUnavailable, err)
	}
	if !s.keep(r.Token, each) {
		each.end()
		s.vacate()
		return lease.Lease{}, fmt.Errorf("%w: the store is closed", lease.ErrUnavailable)
	}
	l.Fence = each.fence
	return l.Since(sent), nil
}

// open makes a session that holds the lock. sent is the moment before its last
// statement: from the one with which it waited, the server may have heard
// nothing for long.
func (s *Store) open(ctx context.Context, r lease.Request) (each *session, sent time.Time, err error) {
	conn, err := s.connect(ctx, r)
	if err != nil {
		return nil, sent, err
	}
	defer func() {
		if err != nil {
			hangUp(conn)
		}
	}()
	each = &session{key: s.Key(r.Name), conn: conn}
	got, err := lock(ctx, conn, each.key, r.Wait)
	if err != nil {
		return nil, sent, err
	}
	if !got {
		return nil, sent, lease.ErrHeld
	}
	if !s.cfg.NoFence {
		if each.fence, err = s.nextFence(ctx, conn, r.Name); err != nil {
			return nil, sent, err
		}
	}
	sent = time.Now()
	held, err := each.check(ctx)
	if err != nil {
		return nil, sent, err
	}
	if !held {
		return nil, sent, errors.New("the session does not have the lock it was given: connect to the primary, past any pooler")
	}
	return each, sent, nil
}

// Extend implements lease.Store: it asks whether the session still has the
// lock. A context that ends before the answer ends the session, and so the
// lease; the outcome is then lease.ErrIndefinite, and later lease.ErrLost.
func (s *Store) Extend(ctx context.Context, l lease.Lease) (lease.Lease, error) {
	each := s.find(l.Token)
	if each == nil {
		return l, fmt.Errorf("%w: there is no session for it", lease.ErrLost)
	}
	each.mu.Lock()
	sent := time.Now()
	held, err := each.check(ctx)
	if err != nil && ctx.Err() != nil {
		each.hungUp = true
	}
	interrupted, closed := each.hungUp, each.conn.IsClosed()
	each.mu.Unlock()
	switch {
	case err == nil && held:
		return l.Since(sent), nil
	case err == nil:
		s.drop(l.Token, each)
		return l, fmt.Errorf("%w: the session does not have the lock any more", lease.ErrLost)
	case interrupted && ctx.Err() != nil:
		return l, fmt.Errorf("%w: extend: %w", lease.ErrIndefinite, err)
	case closed:
		s.drop(l.Token, each)
		return l, fmt.Errorf("%w: the session has ended: %w", lease.ErrLost, err)
	}
	return l, fmt.Errorf("%w: extend: %w", lease.ErrUnavailable, err)
}

// Release implements lease.Store. Whatever the answer, the session is closed
// and the lease over: asked again, the answer is lease.ErrLost.
func (s *Store) Release(ctx context.Context, l lease.Lease) error {
	each := s.find(l.Token)
	if each == nil {
		return fmt.Errorf("%w: there is no session for it", lease.ErrLost)
	}
	defer s.drop(l.Token, each)
	each.mu.Lock()
	defer each.mu.Unlock()
	if each.hungUp {
		return nil // by closing the connection; nobody knows of a loss before that
	}
	var had bool
	err := each.conn.QueryRow(ctx, "SELECT pg_advisory_unlock($1)", each.key).Scan(&had)
	switch {
	case err == nil && had:
		return nil
	case err == nil:
		return fmt.Errorf("%w: the session did not have the lock any more", lease.ErrLost)
	case ctx.Err() != nil:
		return fmt.Errorf("%w: release: %w", lease.ErrIndefinite, err)
	}
	return fmt.Errorf("%w: the session had ended: %w", lease.ErrLost, err)
}

// Watch implements lease.Watcher: it sees the server close the connection.
func (s *Store) Watch(ctx context.Context, l lease.Lease) error {
	each := s.find(l.Token)
	if each == nil {
		return fmt.Errorf("%w: there is no session for it", lease.ErrLost)
	}
	each.mu.Lock()
	defer each.mu.Unlock()
	for ctx.Err() == nil {
		// Nobody listens, so nothing comes but notices and the end.
		_, err := each.conn.WaitForNotification(ctx)
		if each.conn.IsClosed() && !each.hungUp {
			return fmt.Errorf("%w: the session has ended: %w", lease.ErrLost, err)
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("%w: the session cannot be read: %w", lease.ErrLost, err)
		}
	}
	return nil
}
