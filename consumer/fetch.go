package consumer

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/claimq/claimq/queue"
)

// maxAskInterval bounds the time between two turns asked for, and with it how
// long a consumer may look dead.
const maxAskInterval = 2500 * time.Millisecond

// fetcher is the state of the fetch loop. Only its goroutine uses it.
type fetcher struct {
	w     *Worker
	l     *loop
	share share
	faces []face // one for each source

	ready    bool // every queue was confirmed once
	live     int  // live consumers, as last told
	nextAsk  time.Time
	orphans  []orphanage // partitions where ended leases were left for want of slots
	owed     bool        // the last ask found no free slot: the next one goes to orphans before new tasks
	turn     int         // rotates which streams a read looks at first
	renamed  int         // how often the consumer name was changed
	oneByOne bool
}

// orphanage is a partition that has more to reclaim.
type orphanage struct{ source, partition int }

// face is what the fetch loop knows of one source.
type face struct {
	ensure  bool // its streams and groups have to be looked after
	failing int  // calls that failed in a row for a reason of its own
	until   time.Time
}

func (w *Worker) fetchLoop() {
	f := &fetcher{w: w, l: w.fetch, faces: make([]face, len(w.sources)), live: 1}
	for i, s := range w.sources {
		f.share.add(s.weight, s.partitions)
		f.faces[i].ensure = true
	}
	for !w.draining() {
		f.l.beat()
		if err := f.round(); err != nil {
			f.l.pause(f.l.failed(err), true)
			continue
		}
		if !slices.ContainsFunc(f.faces, func(x face) bool { return x.failing > 0 }) {
			if f.l.succeeded() {
				w.offerAgain()
			}
		}
	}
}

// round looks after the queues, asks for turns when that is due, and reads
// once. An error it returns concerns the server as a whole; one that concerns
// a single queue only puts that queue off.
func (f *fetcher) round() error {
	w := f.w
	if err := f.ensure(); err != nil {
		return err
	}
	if !time.Now().Before(f.nextAsk) || f.owed && w.wants() {
		if err := f.ask(); err != nil {
			return err
		}
	}
	if err := f.adopt(); err != nil {
		return err
	}
	if !w.waitingForTurns() {
		// Handlers that have just been started run first: those that take no
		// time give their slots back, and one read fills them all in place of
		// several that fill a few. It costs a lone task nothing.
		runtime.Gosched()
	}
	active := f.active(time.Now())
	got := 0
	if len(active) > 0 {
		got = w.reserve(queue.MaxBatch, true)
	}
	if got == 0 {
		f.l.wait(f.untilNext())
		return nil
	}
	entries, err := f.readUpTo(got, active)
	w.unreserve(got - len(entries))
	if len(entries) > 0 {
		if beginErr := f.beginAll(entries, SourceNew); err == nil {
			err = beginErr
		}
	}
	return err
}

// ensure makes streams and groups anew where they may be missing.
func (f *fetcher) ensure() error {
	w := f.w
	missing := false
	for i, s := range w.sources {
		face := &f.faces[i]
		if !face.ensure {
			continue
		}
		if time.Now().Before(face.until) {
			missing = true
			continue
		}
		f.l.beat()
		ctx, cancel := w.call()
		err := s.Ensure(ctx)
		cancel()
		switch {
		case err == nil:
			face.ensure = false
		case !f.ready && errors.Is(err, queue.ErrMismatch):
			w.fatal <- fmt.Errorf("queue %q: %w", s.name, err) // one: Run then drains, which ends this loop
			<-w.drain
			return nil
		default:
			if err := f.putOff(i, err); err != nil {
				return err
			}
			missing = true
		}
	}
	if !missing && !f.ready {
		f.ready = true
		starting, running := w.state.Load(), StateRunning
		if *starting == StateStarting { // not when it drains already
			w.state.CompareAndSwap(starting, &running)
		}
	}
	return nil
}

// putOff notes a failed call for one source. An error that concerns the
// server as a whole is returned; one that lies in the queue puts that queue
// off, so that its neighbours go on.
func (f *fetcher) putOff(i int, err error) error {
	if !needsEnsure(err) {
		return err
	}
	face := &f.faces[i]
	face.ensure = true
	face.failing++
	face.until = time.Now().Add(f.w.jitter.serverBackoff(face.failing))
	f.l.failed(err, "queue", f.w.sources[i].name)
	return nil
}

// active returns the sources that may be read now.
func (f *fetcher) active(now time.Time) []int {
	var active []int
	for i := range f.faces {
		if !f.faces[i].ensure && !now.Before(f.faces[i].until) {
			active = append(active, i)
		}
	}
	return active
}

// untilNext is the time until the next ask or the end of a source's wait.
func (f *fetcher) untilNext() time.Duration {
	next := f.nextAsk
	for _, face := range f.faces {
		if !face.until.IsZero() && face.until.Before(next) && face.ensure {
			next = face.until
		}
	}
	return max(time.Until(next), time.Millisecond)
}

// owes notes whether ended leases may wait for a slot: while they do nothing is
// fetched ahead, or no slot would ever be free for them.
func (f *fetcher) owes(slot bool) {
	f.owed = slot
	w := f.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hand.owing = slot || len(f.orphans) > 0
}

