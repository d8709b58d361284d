package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	victims      = 10 // tasks in the hands of a process that is killed
	holdPatience = 5 * time.Second
)

// quiet measures what takes long and little of the machine, all at once, each
// on a server of its own: fleets at rest, and how long tasks of a killed
// process take to start elsewhere, at defaults.
func (b *bench) quiet() error {
	jobs := map[string]func() error{}
	if slices.ContainsFunc(b.contenders, func(c contender) bool { return c.name == us }) {
		for _, f := range fleets() {
			jobs[f.work] = func() error { return b.fleet(f) }
		}
	}
	for _, c := range b.contenders {
		if c.name == us || b.full && !c.inner {
			jobs["recovery of "+c.name] = func() error { return b.recovery(c) }
		}
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	for name, job := range jobs {
		wg.Go(func() {
			if err := job(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				b.leftOut = append(b.leftOut, name+": "+err.Error())
			}
		})
	}
	wg.Wait()
	return b.ctx.Err()
}

// recoveryPatience is how long a task may take to start again.
func (b *bench) recoveryPatience() time.Duration {
	if b.full {
		return 6 * time.Minute
	}
	return 40 * time.Second
}

// recovery kills a process that has tasks in its handlers, starts another, and
// waits until it has all of them.
func (b *bench) recovery(c contender) error {
	var s server = b.postgres
	if c.server != "postgres" {
		own, err := startRedis(b.server, b.dir, b.aof)
		if err != nil {
			return err
		}
		defer own.stop()
		s = own
	} else if err := s.reset(); err != nil {
		return err
	}
	first, err := b.telling(s, c, "hold", victims)
	if err != nil {
		return err
	}
	producer, err := b.start(s, c, "enqueue", "--n", fmt.Sprint(victims), "--callers", "1")
	if err == nil {
		_, err = producer.result()
		producer.kill()
	}
	if err != nil {
		first.kill()
		return err
	}
	held := first.tasks(holdPatience, func(got map[string]time.Time) bool { return len(got) == victims })
	first.kill()
	killed := time.Now()
	second, err := b.telling(s, c, "tell", 64)
	if err != nil {
		return err
	}
	defer second.kill()
	again := second.tasks(b.recoveryPatience(), func(got map[string]time.Time) bool { return covers(got, held) })
	r := row{"held": float64(len(held)), "patience_s": b.recoveryPatience().Seconds()}
	n := 0.0
	for task := range held {
		at, ok := again[task]
		if !ok {
			continue
		}
		n++
		r["last_s"] = max(r["last_s"], at.Sub(killed).Seconds())
	}
	r["recovered"] = n
	b.add(c.name, "recovery", r)
	return nil
}

// telling starts a contender that says which tasks it starts.
func (b *bench) telling(s server, c contender, mode string, handlers int) (*child, error) {
	ch, err := b.start(s, c, mode, "--handlers", fmt.Sprint(handlers))
	if err != nil {
		return nil, err
	}
	ch.say()
	if _, err := ch.until("consuming"); err != nil {
		ch.kill()
		return nil, err
	}
	time.Sleep(settling)
	return ch, nil
}

// tasks collects the tasks that handlers started, until enough or too late.
func (ch *child) tasks(patience time.Duration, enough func(map[string]time.Time) bool) map[string]time.Time {
	got, late := map[string]time.Time{}, time.After(patience)
	for !enough(got) {
		select {
		case l, ok := <-ch.lines:
			if !ok {
				return got
			}
			if f := strings.Fields(l); len(f) == 3 && f[0] == "task" {
				ns, _ := strconv.ParseInt(f[2], 10, 64)
				got[f[1]] = time.Unix(0, ns)
			}
		case <-late:
			return got
		}
	}
	return got
}

func covers(got, want map[string]time.Time) bool {
	for task := range want {
		if _, ok := got[task]; !ok {
			return false
		}
	}
	return true
}
