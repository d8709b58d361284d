package sim

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/claimq/claimq/queue"
)

// observerName is the client that no fault concerns.
const observerName = "operator"

// record is the value of a task in the hash tasks; see queue/lua/include/record.lua.
type record struct {
	place byte // w, s, d, h, p; 0: no record
	entry string
	fence uint64
	token string
}

func parseRecord(v string) record {
	parts := strings.Fields(v)
	if len(parts) < 2 {
		return record{}
	}
	r := record{place: v[0], entry: parts[0][1:]}
	if len(parts) == 4 {
		r.fence, _ = strconv.ParseUint(parts[2], 10, 64)
		r.token = parts[3]
	}
	return r
}

func (r record) held() bool   { return r.place == 'h' || r.place == 'p' }
func (r record) tail() string { return fmt.Sprintf(" %d %s", r.fence, r.token) }
func (r record) String() string {
	if r.place == 0 {
		return "nowhere"
	}
	return fmt.Sprintf("%c%s%s", r.place, r.entry, r.tail())
}

// part is what the server holds of one partition.
type part struct {
	prefix  string
	records map[string]record
	leases  map[string]float64
	dirty   map[string]bool // keys written by the call in progress
}

// observer compares what the server holds with a model, after each command.
type observer struct {
	w     *world
	srv   *server
	parts []*part
	lease time.Duration

	mu      sync.Mutex
	tasks   map[string]*task
	owner   map[string]string  // token -> process
	expiry  map[string]float64 // token -> end of its lease, kept when the lease is gone
	outside map[string]bool    // stream and entry of what was added by hand

	script, who string
	args        []string
}

func newObserver(w *world, srv *server, q *queue.Queue) *observer {
	o := &observer{w: w, srv: srv, lease: q.Config().Lease, tasks: map[string]*task{}, owner: map[string]string{}, expiry: map[string]float64{}, outside: map[string]bool{}}
	for p := range q.Partitions() {
		o.parts = append(o.parts, &part{
			prefix:  strings.TrimSuffix(q.StreamKey(p), "stream"),
			records: map[string]record{}, leases: map[string]float64{}, dirty: map[string]bool{},
		})
	}
	return o
}

func (o *observer) before(script, who string, args []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.script, o.who, o.args = script, who, args
}

// nested sees a command of a script before it runs.
func (o *observer) nested(cmd string, args []string) {
	if len(args) == 0 || cmd[0] == 'X' && (cmd == "XRANGE" || cmd == "XPENDING" || cmd == "XINFO" || cmd == "XLEN") {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range o.parts {
		if what, ok := strings.CutPrefix(args[0], p.prefix); ok {
			switch cmd {
			case "HSET", "HDEL", "XADD", "XDEL", "ZADD", "ZREM", "XACK", "DEL":
				p.dirty[what] = true
			case "XCLAIM":
				o.claims(p, args[4:])
			}
		}
	}
}

// claims: only what no live lease covers may be taken over.
func (o *observer) claims(p *part, entries []string) {
	now := float64(time.Now().UnixMilli())
	for id, r := range p.records {
		if r.held() && slices.Contains(entries, r.entry) && p.leases[r.token] > now {
			o.w.report(id, "I2: %s takes over an entry under a live lease (%v)", o.script, r)
		}
	}
}

// after compares what has changed.
func (o *observer) after() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range o.parts {
		if p.dirty["leases"] || p.dirty["tasks"] {
			leases, _ := o.srv.mini.SortedSet(p.prefix + "leases")
			leases = maps.Clone(leases) // it is the server's own
			if leases == nil {
				leases = map[string]float64{}
			}
			records := o.read(p)
			for _, id := range sortedKeys(p.records, records) {
				if old, now := p.records[id], records[id]; old != now {
					o.moved(p, id, old, now)
				}
			}
			o.leases(p, leases)
			p.records, p.leases = records, leases
		}
		if p.dirty["tasks"] || p.dirty["stream"] || p.dirty["scheduled"] || p.dirty["dead"] || p.dirty["due"] {
			o.places(p)
		}
		clear(p.dirty)
	}
}

func sortedKeys[V any](maps ...map[string]V) []string {
	var keys []string
	for _, m := range maps {
		for k := range m {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func (o *observer) read(p *part) map[string]record {
	records := map[string]record{}
	ids, _ := o.srv.mini.HKeys(p.prefix + "tasks")
	for _, id := range ids {
		records[id] = parseRecord(o.srv.mini.HGet(p.prefix+"tasks", id))
	}
	return records
}

// addedByHand notes the newest entry of a stream as one of the operator's.
func (o *observer) addedByHand(stream string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	entries, _ := o.srv.mini.Stream(stream)
	if len(entries) > 0 {
		o.outside[stream+" "+entries[len(entries)-1].ID] = true
	}
}

// marked reports whether a task is remembered as done.
func (o *observer) marked(p *part, id string) bool {
	sum := sha256.Sum256([]byte(id))
	for s := range 3 {
		if o.srv.mini.HGet(fmt.Sprintf("%sdone%d", p.prefix, s+1), string(sum[:16])) != "" {
			return true
		}
	}
	return false
}

// leases: an ended lease is never revived, and none comes from nowhere.
func (o *observer) leases(p *part, leases map[string]float64) {
	now := float64(time.Now().UnixMilli())
	maps.Copy(o.expiry, leases)
	for _, token := range sortedKeys(leases) {
		if o.script != "renew" || leases[token] <= p.leases[token] {
			continue
		}
		if p.leases[token] <= now {
			o.w.report("", "I4: renew revives lease %s that ended %.0f ms ago", token, now-p.leases[token])
		}
		if owner := o.owner[token]; owner != "" && owner != o.who {
			o.w.report("", "I4: %s renews lease %s of %s", o.who, token, owner)
		}
	}
}

// places: I1, every task is in exactly one place.
func (o *observer) places(p *part) {
	where := map[string]map[string]string{} // stream -> entry -> ID
	for _, what := range []string{"stream", "scheduled", "dead"} {
		where[what] = map[string]string{}
		entries, _ := o.srv.mini.Stream(p.prefix + what)
		for _, e := range entries {
			id := e.ID
			for i := 0; i+1 < len(e.Values); i += 2 {
				if e.Values[i] == "id" || e.Values[i] == "dead_task" {
					id = e.Values[i+1]
					break
				}
			}
			where[what][e.ID] = id
		}
	}
	due, _ := o.srv.mini.SortedSet(p.prefix + "due")
	for _, id := range sortedKeys(p.records) {
		r := p.records[id]
		home := map[byte]string{'s': "scheduled", 'd': "dead"}[r.place]
		if home == "" {
			home = "stream"
		}
		if where[home][r.entry] == "" {
			o.w.report(id, "I1: its record says %v, but %s has no such entry after %s", r, home, o.script)
		}
		delete(where[home], r.entry)
		if _, ok := due[r.entry+" "+id]; r.place == 's' && !ok {
			o.w.report(id, "I1: scheduled, but not in the index after %s", o.script)
		}
	}
	for _, what := range []string{"stream", "scheduled", "dead"} {
		for _, entry := range sortedKeys(where[what]) {
			if what != "stream" || !o.outside[p.prefix+what+" "+entry] {
				o.w.report(where[what][entry], "I1: a second entry %s in %s after %s", entry, what, o.script)
			}
		}
	}
}
