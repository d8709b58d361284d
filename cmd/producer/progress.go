package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// maxProblems is how many problems are printed one by one; all are counted.
const maxProblems = 100

// progress shows how far it is: a bar on a terminal, a line now and then
// elsewhere.
type progress struct {
	out      io.Writer
	bar      *progressbar.ProgressBar // nil: lines
	size     int64                    // 0: unknown
	done     int64
	began    time.Time
	problems int
}

func newProgress(out io.Writer, size int64) *progress {
	p := &progress{out: out, size: size, began: time.Now()}
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return p
	}
	total := size
	if total == 0 {
		total = -1 // a spinner
	}
	p.bar = progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(out),
		progressbar.OptionShowBytes(true),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionFullWidth(),
		progressbar.OptionSetDescription("0 tasks"),
		progressbar.OptionSetRenderBlankState(true),
	)
	return p
}

// advance notes that everything up to this byte is dealt with.
func (p *progress) advance(r *report, end int64) {
	p.done = end
	if p.bar != nil {
		p.bar.Describe(fmt.Sprintf("%d tasks", r.sent()))
		_ = p.bar.Set64(end) // a bar that cannot be drawn is no reason to stop
	}
}

// tick is called about every second.
func (p *progress) tick(r *report) {
	if p.bar != nil {
		return // it draws itself
	}
	took := time.Since(p.began)
	line := fmt.Sprintf("%d tasks, %.0f/s", r.sent(), float64(r.sent())/took.Seconds())
	if p.size > 0 && p.done > 0 {
		left := time.Duration(float64(took) * float64(p.size-p.done) / float64(p.done))
		line += fmt.Sprintf(", %d%%, %v left", 100*p.done/p.size, left.Round(time.Second))
	}
	fmt.Fprintln(p.out, line)
}

// problem prints what is wrong with one line.
func (p *progress) problem(r *report, line int64, err error) {
	p.problems++
	if p.problems > maxProblems+1 {
		return
	}
	if p.bar != nil {
		_ = p.bar.Clear()
	}
	switch {
	case p.problems > maxProblems:
		fmt.Fprintf(p.out, "further problems are counted and not shown\n")
	case r.single:
		fmt.Fprintf(p.out, "%v\n", err)
	default:
		fmt.Fprintf(p.out, "line %d: %v\n", line, err)
	}
}

func (p *progress) finish() {
	if p.bar != nil {
		_ = p.bar.Exit()
		fmt.Fprintln(p.out)
	}
}
