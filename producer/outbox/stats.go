package outbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Bounds of ReadStats.
const (
	MaxCounted = 100_000 // rows of a kind in a queue; more are not counted
	maxQueues  = 1000
)

// Stats is how the outbox stands for one queue.
type Stats struct {
	Queue   string
	Unsent  int64 // rows that no relay has sent; MaxCounted: or more
	Refused int64 // rows that were set aside; MaxCounted: or more
	// Lag is the age of the oldest unsent row, by the database's clock; 0 when
	// there is none. Rows of open transactions are not seen.
	Lag time.Duration
}

// ReadStats returns how the outbox stands for each queue that has rows in it,
// in the order of their names: also for queues that nobody relays, such as
// those whose name is misspelt.
func ReadStats(ctx context.Context, pool *pgxpool.Pool, schemaName string) ([]Stats, error) {
	s, err := schemaNamed(schemaName)
	if err != nil {
		return nil, err
	}
	rows, err := pool.Query(ctx, s.sql(sqlStats), MaxCounted, maxQueues)
	if err != nil {
		return nil, s.said(err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (st Stats, err error) {
		var lag float64
		err = row.Scan(&st.Queue, &st.Unsent, &st.Refused, &lag)
		st.Lag = time.Duration(lag * float64(time.Second))
		return st, err
	})
	return all, s.said(err)
}
