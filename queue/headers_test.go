package queue_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/claimq/claimq/internal/redistest"
	"github.com/claimq/claimq/queue"
)

// luaFile is one script as a reader sees it.
type luaFile struct {
	name   string
	header string // without the comment marks
	body   string // without comments, includes first
	own    string // body without the includes
	incl   []string
}

func uncommented(src string) string {
	var b strings.Builder
	for line := range strings.Lines(src) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			line, _, _ = strings.Cut(line, " -- ")
			b.WriteString(strings.TrimRight(line, "\n") + "\n")
		}
	}
	return b.String()
}

func readLua(t *testing.T) map[string]luaFile {
	t.Helper()
	paths, err := filepath.Glob("lua/*.lua")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	out := map[string]luaFile{}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		head, rest, ok := strings.Cut(string(raw), "\n\n")
		if !ok {
			t.Fatalf("%s: no blank line after its header", path)
		}
		f := luaFile{name: strings.TrimSuffix(filepath.Base(path), ".lua")}
		for line := range strings.Lines(head + "\n") {
			text, comment := strings.CutPrefix(strings.TrimRight(line, "\n"), "--")
			if !comment {
				t.Fatalf("%s: the header holds code: %q", path, line)
			}
			if strings.HasPrefix(text, " @include ") {
				continue
			}
			f.header += strings.TrimPrefix(text, " ") + "\n"
		}
		f.own = uncommented(rest)
		for line := range strings.Lines(string(raw)) {
			f.body += uncommented(line)
			names, ok := strings.CutPrefix(strings.TrimSpace(line), "-- @include ")
			if !ok {
				continue
			}
			for _, name := range strings.Fields(names) {
				frag, err := os.ReadFile(filepath.Join("lua", "include", name+".lua"))
				if err != nil {
					t.Fatal(err)
				}
				f.incl = append(f.incl, name)
				f.body += uncommented(string(frag))
			}
		}
		out[f.name] = f
	}
	return out
}

// changesNoTask are the scripts that move no task, and so keep no invariant.
var changesNoTask = map[string]string{
	"turn":    "a heartbeat, and who does a chore",
	"ensure":  "makes the group and the settings",
	"stats":   "only reads",
	"times":   "an estimate for advice",
	"inspect": "only reads",
	"probe":   "a scratch key",
}

var (
	keyDecl   = regexp.MustCompile(`KEYS\[(\d+)\] (\w+) (\w+)`)
	keyUse    = regexp.MustCompile(`KEYS\[(\d+)\]`)
	keyOffset = regexp.MustCompile(`KEYS\[(\d+) \+ \w+\]`)
	argUse    = regexp.MustCompile(`ARGV\[(\d+)\]`)
	keyDoc    = regexp.MustCompile(`(?m)^//\t(\w+?)(1\.\.3)?\s+(stream|hash|zset|string)\s`)
	command   = regexp.MustCompile(`\bp?call\('(\w+)'(?:, ('[^']*'|"[^"]*"))?`)
	ack       = regexp.MustCompile(`'XACK'`)
)

// documentedKeys are the types in the list of keys.go.
func documentedKeys(t *testing.T) map[string]string {
	t.Helper()
	src, err := os.ReadFile("keys.go")
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]string{"probe": "any"}
	for _, m := range keyDoc.FindAllStringSubmatch(string(src), -1) {
		if m[2] == "" {
			types[m[1]] = m[3]
			continue
		}
		for i := range 3 {
			types[m[1]+strconv.Itoa(i+1)] = m[3]
		}
	}
	return types
}

func TestScriptHeaders(t *testing.T) {
	types := documentedKeys(t)
	for name, f := range readLua(t) {
		t.Run(name, func(t *testing.T) {
			first, _, _ := strings.Cut(f.header, "\n")
			if !regexp.MustCompile(`^[A-Z][a-z ]+: [a-z]`).MatchString(first) {
				t.Errorf("it does not begin with what it does, in a sentence: %q", first)
			}
			if !strings.Contains(f.header, "\nReplies: ") {
				t.Error("no Replies")
			}
			if keeps := strings.Contains(f.header, "\nKeeps I"); keeps == (changesNoTask[name] != "") {
				t.Errorf("Keeps is there: %v; changes no task: %q", keeps, changesNoTask[name])
			}
			checkKeys(t, f, types)
			checkArgs(t, f)
		})
	}
}

