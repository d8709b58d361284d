package faultredis_test

import (
	"testing"

	"github.com/claimq/claimq/internal/faultredis"
	"github.com/claimq/claimq/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// Each case sends INCR a, INCR b, INCR c with a fault on b.
func TestPipelines(t *testing.T) {
	onB := faultredis.Mentions(":b")
	for name, c := range map[string]struct {
		fault   faultredis.Fault
		failed  [3]bool
		applied [3]string
	}{
		"fail before": {faultredis.FailBefore(onB), [3]bool{true, true, true}, [3]string{"", "", ""}},
		"lose reply":  {faultredis.LoseReply(onB), [3]bool{false, true, true}, [3]string{"1", "1", "1"}},
		"reply error": {faultredis.ReplyError(onB, "OOM full"), [3]bool{false, true, false}, [3]string{"1", "", "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Both(t, func(t *testing.T, b redistest.Backend) {
				h, broken, sound, key := setup(t, b)
				h.Inject(c.fault)
				keys := [3]string{key + ":a", key + ":b", key + ":c"}
				cmds, err := broken.Pipelined(t.Context(), func(p redis.Pipeliner) error {
					for _, k := range keys {
						p.Incr(t.Context(), k)
					}
					return nil
				})
				if err == nil {
					t.Error("the pipeline as a whole shows no error")
				}
				for i, cmd := range cmds {
					if failed := cmd.Err() != nil; failed != c.failed[i] {
						t.Errorf("%s: err = %v, want one: %v", keys[i], cmd.Err(), c.failed[i])
					}
					if cmd.Err() != nil && cmd.(*redis.IntCmd).Val() != 0 {
						t.Errorf("%s: a reply that was lost is there: %d", keys[i], cmd.(*redis.IntCmd).Val())
					}
					wantValue(t, sound, keys[i], c.applied[i])
				}
			})
		})
	}
}

func TestTransactions(t *testing.T) {
	onB := faultredis.Mentions(":b")
	for name, c := range map[string]struct {
		fault   faultredis.Fault
		applied string
	}{
		"fail before": {faultredis.FailBefore(onB), ""},
		"lose reply":  {faultredis.LoseReply(onB), "1"},
		"reply error": {faultredis.ReplyError(onB, "OOM full"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Both(t, func(t *testing.T, b redistest.Backend) {
				h, broken, sound, key := setup(t, b)
				h.Inject(c.fault)
				keys := [2]string{key + ":a", key + ":b"}
				_, err := broken.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
					p.Incr(t.Context(), keys[0])
					p.Incr(t.Context(), keys[1])
					return nil
				})
				if err == nil {
					t.Error("the transaction shows no error")
				}
				wantValue(t, sound, keys[0], c.applied)
				wantValue(t, sound, keys[1], c.applied)
			})
		})
	}
}

func TestHeldPipeline(t *testing.T) {
	redistest.Both(t, func(t *testing.T, b redistest.Backend) {
		for name, c := range map[string]struct {
			fault faultredis.Fault
			held  string
		}{
			"before": {faultredis.HoldBefore(nil), ""},
			"after":  {faultredis.HoldAfter(nil), "1"},
		} {
			t.Run(name, func(t *testing.T) {
				h, broken, sound, key := setup(t, b)
				f := h.Inject(c.fault)
				result := make(chan error, 1)
				go func() {
					_, err := broken.Pipelined(t.Context(), func(p redis.Pipeliner) error {
						p.Incr(t.Context(), key)
						return nil
					})
					result <- err
				}()
				await(t, f.Reached())
				wantValue(t, sound, key, c.held)
				f.Release()
				if err := <-result; err != nil {
					t.Error(err)
				}
				wantValue(t, sound, key, "1")
			})
		}
	})
}
