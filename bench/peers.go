package main

import (
	"fmt"
	"time"
)

// work is one cell of the matrix.
type work struct {
	size     int
	handler  time.Duration
	handlers int
}

const smallPayload, largePayload = 256, 8 << 10

// mainWork is where the targets are measured.
var mainWork = work{smallPayload, 0, 64}

func (w work) String() string {
	size := fmt.Sprintf("%d B", w.size)
	if w.size == largePayload {
		size = "8 kB"
	}
	handler := "no-op"
	if w.handler > 0 {
		handler = w.handler.String()
	}
	return fmt.Sprintf("%s, %s, %d", size, handler, w.handlers)
}

// matrix lists the cells other than mainWork.
func (b *bench) matrix() []work {
	if !b.full {
		return nil
	}
	var all []work
	for _, size := range []int{smallPayload, largePayload} {
		for _, handler := range []time.Duration{0, time.Millisecond} {
			for _, handlers := range []int{1, 10, 64, 256} {
				if w := (work{size, handler, handlers}); w != mainWork {
					all = append(all, w)
				}
			}
		}
	}
	return all
}

// drain empties a backlog.
func (b *bench) drain() error {
	if err := b.drainOne(mainWork, b.rounds(2, 5)); err != nil {
		return err
	}
	for _, w := range b.matrix() {
		b.note("drain: %s", w)
		if err := b.drainOne(w, 1); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) drainOne(w work, rounds int) error {
	return b.each(rounds, everybody, func(c contender) error {
		n := b.amount(c, w.handlers, w.size, w.handler)
		size := []string{"--size", fmt.Sprint(w.size), "--handlers", fmt.Sprint(w.handlers)}
		add := size
		if c.batch {
			add = append(add[:len(add):len(add)], "--batch", "100", "--callers", "8")
		}
		if _, err := b.measure(c, "enqueue", n, add...); err != nil {
			return err
		}
		r, err := b.measure(c, "drain", n, append(size, "--work", w.handler.String())...)
		if err != nil {
			return err
		}
		b.add(c.name, "drain "+w.String(), r)
		return nil
	})
}

// enqueue adds tasks: one at a time from one caller and from many, and in
// batches.
func (b *bench) enqueue() error {
	sizes := []int{smallPayload}
	if b.full {
		sizes = append(sizes, largePayload)
	}
	for _, size := range sizes {
		for _, e := range enqueues() {
			err := b.each(b.rounds(2, 3), func(c contender) bool { return (e.batch == 1 || c.batch) && c.name != single }, func(c contender) error {
				r, err := b.measure(c, "enqueue", b.enqueueAmount(c, e), "--size", fmt.Sprint(size),
					"--callers", fmt.Sprint(e.callers), "--batch", fmt.Sprint(e.batch))
				if err != nil {
					return err
				}
				b.add(c.name, e.work(size), r)
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// how tasks are enqueued.
type enqueueing struct{ callers, batch int }

var (
	lone    = enqueueing{1, 1}
	many    = enqueueing{64, 1}
	batches = enqueueing{8, 100}
)

func enqueues() []enqueueing { return []enqueueing{lone, many, batches} }

func (e enqueueing) work(size int) string {
	return fmt.Sprintf("enqueue %d, %d, %d", size, e.callers, e.batch)
}

func (b *bench) enqueueAmount(c contender, e enqueueing) int {
	n := 10000
	switch {
	case e == lone:
		n = 3000
	case e.batch > 1:
		n = 40000
	}
	if c.name == riverName {
		n /= 3
	}
	return n
}

// both adds and runs tasks at once, each in a process of its own.
func (b *bench) both() error {
	return b.each(b.rounds(2, 5), func(c contender) bool { return c.name != single }, func(c contender) error {
		s := b.serverOf(c)
		n := fmt.Sprint(b.amount(c, mainWork.handlers, mainWork.size, 0))
		consumer, err := b.start(s, c, "drain", "--n", n)
		if err != nil {
			return err
		}
		defer consumer.kill()
		producer, err := b.start(s, c, "enqueue", "--n", n)
		if err != nil {
			return err
		}
		defer producer.kill()
		before, err := b.look(s)
		if err != nil {
			return err
		}
		consumer.say()
		time.Sleep(settling)
		began := time.Now()
		added, err := producer.result()
		if err != nil {
			return err
		}
		done, err := consumer.wait()
		if err != nil {
			return err
		}
		r := row{
			"tps":         float64(done.N) / (float64(done.LastNS-began.UnixNano()) / 1e9),
			"producer_us": added.Client, "client_us": done.Client,
		}
		if err := before.since(done.N, r); err != nil {
			return err
		}
		b.add(c.name, "both", r)
		return nil
	})
}

// settling is how long a consumer gets to connect its handlers before the work
// begins.
const settling = 300 * time.Millisecond

// steadyRate is the tasks per second of a steady load.
const steadyRate = 1000

// steady runs a load that everybody can keep up with.
func (b *bench) steady() error {
	warm, length := time.Second, 3*time.Second
	if b.full {
		warm, length = 2*time.Second, 8*time.Second
	}
	return b.each(b.rounds(1, 4), func(c contender) bool { return c.name != bare }, func(c contender) error {
		s := b.serverOf(c)
		consumer, err := b.start(s, c, "serve", "--warm", (warm + settling).String())
		if err != nil {
			return err
		}
		defer consumer.kill()
		producer, err := b.start(s, c, "feed", "--rate", fmt.Sprint(steadyRate), "--for", length.String(), "--callers", "32")
		if err != nil {
			return err
		}
		defer producer.kill()
		consumer.say()
		if _, err := consumer.until("consuming"); err != nil {
			return err
		}
		time.Sleep(settling)
		before, err := b.look(s)
		if err != nil {
			return err
		}
		fed, err := producer.result()
		if err != nil {
			return err
		}
		time.Sleep(settling)
		r := row{"producer_us": fed.Client}
		if err := before.since(fed.N, r); err != nil {
			return err
		}
		served, err := consumer.result()
		if err != nil {
			return err
		}
		r["p50"], r["p99"], r["max"], r["client_us"] = served.P50, served.P99, served.Max, served.Client
		r["served"] = float64(served.N) / float64(fed.N)
		b.add(c.name, "steady", r)
		return nil
	})
}
