package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	bc "github.com/claimq/claimq/bench/internal/contender"
)

// bench is one run.
type bench struct {
	config
	ctx        context.Context
	dir        string
	contenders []contender
	leftOut    []string
	redis      *redisServer
	postgres   *postgres

	mu      sync.Mutex // guards results while sections measure several things at once
	results results
}

// results are the rows of each cell, by contender and by what it did.
type results map[cell][]row

type cell struct{ contender, work string }

// row is what was measured in one round, by name.
type row map[string]float64

// median of a number over the rounds of a cell; ok is false where it was not
// measured.
func (r results) median(contender, work, name string) (v float64, ok bool) {
	var all []float64
	for _, row := range r[cell{contender, work}] {
		if v, ok := row[name]; ok {
			all = append(all, v)
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	return bc.Median(all), true
}

// value is the median, but the least of latencies: what else the machine does
// only adds to those.
func (r results) value(contender, work, name string) (v float64, ok bool) {
	switch name {
	case "p50", "p99", "max":
		_, ok = r.median(contender, work, name)
		v, _ = r.spread(contender, work, name)
		return v, ok
	}
	return r.median(contender, work, name)
}

// spread is the smallest and the largest over the rounds of a cell.
func (r results) spread(contender, work, name string) (least, most float64) {
	for i, row := range r[cell{contender, work}] {
		v := row[name]
		if i == 0 || v < least {
			least = v
		}
		most = max(most, v)
	}
	return least, most
}

func (b *bench) add(contender, work string, r row) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := cell{contender, work}
	b.results[at] = append(b.results[at], r)
	if b.verbose {
		b.note("%s, %s: %v", contender, work, r)
	}
}

func (b *bench) startServers() (err error) {
	if b.redis, err = startRedis(b.server, b.dir, b.aof); err != nil {
		return fmt.Errorf("%s: %w", b.server, err)
	}
	if !slices.ContainsFunc(b.contenders, func(c contender) bool { return c.server == "postgres" }) {
		return nil
	}
	if b.postgres, err = startPostgres(b.dir); err != nil {
		b.leaveOut(riverName, err)
		return nil
	}
	b.postgres.prepare = func() error {
		c, err := b.start(b.postgres, contender{program: "river"}, "prepare")
		if err != nil {
			return err
		}
		defer c.kill()
		_, err = c.result()
		return err
	}
	if err := b.postgres.reset(); err != nil {
		b.leaveOut(riverName, err)
	}
	return nil
}

func (b *bench) stopServers() {
	b.redis.stop()
	if b.postgres != nil {
		b.postgres.stop()
	}
}

func (b *bench) serverOf(c contender) server {
	if c.server == "postgres" {
		return b.postgres
	}
	return b.redis
}

// each runs work for every contender that is asked for, round after round. In
// each round another one begins, so that nobody always has the same neighbour.
// One that fails is left out from then on.
func (b *bench) each(rounds int, takesPart func(contender) bool, work func(contender) error) error {
	for n := range rounds {
		var takers []contender
		for _, c := range b.contenders {
			if takesPart(c) {
				takers = append(takers, c)
			}
		}
		for i := range takers {
			c := takers[(i+n)%len(takers)]
			if err := b.ctx.Err(); err != nil {
				return err
			}
			if err := b.serverOf(c).reset(); err != nil {
				return err
			}
			if err := work(c); err != nil {
				if b.ctx.Err() != nil {
					return err
				}
				b.leaveOut(c.name, err)
			}
		}
	}
	return nil
}

func everybody(contender) bool { return true }

// rounds is how often a cell is measured in a short and in a full run.
func (b *bench) rounds(short, full int) int {
	if b.full {
		return full
	}
	return short
}

// amount is how many tasks keep a contender busy for about a second, by its
// expected rate.
func (b *bench) amount(c contender, handlers, size int, work time.Duration) int {
	rate := c.rate
	switch {
	case handlers == 1:
		rate = min(rate*.1, 2500)
	case handlers <= 10:
		rate *= .5
	}
	if size > 1024 {
		rate *= .5
	}
	if work > 0 {
		rate = min(rate, float64(handlers)/work.Seconds()*.8)
	}
	return int(rate)/100*100 + 100
}

func (b *bench) path(c contender) (name string, args []string) {
	if c.node {
		return "node", []string{filepath.Join(b.dir, c.program, "bench.js")}
	}
	return filepath.Join(b.dir, c.program), nil
}

var errTimeout = errors.New("took too long")
