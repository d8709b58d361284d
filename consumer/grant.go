package consumer

import (
	"time"

	"github.com/claimq/claimq/queue"
)

// grant is what the leases in hand of one queue.Grant have in common.
type grant struct {
	src     *source
	g       queue.Grant
	since   time.Time // when it was asked for
	trusted time.Time // may be relied on until then
	items   []*item   // in hand
	due     time.Time // next renewal
	ended   bool      // lost or lapsed: not renewed any more
	parted  bool      // holds stuck tasks only: not renewed any more
	split   *split    // stuck tasks being moved out of it
	dropped bool      // a task of it left this worker unsettled: the server must not forget it yet
	leaving int       // of its items, how many are in the batch that is being settled
}

func (g *grant) add(it *item) {
	it.grant, it.at = g, len(g.items)
	g.items = append(g.items, it)
}

// remove takes an item out; the last one takes its place.
func (g *grant) remove(it *item) {
	last := len(g.items) - 1
	g.items[it.at] = g.items[last]
	g.items[it.at].at = it.at
	g.items[last] = nil
	g.items = g.items[:last]
}

// sent is when it was last asked for.
func (g *grant) sent() time.Time { return g.trusted.Add(queue.Margin(g.g.Length) - g.g.Length) }

func (g *grant) scheduleRenewal() { g.due = g.sent().Add(g.g.Length / 3) }
