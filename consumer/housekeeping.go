package consumer

import (
	"time"

	"github.com/claimq/claimq/queue"
)

// chore is work on one partition that this worker was given a turn for.
type chore struct {
	source    *source
	partition int
	due       bool // scheduled tasks are due: promote them
	tidy      bool // remove consumers that are gone, old marks, and the like
}

// Bounds of one promotion: tasks moved by one call, and calls for one turn.
// What is left is found at the next turn.
const (
	promoteBatch    = 100
	maxPromoteCalls = 1000
)

// addChore notes a chore for the housekeeping loop. One that is noted already
// is not noted twice, so the list is as long as there are partitions at most.
func (w *Worker) addChore(c chore) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.chores {
		if o := &w.chores[i]; o.source == c.source && o.partition == c.partition {
			o.due, o.tidy = o.due || c.due, o.tidy || c.tidy
			return
		}
	}
	w.chores = append(w.chores, c)
	w.housekeeping.poke()
}

func (w *Worker) nextChore() (chore, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.chores) == 0 {
		return chore{}, false
	}
	c := w.chores[0]
	w.chores = w.chores[1:]
	return c, true
}

// housekeepingLoop does chores apart from the fetch loop, which they must not
// hold up. A chore that fails is dropped: the next turn brings it again, to
// this worker or another.
func (w *Worker) housekeepingLoop() {
	l := w.housekeeping
	next := time.Now().Add(timesEvery)
	for {
		l.beat()
		if now := time.Now(); !now.Before(next) {
			next = now.Add(timesEvery)
			w.addTimes()
		}
		c, ok := w.nextChore()
		if !ok || w.draining() {
			if !l.wait(w.tick) {
				return
			}
			continue
		}
		if err := w.do(c); err != nil {
			l.pause(l.failed(err, "queue", c.source.name, "partition", c.partition), true)
			continue
		}
		l.succeeded()
	}
}

func (w *Worker) do(c chore) error {
	if c.due {
		if err := w.promoteAll(c); err != nil {
			return err
		}
	}
	if !c.tidy || w.draining() {
		return nil
	}
	ctx, cancel := w.call()
	defer cancel()
	t, err := c.source.Tidy(ctx, c.partition)
	if n := len(t.RemovedConsumers); n > 0 {
		w.observe.ConsumersRemoved(c.source.name, n)
		w.log.Info("removed consumers of workers that are gone", "queue", c.source.name, "partition", c.partition, "count", n)
	}
	w.reportLost(c.source, t.Lost)
	return err
}

func (w *Worker) promoteAll(c chore) error {
	for range maxPromoteCalls {
		w.housekeeping.beat()
		ctx, cancel := w.call()
		p, err := c.source.Promote(ctx, c.partition, promoteBatch)
		cancel()
		if p.Count > 0 {
			w.observe.Promoted(c.source.name, p.Count)
		}
		for _, m := range p.Malformed {
			w.log.Warn("member of the schedule has no task, set aside", "queue", c.source.name, "partition", c.partition, "member", cut(m, maxLoggedID))
		}
		if err != nil || !p.More || w.draining() {
			return err
		}
	}
	return nil
}

// maxLoggedID bounds what is logged of an identifier that was not checked.
const maxLoggedID = 200

// maxLoggedLost is how many lost tasks are named in one log line each; the
// observer gets them all.
const maxLoggedLost = 100

// reportLost reports tasks whose entries were deleted or trimmed from outside:
// the one way to lose a task for good.
func (w *Worker) reportLost(s *source, lost []queue.Copy) {
	if len(lost) == 0 {
		return
	}
	w.observe.Lost(Lost{Queue: s.name, Tasks: lost})
	for i, c := range lost {
		if i == maxLoggedLost {
			w.log.Error("more tasks lost", "queue", s.name, "count", len(lost)-i)
			break
		}
		w.log.Error("task lost: its entry was deleted or trimmed from outside",
			"task", cut(string(c.TaskID), maxLoggedID), "queue", s.name, "entry", c.EntryID, "detail", c.Detail)
	}
}
