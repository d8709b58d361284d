package pglock

import (
	"context"

	"github.com/claimq/claimq/lease"
)

// Say runs a statement in the session of a lease, and returns what it answers
// as text.
func (s *Store) Say(ctx context.Context, token lease.Token, sql string) (answer string, err error) {
	each := s.find(token)
	each.mu.Lock()
	defer each.mu.Unlock()
	err = each.conn.QueryRow(ctx, sql).Scan(&answer)
	return answer, err
}