func checkKeys(t *testing.T, f luaFile, types map[string]string) {
	t.Helper()
	declared := keyDecl.FindAllStringSubmatch(f.header, -1)
	if len(declared) == 0 {
		t.Error("no KEYS")
	}
	for i, m := range declared {
		if m[1] != strconv.Itoa(i+1) {
			t.Errorf("KEYS[%s] is out of order", m[1])
		}
		if types[m[2]] != m[3] {
			t.Errorf("KEYS[%s] %s is a %s here and a %q in keys.go", m[1], m[2], m[3], types[m[2]])
		}
	}
	used := map[int]bool{}
	for _, m := range keyUse.FindAllStringSubmatch(f.body, -1) {
		used[atoi(m[1])] = true
	}
	for _, m := range keyOffset.FindAllStringSubmatch(f.body, -1) { // KEYS[10 + slice]
		for s := 1; s <= 3; s++ {
			used[atoi(m[1])+s] = true
		}
	}
	for _, m := range regexp.MustCompile(`for s = (\d+), (\d+) do`).FindAllStringSubmatch(f.body, -1) {
		for s := atoi(m[1]); s <= atoi(m[2]); s++ {
			used[s] = true
			if strings.Contains(f.body, "KEYS[s + 3]") {
				used[s+3] = true
			}
		}
	}
	for n := range used {
		if n > len(declared) {
			t.Errorf("KEYS[%d] is used, %d are declared", n, len(declared))
		}
	}
	for n := 1; n <= len(declared); n++ {
		if !used[n] {
			t.Errorf("KEYS[%d] is declared and not used", n)
		}
	}
	// A key that is no parameter would be in another slot of a cluster.
	for _, m := range command.FindAllStringSubmatch(f.body, -1) {
		if m[2] != "" && m[1] != "XGROUP" && m[1] != "XINFO" {
			t.Errorf("%s on a key that is written out: %s", m[1], m[2])
		}
	}
}

func checkArgs(t *testing.T, f luaFile) {
	t.Helper()
	documented := map[int]bool{}
	last, many := 0, false
	for _, m := range argUse.FindAllStringSubmatchIndex(f.header, -1) {
		n := atoi(f.header[m[2]:m[3]])
		if n > last+1 {
			t.Errorf("ARGV[%d] follows ARGV[%d]", n, last)
		}
		last = max(last, n)
		documented[n] = true
		many = strings.HasPrefix(f.header[m[1]:], " n ")
	}
	used := map[int]bool{}
	for _, m := range argUse.FindAllStringSubmatch(f.body, -1) {
		used[atoi(m[1])] = true
	}
	for n := range used {
		if !documented[n] {
			t.Errorf("ARGV[%d] is used and not documented", n)
		}
	}
	for n := range documented {
		if !used[n] {
			t.Errorf("ARGV[%d] is documented and not used", n)
		}
	}
	if !many {
		return
	}
	// The columns begin right after n.
	columns := regexp.MustCompile(`local ids, \w+.* = (\d+), `).FindStringSubmatch(f.body)
	if columns != nil && atoi(columns[1]) != last {
		t.Errorf("the columns begin after ARGV[%s], n is ARGV[%d]", columns[1], last)
	}
}

func TestEveryScriptIsDeclared(t *testing.T) {
	src, err := os.ReadFile("script.go")
	if err != nil {
		t.Fatal(err)
	}
	var declared []string
	for _, m := range regexp.MustCompile(`mustLoad\("(\w+)"\)`).FindAllStringSubmatch(string(src), -1) {
		declared = append(declared, m[1])
	}
	slices.Sort(declared)
	files := readLua(t)
	if names := slices.Sorted(maps.Keys(files)); !slices.Equal(names, declared) {
		t.Errorf("files %v, declared %v", names, declared)
	}
	included := map[string]bool{}
	for _, f := range files {
		for _, name := range f.incl {
			included[name] = true
		}
	}
	frags, err := filepath.Glob("lua/include/*.lua")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range frags {
		if name := strings.TrimSuffix(filepath.Base(path), ".lua"); !included[name] {
			t.Errorf("nobody includes %s", path)
		}
	}
}

