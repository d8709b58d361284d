package consumer

import (
	"context"
	"slices"
	"time"

	"github.com/claimq/claimq/queue"
)

// readUpTo reads at most want entries from the active sources. Queues that
// probably have more are read one by one, each for its share and the richest
// first, and of each of them few partitions and these deep; what they leave may
// be taken by any. The others are looked at in a single call, and that call
// blocks when nothing else was found: so an idle worker makes one call however
// many queues it reads.
//
// With an error come the entries that were read before it.
func (f *fetcher) readUpTo(want int, active []int) ([]queue.Entry, error) {
	if f.oneByOne {
		f.oneByOne = false
		return f.probe(want, active)
	}
	var hot, cold []int
	for _, i := range active {
		if f.share.hot(i) && (len(active) > 1 || f.w.sources[i].partitions > 1) {
			hot = append(hot, i)
		} else {
			cold = append(cold, i)
		}
	}
	if len(hot) == 0 {
		return f.readMany(cold, want, f.block(), active)
	}
	var all []queue.Entry
	if len(cold) > 0 {
		n := 0
		for _, i := range cold {
			n += f.share.part(i, want, active)
		}
		entries, err := f.readMany(cold, min(max(n, 1), want), 0, active)
		all = entries
		if err != nil {
			return all, err
		}
	}
	take := func(i, n int) error {
		entries, err := f.readDeep(i, min(n, want-len(all)), active)
		all = append(all, entries...)
		return err
	}
	for _, i := range f.share.order(hot) {
		if err := take(i, f.share.part(i, want, active)); err != nil {
			return all, err
		}
	}
	for _, i := range f.share.order(hot) {
		if err := take(i, want); err != nil {
			return all, err
		}
	}
	return all, nil
}

// readDeep reads at most want entries of a source in which tasks are waiting:
// of partitions that have been passed over for too long, and then of one that
// has most likely enough for all that is wanted. Where it has not, of the next
// one; and where it had less than half of that, of four times as many.
func (f *fetcher) readDeep(i, want int, among []int) ([]queue.Entry, error) {
	turns := &f.share.turns[i]
	var all []queue.Entry
	partitions := turns.overdue(time.Now(), want)
	look := 1
	for n := range maxDeepReads {
		left := want - len(all)
		if len(partitions) > 0 && left > 0 {
			entries, err := f.readPartitions(i, partitions, left, among)
			all = append(all, entries...)
			if err != nil {
				return all, err
			}
			if n > 0 && 2*len(entries) < left {
				look *= 4
			}
		}
		if len(all) >= want || !f.share.hot(i) {
			break
		}
		partitions = turns.next(min(look, want-len(all)))
	}
	return all, nil
}

// block is how long a read may wait: never past the next ask.
func (f *fetcher) block() time.Duration {
	return max(min(f.w.cfg.Block, f.untilNext()), time.Millisecond)
}

// readMany makes one call for several sources and charges them for what came.
func (f *fetcher) readMany(queues []int, want int, block time.Duration, among []int) ([]queue.Entry, error) {
	req := queue.ReadRequest{Max: want, Block: block, Turn: f.turn}
	f.turn++
	streams := 0
	for _, i := range queues {
		req.Queues = append(req.Queues, f.w.sources[i].queue)
		streams += f.w.sources[i].partitions
	}
	entries, err := f.call(req)
	if err != nil {
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
	for _, i := range queues {
		var partitions []int // those that were read for sure
		if want >= streams {
			partitions = f.share.turns[i].order
		}
		f.took(i, partitions, streams, want, entries, among)
	}
	return entries, nil
}

// readPartitions makes one call for some partitions of a source, without
// waiting, and charges it for what came.
func (f *fetcher) readPartitions(i int, partitions []int, want int, among []int) ([]queue.Entry, error) {
	entries, err := f.call(queue.ReadRequest{Queues: []*queue.Queue{f.w.sources[i].queue}, Partitions: partitions, Max: want})
	if err != nil {
		return entries, f.putOff(i, err)
	}
	f.took(i, partitions, len(partitions), want, entries, among)
	return entries, nil
}

// call makes one read.
func (f *fetcher) call(req queue.ReadRequest) ([]queue.Entry, error) {
	req.Consumer = *f.w.consumer.Load()
	f.l.beat()
	ctx, cancel := context.WithTimeout(f.w.ops, req.Block+callTimeout)
	entries, err := f.w.read(ctx, req)
	cancel()
	f.l.beat()
	if err != nil {
		f.renameAfter(err)
	}
	return entries, err
}

// took notes what a read of so many streams, for want entries, brought from
// source i, of which these partitions were read, and charges the source for it.
func (f *fetcher) took(i int, partitions []int, streams, want int, entries []queue.Entry, among []int) {
	s, turns, now := f.w.sources[i], &f.share.turns[i], time.Now()
	asked := max(1, want/streams) // what the server was asked for, for each stream
	much := 2*len(entries) >= want
	counts, got := make([]int, s.partitions), 0
	for _, e := range entries {
		if e.Queue == s.queue {
			counts[e.Partition]++
			got++
		}
	}
	for _, p := range slices.Clone(partitions) {
		turns.note(p, now, asked, counts[p], much)
		counts[p] = 0
	}
	for p, n := range counts {
		if n > 0 {
			turns.note(p, now, asked, n, much)
		}
	}
	f.share.charge(i, got, among)
	f.faces[i].failing = 0
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
