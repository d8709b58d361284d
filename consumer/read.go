package consumer

import (
	"context"
	"time"

	"github.com/claimq/claimq/queue"
)

// readUpTo reads at most want entries from the active sources. Queues that
// probably have more are read one by one, each for its share and the richest
// first; what they leave may be taken by any. The others are looked at in a
// single call, and that call blocks when nothing else was found: so an idle
// worker makes one call however many queues it reads.
//
// With an error come the entries that were read before it.
func (f *fetcher) readUpTo(want int, active []int) ([]queue.Entry, error) {
	if f.oneByOne {
		f.oneByOne = false
		return f.probe(want, active)
	}
	var hot, cold []int
	for _, i := range active {
		if f.share.hot[i] && len(active) > 1 {
			hot = append(hot, i)
		} else {
			cold = append(cold, i)
		}
	}
	if len(hot) == 0 {
		return f.readMany(cold, want, f.block(), active)
	}
	var all []queue.Entry
	take := func(queues []int, n int) error {
		n = min(n, want-len(all))
		if n <= 0 {
			return nil
		}
		entries, err := f.readMany(queues, n, 0, active)
		all = append(all, entries...)
		return err
	}
	if len(cold) > 0 {
		n := 0
		for _, i := range cold {
			n += f.share.part(i, want, active)
		}
		if err := take(cold, max(n, 1)); err != nil {
			return all, err
		}
	}
	for _, i := range f.share.order(hot) {
		if err := take([]int{i}, f.share.part(i, want, active)); err != nil {
			return all, err
		}
	}
	for _, i := range f.share.order(hot) {
		if f.share.hot[i] {
			if err := take([]int{i}, want); err != nil {
				return all, err
			}
		}
	}
	return all, nil
}

// block is how long a read may wait: never past the next ask.
func (f *fetcher) block() time.Duration {
	return max(min(f.w.cfg.Block, f.untilNext()), time.Millisecond)
}

// readMany makes one call for several sources and charges them for what came.
func (f *fetcher) readMany(queues []int, want int, block time.Duration, among []int) ([]queue.Entry, error) {
	w := f.w
	req := queue.ReadRequest{Consumer: *w.consumer.Load(), Max: want, Block: block, Turn: f.turn}
	f.turn++
	streams := 0
	for _, i := range queues {
		req.Queues = append(req.Queues, w.sources[i].queue)
		streams += w.sources[i].partitions
	}
	f.l.beat()
	ctx, cancel := context.WithTimeout(w.ops, block+callTimeout)
	entries, err := w.read(ctx, req)
	cancel()
	f.l.beat()
	if err != nil {
		f.renameAfter(err)
		if len(queues) == 1 {
			return entries, f.putOff(queues[0], err)
		}
		if needsEnsure(err) { // of one of them: find out which
			f.oneByOne = true
			f.l.failed(err)
			return entries, nil
		}
		return entries, err
	}
	counts := make(map[*queue.Queue]int, len(queues))
	for _, e := range entries {
		counts[e.Queue]++
	}
	for _, i := range queues {
		asked := max(1, want/streams) // what the server was asked for, for each stream
		f.share.charge(i, asked, counts[w.sources[i].queue], among)
		f.faces[i].failing = 0
	}
	return entries, nil
}

// probe reads the sources one by one, so that the one that fails is put off
// and the others go on.
func (f *fetcher) probe(want int, active []int) ([]queue.Entry, error) {
	var all []queue.Entry
	for _, i := range active {
		if len(all) == want {
			break
		}
		entries, err := f.readMany([]int{i}, want-len(all), 0, active)
		all = append(all, entries...)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}
