package chaos

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// driver runs the schedule.
type driver struct {
	*rig
	rnd    *rand.Rand
	agenda []event
	began  time.Time
}

// TestChaos breaks the fleet and its server for as long as asked and then looks
// at every request. `make chaos` runs it.
func TestChaos(t *testing.T) {
	d := &driver{rig: newRig(t), rnd: rand.New(rand.NewPCG(*seed, 0)), began: time.Now()}
	t.Logf("seed %d", *seed)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var producing sync.WaitGroup
	producing.Go(func() { d.l.produce(ctx, *rate, d.rec.Count) })
	d.run()
	d.allWell()
	stop()
	producing.Wait()
	d.finish()
	d.report(d.account())
}

// run strikes until the time, or the list, is over.
func (d *driver) run() {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	list := small
	next := d.began.Add(lease)
	for {
		<-tick.C
		d.due(time.Now())
		if time.Now().Before(next) {
			continue
		}
		var kind string
		switch {
		case *duration > 0 && time.Since(d.began) > *duration, *duration == 0 && len(list) == 0:
			return
		case *duration > 0:
			kind = choose(d.rnd)
		default:
			kind = list[0]
		}
		if !d.strike(kind) {
			continue
		}
		if *duration == 0 {
			list = list[1:]
		}
		next = time.Now().Add(time.Duration(200+d.rnd.IntN(1400)) * time.Millisecond)
	}
}

func (d *driver) later(after time.Duration, end func()) {
	d.agenda = append(d.agenda, event{time.Now().Add(after), end})
}

// due ends the faults whose time is over.
func (d *driver) due(now time.Time) {
	var rest []event
	for _, e := range d.agenda {
		if now.Before(e.at) {
			rest = append(rest, e)
			continue
		}
		e.end()
	}
	d.agenda = rest
}

// allWell ends everything that goes on. The clock goes on to the latest time
// that it ever showed: what is due by then would else be due in an hour.
func (d *driver) allWell() {
	d.due(time.Now().Add(time.Hour))
	d.catchUp()
}

// catchUp steps the clock forward to the latest time that it ever showed.
func (d *driver) catchUp() {
	if d.offset == d.ahead {
		return
	}
	f := d.h.add(&fault{kind: stepForward, from: time.Now(), excuses: true, stops: true})
	d.setClock(d.ahead)
	d.pause(lease / 5)
	d.h.over(f)
}

// finish has every ID enqueued again, waits until nothing is left to do, and
// asks once more: by then every task must be known as done.
func (d *driver) finish() {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(bg, 5*time.Minute)
	defer cancel()
	if !d.l.flushed(ctx) {
		d.t.Fatal("tasks are still not acknowledged after five minutes without faults")
	}
	every := func(int) bool { return true }
	again := d.l.reconcile(ctx, every)
	d.t.Logf("at the end %d of %d had been forgotten and were enqueued again", again, d.l.issued())
	d.drained()
	if again = d.l.reconcile(ctx, every); again > 0 || ctx.Err() != nil {
		d.t.Errorf("after everything was done %d tasks were not known (%v)", again, ctx.Err())
	}
	d.drained()
	for _, s := range d.slots {
		if code, err := s.worker.Terminate(20 * time.Second); err != nil || code != 0 {
			d.t.Errorf("%s ended with %d, %v", s.worker.Name, code, err)
		}
	}
	for _, w := range d.leaving {
		if !d.within(20*time.Second, func() bool { return isClosed(w.Exited) }) {
			d.t.Errorf("%s did not stop", w.Name)
		}
	}
}

// drained waits until nothing is left to do and nothing is in the dead letters.
func (d *driver) drained() {
	d.t.Helper()
	ok := d.within(3*time.Minute, func() bool {
		s, err := d.q.Stats(bg)
		return err == nil && s.Unfinished() == 0
	})
	s, err := d.q.Stats(bg)
	switch {
	case err != nil:
		d.t.Error(err)
	case !ok:
		d.t.Errorf("not drained after three minutes without faults: %+v", s.PartitionStats)
	case s.Dead != 0:
		d.t.Errorf("%d dead letters, want none", s.Dead)
	}
}

func (d *driver) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
