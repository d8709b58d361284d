package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	bc "github.com/claimq/claimq/bench/internal/contender"
)

// cycle takes tasks through their life in batches of 100, from one goroutine:
// the floor, and ourselves with all checks.
func (b *bench) cycle() error {
	sizes := []int{smallPayload}
	if b.full {
		sizes = append(sizes, largePayload)
	}
	for _, size := range sizes {
		n := 50000
		if size == largePayload {
			n = 20000
		}
		takesPart := func(c contender) bool { return c.name == us || c.name == floor }
		err := b.each(b.rounds(3, 7), takesPart, func(c contender) error {
			r, err := b.measure(c, "cycle", n, "--batch", "100", "--size", fmt.Sprint(size))
			if err != nil {
				return err
			}
			b.add(c.name, cycleWork(size), r)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func cycleWork(size int) string { return fmt.Sprintf("cycle %d", size) }

// state is a state of the queue in which tasks should cost what they cost in
// an empty one.
type state struct {
	name   string
	args   []string
	n      int // tasks that are measured
	rounds int
	family string // of targets
	floor  bool   // plain commands are measured in it too
}

const growthTasks = 30000

var empty = fmt.Sprintf("backlog %d", bc.Backlog)

func (b *bench) states() []state {
	flag := func(name string, n int) []string { return []string{"--" + name, fmt.Sprint(n)} }
	one := func(family, title, name string, n, rounds int, floor bool) state {
		return state{name: title, args: flag(name, n), n: growthTasks, rounds: rounds, family: family, floor: floor}
	}
	all := []state{
		one("backlog", "backlog 100,000", "backlog", 100_000, b.rounds(1, 3), true),
		one("pending", "100,000 pending", "pending", 100_000, b.rounds(1, 3), false),
		one("consumers", "1,000 consumers", "workers", 1000, b.rounds(1, 3), false),
		{"64 partitions, 100 tasks in a script call", append(flag("partitions", 64), "--batch", "6400"), 64000, b.rounds(1, 3), "partitions, script calls as large", false},
		one("long IDs", "IDs of 200 bytes", "idbytes", 200, b.rounds(1, 3), false),
	}
	if !b.full {
		return append(all, one("dead letters", "20,000 dead letters", "dead", 20_000, 1, true))
	}
	return append(all,
		one("dead letters", "1,000,000 dead letters", "dead", 1_000_000, 2, true),
		one("scheduled", "1,000,000 scheduled", "scheduled", 1_000_000, 2, true),
		one("backlog", "backlog 1,000,000", "backlog", 1_000_000, 2, true),
		one("backlog", "backlog 10,000,000", "backlog", 10_000_000, 1, true),
	)
}

// growth measures each state beside an almost empty queue on a server of its
// own, in slices, so that both see the same machine.
func (b *bench) growth() error {
	i := slices.IndexFunc(b.contenders, func(c contender) bool { return c.name == us })
	if i < 0 {
		return nil
	}
	c := b.contenders[i]
	base, err := startRedis(b.server, b.dir, b.aof)
	if err != nil {
		return err
	}
	defer base.stop()
	for _, s := range b.states() {
		b.note("growth: %s", s.name)
		for range s.rounds {
			r, err := b.beside(base, c, s)
			if err != nil {
				return err
			}
			b.add(us, "growth "+s.name, r)
		}
		f := slices.IndexFunc(b.contenders, func(c contender) bool { return c.name == floor })
		if !s.floor || f < 0 {
			continue
		}
		r, err := b.beside(base, b.contenders[f], s)
		if err != nil {
			return err
		}
		b.add(floor, "growth "+s.name, r)
	}
	if err := b.partitions(base, c); err != nil {
		return err
	}
	return b.promotion(c)
}

func (b *bench) beside(base *redisServer, c contender, s state) (row, error) {
	if err := errors.Join(b.redis.reset(), base.reset()); err != nil {
		return nil, err
	}
	return b.measure(c, "growth", s.n, append([]string{"--base", base.addr, "--batch", "100"}, s.args...)...)
}

// A worker and a producer as they come, with many partitions and with one.
const (
	manyPartitions = 64
	partitionTasks = 100_000
	drainWork      = "64 partitions, drain"
	enqueueWork    = "64 partitions, enqueue"
)

// partitions drains a queue of many partitions and one of a single one, in
// turns.
func (b *bench) partitions(base *redisServer, c contender) error {
	for round := range b.rounds(3, 7) {
		b.note("growth: drain of %d partitions", manyPartitions)
		if err := errors.Join(b.redis.reset(), base.reset()); err != nil {
			return err
		}
		cost := map[string]float64{}
		for i := range 2 {
			s, n := b.redis, manyPartitions
			if (i+round)%2 == 1 {
				s, n = base, 1
			}
			args := []string{"--partitions", fmt.Sprint(n)}
			added, err := b.measureOn(s, c, "enqueue", partitionTasks, append(args, "--batch", "100", "--callers", "8")...)
			if err != nil {
				return err
			}
			drained, err := b.measureOn(s, c, "drain", partitionTasks, append(args, "--handlers", "64")...)
			if err != nil {
				return err
			}
			cost[fmt.Sprint(enqueueWork, n)], cost[fmt.Sprint(drainWork, n)] = added["server_us"], drained["server_us"]
		}
		for _, w := range []string{enqueueWork, drainWork} {
			ours, one := cost[fmt.Sprint(w, manyPartitions)], cost[fmt.Sprint(w, 1)]
			b.add(us, w, row{"server_us": ours, "base_us": one, "ratio": ours / one})
		}
	}
	return nil
}

// due is how many scheduled tasks fall due in the same moment.
const due = 20000

// promotion moves tasks that are due at once, beside few and beside many that
// are not.
func (b *bench) promotion(c contender) error {
	for _, beside := range b.besides() {
		b.note("growth: promotion beside %d", beside)
		for range b.rounds(1, 2) {
			if err := b.redis.reset(); err != nil {
				return err
			}
			r, err := b.measure(c, "promote", due, "--batch", "100", "--scheduled", fmt.Sprint(beside))
			if err != nil {
				return err
			}
			if r["moved"] != due {
				return fmt.Errorf("%.0f tasks were due, not %d", r["moved"], due)
			}
			b.add(us, promotionWork(beside), r)
		}
	}
	return nil
}

func promotionWork(beside int) string { return fmt.Sprintf("promotion %d", beside) }

func (b *bench) besides() []int {
	if b.full {
		return []int{0, 1_000_000}
	}
	return []int{0, 100_000}
}

// fleets are loads that should cost next to nothing.
type fleet struct {
	work string
	mode string
	args []string
}

const (
	idleWork  = "idle, 100 workers"
	sweepWork = "100,000 pending, 100 workers"
	fewWork   = "100,000 pending, 10 workers"
	renewWork = "10,000 tasks in hand"
)

func fleets() []fleet {
	return []fleet{
		{idleWork, "idle", []string{"--workers", "100"}},
		{sweepWork, "idle", []string{"--workers", "100", "--pending", "100000"}},
		{fewWork, "idle", []string{"--workers", "10", "--pending", "100000"}},
		{renewWork, "renew", []string{"--n", "10000"}},
	}
}

// rests is how long fleets are watched.
func (b *bench) rests() time.Duration {
	if b.full {
		return time.Minute
	}
	return 15 * time.Second
}

func (b *bench) fleet(f fleet) error {
	s, err := startRedis(b.server, b.dir, b.aof)
	if err != nil {
		return err
	}
	defer s.stop()
	ch, err := b.start(s, contender{program: "claimq"}, f.mode, append(f.args, "--for", b.rests().String())...)
	if err != nil {
		return err
	}
	defer ch.kill()
	result, err := ch.result()
	if err != nil {
		return err
	}
	b.add(us, f.work, rowOf(result))
	return nil
}
