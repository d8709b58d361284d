package dedupe_test

import (
	"testing"
	"time"

	"github.com/claimq/claimq/internal/ledgertest"
	"github.com/claimq/claimq/queue"
)

// TestRedisLedger: the Redis ledger keeps the contract of Ledger.
func TestRedisLedger(t *testing.T) {
	ledgertest.Run(t, func(t *testing.T) ledgertest.Bench {
		b := newBench(t, time.Minute)
		return ledgertest.Bench{
			Ledger: b.ledger,
			Begin: func(id queue.TaskID) queue.Lease {
				b.add(id)
				return b.take()
			},
			Replace: func(l queue.Lease) queue.Lease {
				if s := b.q.Release(t.Context(), []queue.Settlement{{Lease: l}})[0]; s.Outcome != queue.Released {
					t.Fatalf("%+v", s)
				}
				return b.take()
			},
		}
	})
}
