package postgres

import (
	"context"
	"hash/fnv"
	"time"

	"github.com/jackc/pgx/v5"
)

// Sizes of a sweep: small deletes hold few rows for a short time, and one call
// is over soon.
const (
	SweepBatch   = 500 // rows in one transaction
	SweepBatches = 20  // transactions in one call, for each table
)

// Sweep removes rows that were last written longer than Config.Retention ago,
// by the server's clock, and returns how many. more: there are others, or there
// may be; call again. Rows of open transactions are passed over.
//
// Any number of processes may call it at any time. One at a time removes, and
// the others return at once. An error leaves what was removed until then
// removed.
func (s *Store) Sweep(ctx context.Context) (removed int, more bool, err error) {
	for _, statement := range []string{sqlSweepSteps, sqlSweepTasks} {
		n, left, err := s.sweepTable(ctx, s.sql(statement))
		removed, more = removed+n, more || left
		if err != nil {
			return removed, true, err
		}
	}
	return removed, more, nil
}

func (s *Store) sweepTable(ctx context.Context, statement string) (removed int, more bool, err error) {
	// Each batch goes on where the last one ended, not at the beginning of the
	// index, where the dead entries are.
	var from time.Time
	for range SweepBatches {
		n, last, err := s.sweepBatch(ctx, statement, from)
		removed += n
		if err != nil || n < SweepBatch {
			return removed, false, err
		}
		from = last
	}
	return removed, true, nil
}

func (s *Store) sweepBatch(ctx context.Context, statement string, from time.Time) (removed int, last time.Time, err error) {
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: s.beginSQL()})
	if err != nil {
		return 0, from, said(causeOf(ctx, err), false)
	}
	defer rollBack(ctx, tx)
	var mine bool
	if err := tx.QueryRow(ctx, sqlSweepLock, lockNumber("sweep", s.cfg.Schema)).Scan(&mine); err != nil || !mine {
		return 0, from, said(causeOf(ctx, err), false)
	}
	var newest *time.Time
	if err := tx.QueryRow(ctx, statement, s.cfg.Retention, from, SweepBatch).Scan(&removed, &newest); err != nil {
		return 0, from, said(causeOf(ctx, err), false)
	}
	if newest != nil {
		last = *newest
	}
	if err := tx.Commit(ctx); err != nil {
		return 0, from, said(causeOf(ctx, err), true)
	}
	return removed, last, nil
}

// lockNumber is what an advisory lock for a purpose in a schema is called. The
// space of these numbers is that of the whole database.
func lockNumber(purpose, schema string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte("claimq/" + purpose + "/" + schema)) // does not fail
	return int64(h.Sum64())
}