// askInterval is how long to wait between two asks: the larger the fleet, the
// rarer, because somebody else asks in between.
func (f *fetcher) askInterval() time.Duration {
	w := f.w
	d := w.cfg.HousekeepingEvery * time.Duration(max(1, f.live/4))
	for _, s := range w.sources {
		d = min(d, s.shortest/6)
	}
	d = min(d, maxAskInterval)
	return d - w.jitter.upTo(d/5)
}

// ask tells every queue that this worker is alive and takes on the chores it
// is given.
func (f *fetcher) ask() error {
	w := f.w
	f.nextAsk = time.Now().Add(f.askInterval())
	slots := w.wants()
	f.owes(!slots)
	live := 1
	for _, i := range f.active(time.Now()) {
		s := w.sources[i]
		f.l.beat()
		ctx, cancel := w.call()
		turns := s.Turn(ctx, queue.TurnRequest{Consumer: *w.consumer.Load(), Slots: slots, Interval: w.cfg.HousekeepingEvery})
		cancel()
		for _, t := range turns {
			if t.Err != nil {
				if err := f.putOff(i, t.Err); err != nil {
					return err
				}
				break
			}
			live = max(live, t.Consumers)
			if t.Due || t.Tidy {
				w.addChore(chore{source: s, partition: t.Partition, due: t.Due, tidy: t.Tidy})
			}
			if t.Reclaim {
				if err := f.reclaim(i, t.Partition); err != nil {
					return err
				}
			}
		}
	}
	f.live = live
	return nil
}

// adopt goes on with reclaims that ran out of slots: each slot that is freed
// goes to an orphan before it goes to a new task, or recovery would wait for
// the backlog.
func (f *fetcher) adopt() error {
	left := f.orphans
	f.orphans = nil
	defer f.owes(f.owed)
	for n, o := range left {
		if !f.w.wants() {
			f.orphans = append(f.orphans, left[n:]...)
			return nil
		}
		if err := f.reclaim(o.source, o.partition); err != nil {
			return err
		}
	}
	return nil
}

// maxReclaimCalls bounds the calls of one pass over one partition.
const maxReclaimCalls = 16

// reclaim takes over tasks whose lease has ended, as many as there is room for.
func (f *fetcher) reclaim(i, partition int) error {
	w, s := f.w, f.w.sources[i]
	for range maxReclaimCalls {
		n := w.reserve(queue.MaxBatch, false)
		if n == 0 {
			if o := (orphanage{i, partition}); !slices.Contains(f.orphans, o) {
				f.orphans = append(f.orphans, o)
			}
			return nil
		}
		f.l.beat()
		began := time.Now()
		ctx, cancel := w.call()
		r, err := s.Reclaim(ctx, queue.ReclaimRequest{
			Partition: partition, Consumer: *w.consumer.Load(), Max: n, Own: w.tokensInHand(s, partition),
		})
		cancel()
		w.observe.Swept(Swept{Queue: s.name, Count: len(r.Entries), Delays: r.Delays, Duration: time.Since(began), Err: err})
		w.reportLost(s, r.Missing)
		entries := w.notInHand(s, r.Entries)
		w.unreserve(n - len(entries))
		if len(entries) > 0 {
			if beginErr := f.begin(i, entries, SourceReclaimed); err == nil {
				err = beginErr
			}
		}
		if err != nil {
			f.renameAfter(err)
			return f.putOff(i, err)
		}
		if !r.More || len(entries)+len(r.Missing) == 0 || w.draining() {
			return nil
		}
	}
	return nil
}

// tokensInHand names the ended grants of which this worker still has tasks in
// hand, lapsed or stuck: it must not take those over itself.
func (w *Worker) tokensInHand(s *source, partition int) []queue.Token {
	w.mu.Lock()
	defer w.mu.Unlock()
	var tokens []queue.Token
	for _, g := range w.hand.grants {
		if g.src == s && g.g.Partition == partition && !g.renewable() && len(tokens) < queue.MaxBatch {
			tokens = append(tokens, g.g.Token)
		}
	}
	return tokens
}

// notInHand leaves out entries that this worker has in hand, stuck handlers
// aside: their lease ended because renewals did not get through. The handler
// still runs, or its outcome waits for the server, and as nobody took the task
// it may still settle. Starting it again here would run it twice.
func (w *Worker) notInHand(s *source, entries []queue.Entry) []queue.Entry {
	if len(entries) == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	inHand := make(map[entryKey]bool)
	for _, g := range w.hand.grants {
		for _, it := range g.items {
			if it.src == s && !it.stuck {
				inHand[it.entry()] = true
			}
		}
	}
	return slices.DeleteFunc(entries, func(e queue.Entry) bool { return inHand[entryKey{e.Partition, e.ID}] })
}

// renameAfter takes a new consumer name when the call that failed may have
// delivered entries that nobody saw: under a name that is no longer in use
// they are soon recovered.
func (f *fetcher) renameAfter(err error) {
	if !errors.Is(err, queue.ErrIndefinite) {
		return
	}
	f.rename()
}

func (f *fetcher) rename() {
	f.renamed++
	name := fmt.Sprintf("%s-%d", f.w.baseName, f.renamed)
	f.w.consumer.Store(&name)
}
