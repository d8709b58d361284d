package postgres

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/claimq/claimq/queue"
)

// Bounds on trying again and on finding out.
const (
	firstWait       = 10 * time.Millisecond // before the second try; doubles, up to maxWait
	maxWait         = time.Second
	rollbackTimeout = 5 * time.Second
	// commitTimeout bounds COMMIT itself, which does not end with the caller's
	// context: to give up on it half-way is to not know its outcome.
	commitTimeout = 10 * time.Second
	// afterwards is for how long an outcome is still looked for when the
	// caller's context has ended.
	afterwards = 5 * time.Second
)

// work has the effects of the fresh leases, given by their position.
type work func(ctx context.Context, tx pgx.Tx, fresh []int) ([][]byte, error)

// run brings every lease to an end.
func (s *Store) run(ctx context.Context, leases []queue.Lease, do work) []End {
	b := newBatch(leases)
	noted := false
	for tries := 1; ; tries++ {
		var again bool
		var err error
		if !noted {
			again, err = s.noteFences(ctx, b)
			noted = err == nil
		}
		if noted {
			again, err = s.try(ctx, b, do)
		}
		if err == nil {
			break
		}
		if !again || tries >= s.cfg.MaxTries || !pause(ctx, tries) {
			b.failed(err, tries)
			break
		}
	}
	ends := b.all()
	if s.cfg.Ended != nil {
		for _, e := range ends {
			s.cfg.Ended(e)
		}
	}
	return ends
}

// noteFences puts the fences of tasks that have been run before on record, so
// that their earlier holders are refused from now on. First attempts have none
// and are spared the extra transaction.
func (s *Store) noteFences(ctx context.Context, b *batch) (again bool, err error) {
	later := b.where(func(l queue.Lease) bool { return l.Attempt > 1 })
	if len(later) == 0 {
		return false, nil
	}
	qs, ids, fences := b.keys(later)
	if _, err := s.pool.Exec(ctx, s.sql(sqlNote), qs, ids, fences); err != nil {
		err = said(causeOf(ctx, err), false)
		return ctx.Err() == nil && queue.IsRetryable(err), err
	}
	return false, nil
}

// try runs one transaction. A nil error: every lease has its end. Otherwise
// nothing was committed, or the error is queue.ErrIndefinite; again tells
// whether another transaction may do better.
func (s *Store) try(ctx context.Context, b *batch, do work) (again bool, err error) {
	b.reset()
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: s.beginSQL()})
	if err != nil {
		err = said(causeOf(ctx, err), false)
		return ctx.Err() == nil && queue.IsRetryable(err), err
	}
	defer rollBack(ctx, tx) // does nothing after a commit
	token := rand.Text()
	fresh, err := s.claim(ctx, tx, b, token)
	if err != nil {
		return mayTryAgain(ctx, tx, err), said(causeOf(ctx, err), false)
	}
	if len(fresh) == 0 {
		return false, nil
	}
	results, err := do(ctx, guarded{tx}, fresh)
	if err != nil {
		return mayTryAgain(ctx, tx, err), err
	}
	if err := s.keep(ctx, tx, b, fresh, results); err != nil {
		return mayTryAgain(ctx, tx, err), causeOf(ctx, err)
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	committed, err := s.commit(ctx, tx, b.leases[fresh[0]], token)
	if err == nil && !committed {
		return ctx.Err() == nil, errBroke
	}
	if err != nil {
		return conflicts(err), err
	}
	for _, n := range fresh {
		b.ends[n].Outcome = Committed
	}
	return false, nil
}

// errBroke: the connection broke at COMMIT, and the transaction was found to
// have been rolled back.
var errBroke = fmt.Errorf("%w: the connection broke before the commit", queue.ErrUnavailable)

// mayTryAgain: the server ended the transaction because of another one, or the
// connection broke. COMMIT was not sent, so nothing is there.
func mayTryAgain(ctx context.Context, tx pgx.Tx, err error) bool {
	return ctx.Err() == nil && (conflicts(err) || tx.Conn().IsClosed())
}

// claim writes the rows of the tasks and returns the leases for which that was
// new. The others get their end.
func (s *Store) claim(ctx context.Context, tx pgx.Tx, b *batch, token string) (fresh []int, err error) {
	qs, ids, fences := b.keys(b.chosen)
	rows, err := tx.Query(ctx, s.sql(sqlClaim), qs, ids, fences, token)
	if err != nil {
		return nil, err
	}
	isFresh := map[taskKey]bool{}
	var key taskKey
	if _, err := pgx.ForEachRow(rows, []any{&key.queue, &key.id}, func() error { isFresh[key] = true; return nil }); err != nil {
		return nil, err
	}
	var refused []int
	for _, n := range b.chosen {
		if isFresh[keyOf(b.leases[n])] {
			fresh = append(fresh, n)
		} else {
			refused = append(refused, n)
		}
	}
	return fresh, s.reasons(ctx, tx, b, refused)
}

// reasons says of tasks that were not claimed why.
func (s *Store) reasons(ctx context.Context, tx pgx.Tx, b *batch, refused []int) error {
	if len(refused) == 0 {
		return nil
	}
	qs, ids, _ := b.keys(refused)
	rows, err := tx.Query(ctx, s.sql(sqlRefusals), qs, ids)
	if err != nil {
		return err
	}
	var key taskKey
	var seen int64
	var done bool
	var result []byte
	_, err = pgx.ForEachRow(rows, []any{&key.queue, &key.id, &seen, &done, &result}, func() error {
		end := &b.ends[b.byKey[key]]
		if done {
			end.Outcome, end.Result = Done, result
			return nil
		}
		end.Outcome = Fenced
		end.Err = &FencedError{TaskID: end.Lease.TaskID, Fence: end.Lease.Fence, Seen: queue.Fence(seen)}
		return nil
	})
	return err
}

// keep writes the results of the fresh leases beside their record.
func (s *Store) keep(ctx context.Context, tx pgx.Tx, b *batch, fresh []int, results [][]byte) error {
	var with []int
	var kept [][]byte
	for i, r := range results {
		if len(r) > queue.MaxResultBytes {
			return fmt.Errorf("result of task %s: %d bytes are more than %d: return a small identifier instead",
				b.leases[fresh[i]].TaskID, len(r), queue.MaxResultBytes)
		}
		b.ends[fresh[i]].Result = r
		if len(r) > 0 {
			with, kept = append(with, fresh[i]), append(kept, r)
		}
	}
	if len(with) == 0 {
		return nil
	}
	qs, ids, _ := b.keys(with)
	_, err := tx.Exec(ctx, s.sql(sqlResults), qs, ids, kept)
	return err
}

// beginSQL begins a transaction that the server ends when its client falls
// silent.
func (s *Store) beginSQL() string {
	return fmt.Sprintf("begin isolation level %s; set local idle_in_transaction_session_timeout = %d",
		s.cfg.Isolation, s.cfg.IdleTimeout.Milliseconds())
}

func rollBack(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_ = tx.Rollback(ctx) // where it fails the connection is closed, which rolls back too
}

// pause waits before the next try and reports whether it waited to the end.
func pause(ctx context.Context, tries int) bool {
	wait := min(firstWait<<min(tries-1, 10), maxWait)
	t := time.NewTimer(wait/2 + mathrand.N(wait)) // spread, so that two do not meet again
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
