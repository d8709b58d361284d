package demo

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// view shows a run while it goes on: on a terminal a block that is redrawn,
// elsewhere one line a second. Events scroll by in both.
type view struct {
	w        io.Writer
	terminal bool
	began    time.Time

	mu    sync.Mutex
	block []string // what is drawn at the bottom of the terminal
}

// figures is one moment of a run.
type figures struct {
	tasks                        int
	waiting, pending, done       int64
	reclaimed, requests, effects int
	workers                      []string // "worker-1 running"
}

func (v *view) every() time.Duration {
	if v.terminal {
		return 200 * time.Millisecond
	}
	return time.Second
}

// event prints a line that stays.
func (v *view) event(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.erase()
	fmt.Fprintf(v.w, "%5.1fs  %s\n", time.Since(v.began).Seconds(), fmt.Sprintf(format, args...))
	v.draw()
}

// show brings the figures up to date.
func (v *view) show(f figures) {
	v.mu.Lock()
	defer v.mu.Unlock()
	line := fmt.Sprintf("waiting %d  pending %d  reclaimed %d  done %d  requests %d  effects %d",
		f.waiting, f.pending, f.reclaimed, f.done, f.requests, f.effects)
	if !v.terminal {
		fmt.Fprintf(v.w, "%5.1fs  %s\n", time.Since(v.began).Seconds(), line)
		return
	}
	v.erase()
	v.block = []string{
		fmt.Sprintf("%5.1fs  %s %d/%d", time.Since(v.began).Seconds(), bar(f.done, int64(f.tasks)), f.done, f.tasks),
		"        " + line,
		"        " + strings.Join(f.workers, "  "),
	}
	v.draw()
}

// finish removes the block.
func (v *view) finish() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.erase()
	v.block = nil
}

// erase moves to the first line of the block and clears what follows. Lines
// are kept from wrapping, so a line is a row.
func (v *view) erase() {
	if n := len(v.block); n > 0 {
		fmt.Fprintf(v.w, "\x1b[%dA\r\x1b[J\x1b[?7h", n)
	}
}

func (v *view) draw() {
	if len(v.block) > 0 {
		fmt.Fprint(v.w, "\x1b[?7l", strings.Join(v.block, "\n"), "\n\x1b[?7h")
	}
}

func bar(done, all int64) string {
	const width = 40
	n := 0
	if all > 0 {
		n = int(min(max(done, 0), all) * width / all)
	}
	return "[" + strings.Repeat("#", n) + strings.Repeat(".", width-n) + "]"
}
