package main

import (
	"fmt"
	"io"
	"strings"
)

// column is a number of a table.
type column struct {
	title string
	name  string
	ratio bool // printed as a ratio to ours
}

// table prints contenders by columns, and ours over theirs where a column asks
// for it.
func (b *bench) table(out io.Writer, work string, columns []column) {
	var titles []string
	for _, c := range columns {
		titles = append(titles, c.title)
	}
	fmt.Fprintf(out, "| contender | %s |\n|---|%s\n", strings.Join(titles, " | "), strings.Repeat("--:|", len(columns)))
	for _, c := range b.contenders {
		if len(b.results[cell{c.name, work}]) == 0 {
			continue
		}
		var cells []string
		for _, col := range columns {
			cells = append(cells, b.cell(c.name, work, col))
		}
		fmt.Fprintf(out, "| %s | %s |\n", c.name, strings.Join(cells, " | "))
	}
	fmt.Fprintln(out)
}

func (b *bench) cell(contender, work string, col column) string {
	v, ok := b.results.value(contender, work, col.name)
	if !ok {
		return ""
	}
	if !col.ratio {
		return number(v)
	}
	ours, ok := b.results.value(us, work, col.name)
	if !ok || v == 0 || ours == 0 {
		return ""
	}
	return number(ours / v)
}

func (b *bench) showCycle(out io.Writer) {
	fmt.Fprint(out, "Server CPU in µs, and memory in bytes, for each task; batches of 100 from one goroutine.\n\n")
	for _, size := range []int{smallPayload, largePayload} {
		w := cycleWork(size)
		if len(b.results[cell{us, w}]) == 0 {
			continue
		}
		fmt.Fprintf(out, "Payload %d bytes:\n\n", size)
		b.table(out, w, []column{
			{"enqueue", "enqueue_us", false}, {"read", "read_us", false}, {"begin", "begin_us", false}, {"complete", "complete_us", false},
			{"ack and delete", "settle_us", false}, {"total", "total_us", false}, {"client µs", "client_us", false}, {"allocations", "allocs", false},
			{"bytes waiting", "waiting_bytes", false}, {"bytes done", "done_bytes", false},
		})
	}
}

var costs = []column{
	{"tasks/s", "tps", false}, {"claimq ÷ this", "tps", true},
	{"server µs", "server_us", false}, {"client µs", "client_us", false}, {"allocations", "allocs", false},
}

func (b *bench) showDrain(out io.Writer) {
	fmt.Fprintf(out, "A backlog is emptied. Medians; µs and allocations for each task. Payload, handler, handlers: %s.\n\n", mainWork)
	b.table(out, "drain "+mainWork.String(), costs)
	if len(b.matrix()) == 0 {
		return
	}
	all := append([]work{mainWork}, b.matrix()...)
	fmt.Fprint(out, "Tasks/s by payload, handler and handlers:\n\n")
	b.cells(out, all, "tps")
	fmt.Fprint(out, "Server CPU in µs for each task:\n\n")
	b.cells(out, all, "server_us")
}

// cells prints one number for each cell of the matrix and each contender.
func (b *bench) cells(out io.Writer, all []work, name string) {
	var names []string
	for _, c := range b.contenders {
		names = append(names, c.name)
	}
	fmt.Fprintf(out, "| | %s |\n|---|%s\n", strings.Join(names, " | "), strings.Repeat("--:|", len(names)))
	for _, w := range all {
		var values []string
		for _, c := range names {
			values = append(values, b.cell(c, "drain "+w.String(), column{name: name}))
		}
		fmt.Fprintf(out, "| %s | %s |\n", w, strings.Join(values, " | "))
	}
	fmt.Fprintln(out)
}

func (b *bench) showEnqueue(out io.Writer) {
	for _, size := range []int{smallPayload, largePayload} {
		for _, e := range enqueues() {
			w := e.work(size)
			if len(b.results[cell{us, w}]) == 0 {
				continue
			}
			fmt.Fprintf(out, "Payload %d bytes; callers: %d; tasks in a call: %d.\n\n", size, e.callers, e.batch)
			columns := costs
			if e.batch > 1 { // few connections, so that their buffers do not count
				columns = append(columns[:len(columns):len(columns)], column{"bytes waiting", "bytes", false})
			}
			b.table(out, w, columns)
		}
	}
}

