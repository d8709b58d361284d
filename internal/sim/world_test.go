package sim

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// world is one run: its seed, its virtual time, its trace and its findings.
type world struct {
	seed  uint64
	start time.Time

	mu       sync.Mutex
	instants map[int64]bool
	sum      uint64 // of the hashes of all events
	events   []event
	found    []finding
	faults   map[string]int
	spans    map[string][]span // by process; "" is the server's
	calm     bool              // no more faults
}

// event is one line of the trace.
type event struct {
	at   time.Duration
	who  string
	what string
	args []string
}

// finding is something that must not happen.
type finding struct {
	at   time.Duration
	what string
	task string // may be empty
}

// span is a time in which a process was disturbed.
type span struct {
	kind     string
	from, to time.Time
}

func newWorld(seed uint64) *world {
	return &world{
		seed: seed, start: time.Now(), instants: map[int64]bool{},
		faults: map[string]int{}, spans: map[string][]span{},
	}
}

func (w *world) now() time.Duration { return time.Since(w.start) }

// draw is a number that depends on the seed and on what it is for, not on how
// many were drawn before: two goroutines that run at the same instant cannot
// take each other's.
func (w *world) draw(parts ...string) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d", w.seed)
	for _, p := range parts {
		_, _ = io.WriteString(h, "\x00"+p)
	}
	x := h.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// unit is a draw from 0 to 1.
func (w *world) unit(parts ...string) float64 { return float64(w.draw(parts...)>>11) / (1 << 53) }

// between is a draw from a to b.
func (w *world) between(a, b time.Duration, parts ...string) time.Duration {
	return a + time.Duration(w.draw(parts...)%uint64(max(b-a, 1)))
}

// rand is the source of one component.
func (w *world) rand(name string) *rand.Rand {
	return rand.New(rand.NewPCG(w.seed, w.draw("rand", name)))
}

// source is the source of one component of a process. What it gives depends on
// the moment and on the goroutine's first function, so that two loops which draw
// at one instant get the same in any order.
type source struct {
	w    *world
	name string

	mu    sync.Mutex
	now   time.Duration
	drawn map[string]int // at this moment, by place
}

func (w *world) source(name string) *source {
	return &source{w: w, name: name, drawn: map[string]int{}}
}

// Uint64 makes it a rand.Source.
func (s *source) Uint64() uint64 {
	place := firstFunction()
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.w.now(); now != s.now {
		s.now = now
		clear(s.drawn)
	}
	s.drawn[place]++
	return s.w.draw("source", s.name, s.now.String(), place, strconv.Itoa(s.drawn[place]))
}

// Read makes it an io.Reader.
func (s *source) Read(p []byte) (int, error) {
	for i := 0; i < len(p); i += 8 {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], s.Uint64())
		copy(p[i:], b[:])
	}
	return len(p), nil
}

// firstFunction is the first function of this module that the goroutine called.
func firstFunction() string {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	first := ""
	for {
		f, more := frames.Next()
		if strings.HasPrefix(f.Function, "github.com/claimq/claimq/") {
			first = f.Function
		}
		if !more {
			return first
		}
	}
}

// unique moves a moment until it is nobody else's: timers of one instant fire
// in any order.
func (w *world) unique(at time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.instants[at.UnixNano()] {
		at = at.Add(1)
	}
	w.instants[at.UnixNano()] = true
	return at
}

// after runs f at a moment of its own, d from now at the earliest.
func (w *world) after(d time.Duration, f func()) {
	at := w.unique(time.Now().Add(d))
	time.AfterFunc(time.Until(at), f)
}

// delay is d, or a little more, so that it ends at a moment of its own.
func (w *world) delay(d time.Duration) time.Duration { return time.Until(w.unique(time.Now().Add(d))) }

// log adds to the trace.
func (w *world) log(who, what string, args ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := w.now()
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s %s", at, who, what)
	for _, a := range args {
		_, _ = io.WriteString(h, "\x00"+steady(a))
	}
	w.sum += h.Sum64() // handlers that start at one instant do so in any order
	w.events = append(w.events, event{at, who, what, args})
}

// fault notes that a process (or the server, "") is disturbed from now for d.
func (w *world) fault(who, kind string, d time.Duration) {
	now := time.Now()
	w.log(who, "FAULT "+kind, d.String())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults[kind]++
	w.spans[who] = append(w.spans[who], span{kind, now, now.Add(d)})
}

const forever = 1000 * time.Hour

// disturbed names a fault of the process or of the server that overlaps a time.
func (w *world) disturbed(who string, from, to time.Time) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range slices.Concat(w.spans[who], w.spans[""]) {
		if !s.from.After(to) && !s.to.Before(from) {
			return s.kind
		}
	}
	return ""
}

// report notes a finding.
func (w *world) report(task, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	w.log("", "FOUND "+what, task)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found = append(w.found, finding{w.now(), what, task})
}

func (w *world) isCalm() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calm
}

// timeline is what the trace says about one task, and all faults.
func timeline(events []event, task string) string {
	var b strings.Builder
	for _, e := range events {
		fault := strings.HasPrefix(e.what, "FAULT ") || strings.HasPrefix(e.what, "FOUND ")
		about := task != "" && slices.ContainsFunc(e.args, func(a string) bool { return strings.Contains(a, task) })
		if fault || about {
			fmt.Fprintf(&b, "%14.6fs  %-8s %s %s\n", e.at.Seconds(), e.who, e.what, shorten(e.args, task))
		}
	}
	return b.String()
}

// shorten keeps of long arguments what tells the story.
func shorten(args []string, task string) string {
	if len(args) <= 12 {
		return fmt.Sprintf("%.300q", args)
	}
	var kept []string
	for _, a := range args {
		if strings.Contains(a, task) || strings.HasPrefix(a, " ") {
			kept = append(kept, a)
		}
	}
	return fmt.Sprintf("(of %d arguments) %.300q", len(args), kept)
}