// acks are the places that ack an entry, and why each may: XACK asks nobody
// whose the entry is.
var acks = map[string]struct {
	n   int
	why string
}{
	"complete":       {1, "the holder was checked, the ID is remembered as done"},
	"retry":          {1, "the holder was checked, the copy exists"},
	"release":        {1, "the holder was checked, the copy exists"},
	"dead":           {1, "the holder was checked, the copy exists"},
	"begin":          {1, "a copy: the ID is done, the task is another entry, or the entry was deleted"},
	"quarantine":     {1, "no task; the copy in the dead letters exists"},
	"reclaim":        {1, "the entry is gone from the stream"},
	"tidy":           {1, "the entry is gone from the stream"},
	"delete":         {1, "an operator's order"},
	"probe":          {1, "a scratch key"},
	"include/settle": {1, "drop_gone: the holder was checked, the entry is gone from the stream"},
}

func TestAcksAreAccountedFor(t *testing.T) {
	found := map[string]int{}
	err := filepath.WalkDir("lua", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		if n := len(ack.FindAllString(uncommented(string(raw)), -1)); n > 0 {
			found[strings.TrimSuffix(strings.TrimPrefix(filepath.ToSlash(path), "lua/"), ".lua")] = n
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, n := range found {
		if acks[name].n != n {
			t.Errorf("%s acks in %d places, %d are accounted for", name, n, acks[name].n)
		}
	}
	for name, a := range acks {
		if found[name] == 0 {
			t.Errorf("%s does not ack any more (%s)", name, a.why)
		}
	}
}

// full makes the server refuse writes that need memory, until about slack bytes
// have been freed, and returns how to check that it does.
func full(r *rig, slack int) (check func(step string), lift func()) {
	r.t.Helper()
	var used int
	for line := range strings.Lines(r.c.Info(bg, "memory").Val()) {
		if v, ok := strings.CutPrefix(line, "used_memory:"); ok {
			used = atoi(strings.TrimSpace(v))
		}
	}
	limit := func(n int) {
		if err := r.c.ConfigSet(bg, "maxmemory", strconv.Itoa(n)).Err(); err != nil {
			r.t.Fatal(err)
		}
	}
	limit(used - slack)
	check = func(step string) {
		r.t.Helper()
		if err := r.c.Set(bg, r.prefix+":more", "x", 0).Err(); err == nil || !strings.HasPrefix(err.Error(), "OOM") {
			r.t.Fatalf("after %s the server is not full: %v", step, err)
		}
	}
	check("the limit was set")
	return check, func() { limit(0) }
}

// TestFullServerDrains is D2: on a server without memory everything but
// Enqueue works, and Enqueue is refused whole.
func TestFullServerDrains(t *testing.T) {
	for _, trace := range []bool{false, true} {
		t.Run(fmt.Sprint("trace ", trace), func(t *testing.T) { drainsFull(t, trace) })
	}
}

func drainsFull(t *testing.T, trace bool) {
	srv := redistest.Start(t, "--maxmemory-policy", "noeviction")
	r := rigOn(t, srv.Client(), func(c *queue.Config) { c.NoHandlerAfter, c.Trace = time.Hour, trace })
	q := r.q
	const fillers = 120
	for i := range fillers {
		r.add(queue.Task{ID: queue.TaskID(fmt.Sprintf("filler-%d", i)), Kind: "k", Payload: make([]byte, 20<<10)})
	}
	r.add(tasksNamed(numbered("t", 20)...)...)
	r.add(queue.Task{ID: "later", Kind: "k", Delay: time.Minute}, queue.Task{ID: "deleted", Kind: "k", Delay: time.Minute})
	if err := r.c.XAdd(bg, xadd(q.StreamKey(0), "no", "task")).Err(); err != nil {
		t.Fatal(err)
	}
	fill := r.take("w1", fillers)
	isFull, lift := full(r, 600<<10)

	// The scripts have to be loaded on the full server too.
	if err := r.c.ScriptFlush(bg).Err(); err != nil {
		t.Fatal(err)
	}
	refused := func() {
		t.Helper()
		before := r.c.XInfoStream(bg, q.StreamKey(0)).Val().EntriesAdded
		records := r.c.HLen(bg, r.key(0, "tasks")).Val()
		got := q.Enqueue(bg, q.NewToken(), append(tasksNamed("new1", "new2"), queue.Task{ID: "new3", Kind: "k", Delay: time.Hour}))
		for _, rec := range got {
			if !errors.Is(rec.Err, queue.ErrUnavailable) || !strings.Contains(rec.Err.Error(), "OOM") || rec.Added || rec.Duplicate {
				t.Errorf("enqueue on a full server: %+v", rec)
			}
		}
		if after := r.c.XInfoStream(bg, q.StreamKey(0)).Val().EntriesAdded; after != before {
			t.Errorf("%d entries were added", after-before)
		}
		if n := r.c.HLen(bg, r.key(0, "tasks")).Val(); n != records {
			t.Errorf("records grew from %d to %d", records, n)
		}
	}
	refused()
	isFull("enqueue")

	if err := q.Ensure(bg); err != nil {
		t.Errorf("ensure: %v", err)
	}
	for _, turn := range q.Turn(bg, queue.TurnRequest{Consumer: "w1", Slots: true, Interval: time.Millisecond}) {
		if turn.Err != nil {
			t.Errorf("turn: %v", turn.Err)
		}
	}
	es := r.read("w1", 21)
	b := r.begin(es, 10) // also quarantine
	if len(b.Deliveries) != 20 || len(b.Buried) != 1 {
		t.Fatalf("begin: %d granted, %d buried, read %d", len(b.Deliveries), len(b.Buried), len(es))
	}
	ds := b.Deliveries
	for _, err := range q.Start(bg, []queue.Lease{ds[10].Lease, ds[11].Lease}) {
		if err != nil {
			t.Errorf("start: %v", err)
		}
	}
	if got := q.Renew(bg, []queue.Grant{ds[0].Lease.Grant}); got[0].Err != nil {
		t.Errorf("renew: %v", got[0].Err)
	}
	if _, errs := q.Split(bg, q.NewToken(), []queue.Lease{ds[12].Lease}); errs[0] != nil {
		t.Errorf("split: %v", errs[0])
	}
	if _, err := q.StepIntent(bg, ds[0].Lease, "s", "key", q.NewToken()); err != nil {
		t.Errorf("step intent: %v", err)
	}
	if _, err := q.StepResult(bg, ds[0].Lease, "s", queue.StepDone, []byte("r")); err != nil {
		t.Errorf("step result: %v", err)
	}
	isFull("begin, start, renew, split and steps")
	r.must(queue.Completed, q.Complete(bg, settlements(ds[:1])))
	r.must(queue.Retried, q.Retry(bg, settlements(ds[1:2])))
	r.must(queue.Released, q.Release(bg, settlements(ds[2:3])))
	r.must(queue.Released, q.Release(bg, settlements(ds[3:4], func(s *queue.Settlement) { s.Delay = time.Minute })))
	r.must(queue.Released, q.Release(bg, settlements(ds[4:5], func(s *queue.Settlement) { s.Unhandled = true })))
	r.must(queue.DeadLettered, q.DeadLetter(bg, settlements(ds[5:6], func(s *queue.Settlement) { s.Reason = queue.DeadRejected })))
	isFull("settling")
	lift() // the test's own writes need memory
	r.advance(2 * time.Minute)
	isFull, lift = full(r, 600<<10)
	if p, err := q.Promote(bg, 0, 100); err != nil || p.Count != 5 {
		t.Errorf("promote: %+v %v", p, err)
	}
	if m := q.Redrive(bg, []queue.TaskID{ds[5].Task.ID}); m[0].Err != nil {
		t.Errorf("redrive: %v", m[0].Err)
	}
	if m := q.Delete(bg, []queue.TaskID{"deleted", ds[6].Task.ID}); m[0].Err != nil || m[1].Err != nil {
		t.Errorf("delete: %+v", m)
	}
	if _, err := q.Tidy(bg, 0); err != nil {
		t.Errorf("tidy: %v", err)
	}
	if got := r.reclaim(0, "w2", 5); len(got.Entries) == 0 {
		t.Error("reclaim found nothing")
	} else if b := r.begin(got.Entries, 5); len(b.Deliveries) != len(got.Entries) {
		t.Errorf("begin after reclaim: %+v", b)
	}
	if _, err := q.Stats(bg); err != nil {
		t.Errorf("stats: %v", err)
	}
	isFull("moving")
	refused()

	// The holders' leases have ended but nobody took these: they may settle.
	var held []queue.Delivery
	for _, d := range fill {
		if r.inspect(string(d.Task.ID)).Token == d.Lease.Grant.Token {
			held = append(held, d)
		}
	}
	r.must(queue.Completed, q.Complete(bg, settlements(held)))
	r.add(tasksNamed("new1")...)
	lift()
}
