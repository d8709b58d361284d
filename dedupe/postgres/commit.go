package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/claimq/claimq/queue"
)

// commit ends the transaction and reports whether it is there. An error of the
// server's (a serialisation failure, a deferred constraint) means that it is
// not; an *unknownError that it could not be found out.
func (s *Store) commit(ctx context.Context, tx pgx.Tx, l queue.Lease, token string) (bool, error) {
	sealed, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	err := tx.Commit(sealed)
	cancel()
	if err == nil {
		return true, nil
	}
	if refused(err) {
		return false, err
	}
	// The commit point may be behind us: the request, or only the answer, was
	// lost.
	return s.findOut(ctx, l, token, err)
}

// findOut asks until it knows, or until the caller's context has ended and a
// little more time has gone by.
func (s *Store) findOut(ctx context.Context, l queue.Lease, token string, broke error) (bool, error) {
	began := time.Now()
	for tries := 1; ; tries++ {
		there, err := s.look(ctx, l, token)
		if err == nil {
			return there, nil
		}
		if ctx.Err() != nil && time.Since(began) >= afterwards {
			return false, &unknownError{l.TaskID, broke, err}
		}
		pause(context.WithoutCancel(ctx), tries)
	}
}

// look reports whether the attempt with this token has committed. It waits for
// a transaction that still has the row of the task: seen from here that one has
// neither happened nor not.
func (s *Store) look(ctx context.Context, l queue.Lease, token string) (there bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*lookTimeout)
	defer cancel()
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{
		BeginQuery: fmt.Sprintf("begin isolation level read committed read write; set local lock_timeout = %d", lookTimeout.Milliseconds()),
	})
	if err != nil {
		return false, err
	}
	defer rollBack(ctx, tx)
	// Inserting waits for one that inserted the row; the conflict clause, whose
	// condition is never true, for one that updated it.
	if _, err := tx.Exec(ctx, s.sql(sqlLook), l.Queue, string(l.TaskID)); err != nil {
		return false, err
	}
	err = tx.QueryRow(ctx, s.sql(sqlMine), l.Queue, string(l.TaskID), token).Scan(&there)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return there, err
}

// lookTimeout bounds one wait for a transaction whose outcome is not known.
const lookTimeout = 4 * time.Second