func (b *bench) showBoth(out io.Writer) {
	fmt.Fprint(out, "64 callers add while 64 handlers run, 256 bytes, no-op.\n\n")
	b.table(out, "both", []column{
		{"tasks/s", "tps", false}, {"claimq ÷ this", "tps", true},
		{"server µs", "server_us", false}, {"consumer µs", "client_us", false}, {"producer µs", "producer_us", false},
	})
}

func (b *bench) showSteady(out io.Writer) {
	fmt.Fprintf(out, "%s tasks/s from 32 callers, 64 handlers, 256 bytes, no-op. Latency in ms from the call that enqueues to the start of the handler, in the best of the rounds.\n\n", thousands(fmt.Sprint(steadyRate)))
	b.table(out, "steady", []column{
		{"p50", "p50", false}, {"p99", "p99", false}, {"worst", "max", false},
		{"server µs", "server_us", false}, {"consumer µs", "client_us", false}, {"producer µs", "producer_us", false},
	})
}

func (b *bench) showQuiet(out io.Writer) {
	fmt.Fprintf(out, "Server CPU of a fleet at rest over %s, in per cent of one core:\n\n| | %% |\n|---|--:|\n", b.rests())
	for _, f := range fleets() {
		if v, ok := b.results.value(us, f.work, "core_percent"); ok {
			fmt.Fprintf(out, "| %s | %.2f |\n", f.work, v)
		}
	}
	fmt.Fprintf(out, "\nTasks in the handlers of a process that is killed, and how long until the last of them starts in a process begun right after, at defaults:\n\n| contender | tasks held | started again | seconds |\n|---|--:|--:|--:|\n")
	for _, c := range b.contenders {
		rows := b.results[cell{c.name, "recovery"}]
		if len(rows) == 0 {
			continue
		}
		r := rows[0]
		seconds := fmt.Sprintf("%.1f", r["last_s"])
		if r["recovered"] < r["held"] {
			seconds = fmt.Sprintf("not within %.0f", r["patience_s"])
		}
		fmt.Fprintf(out, "| %s | %.0f | %.0f | %s |\n", c.name, r["held"], r["recovered"], seconds)
	}
	fmt.Fprintln(out)
}

func (b *bench) showGrowth(out io.Writer) {
	fmt.Fprintf(out, "Server CPU in µs for each task (its whole life, batches of 100) and for one round of chores (turn, reclaim, tidy, stats), each beside \"%s\" on a second server, in turns of 3,000 tasks. Floor: the same reads and writes of a record for each task as plain commands, beside as much data. Slow: script calls of more than 50 ms.\n\n", empty)
	fmt.Fprint(out, "| state | task | ratio | floor | ratio | chores | ratio | slow |\n|---|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, s := range b.states() {
		w := "growth " + s.name
		v := func(name string) float64 { m, _ := b.results.value(us, w, name); return m }
		plain, ratio := "", ""
		if us, ok := b.results.value(floor, w, "total_us"); ok {
			r, _ := b.results.value(floor, w, "ratio")
			plain, ratio = number(us), number(r)
		}
		fmt.Fprintf(out, "| %s | %s | %.2f | %s | %s | %s | %.2f | %.0f |\n", s.name, number(v("total_us")), v("ratio"), plain, ratio, number(v("chores_us")), v("chores_ratio"), v("slow_calls"))
	}
	fmt.Fprintf(out, "\nServer CPU in µs for each task, with %d partitions and with one: a worker with 64 handlers that do nothing drains a backlog, which 8 callers have enqueued in batches of 100.\n\n| | %d | 1 | ratio |\n|---|--:|--:|--:|\n", manyPartitions, manyPartitions)
	for _, w := range []string{drainWork, enqueueWork} {
		v := func(name string) float64 { m, _ := b.results.value(us, w, name); return m }
		least, most := b.results.spread(us, w, "ratio")
		_, what, _ := strings.Cut(w, ", ")
		fmt.Fprintf(out, "| %s | %s | %s | %.2f (%.2f to %.2f) |\n", what, number(v("server_us")), number(v("base_us")), v("ratio"), least, most)
	}
	fmt.Fprintf(out, "\nServer CPU in µs for each of %s tasks that fall due at the same moment:\n\n| beside | µs | slow |\n|---|--:|--:|\n", thousands(fmt.Sprint(due)))
	for _, n := range b.besides() {
		v := func(name string) float64 { m, _ := b.results.value(us, promotionWork(n), name); return m }
		fmt.Fprintf(out, "| %s scheduled | %s | %.0f |\n", thousands(fmt.Sprint(n)), number(v("promote_us")), v("slow_calls"))
	}
	fmt.Fprintln(out)
}
