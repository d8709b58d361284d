package sim

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"
)

// bug is one that is planted on purpose: in the text of a script, on its way to
// the server, or around a handler. Within is the number of seeds, from 1 on, in
// which the simulation must find it.
type bug struct {
	name   string
	within int
	want   string // part of the first finding; empty: any
	config func(*config)
	lua    func(w *world, script, text string) string
	drop   func(s *server, who, script string) bool
	early  bool // the handler settles before the effect
	marker bool // the ledger has the result before the call
}

func (b *bug) rewrite(w *world, script, text string) string {
	if b.lua == nil {
		return text
	}
	return b.lua(w, script, text)
}

// change replaces parts of some scripts; a part that is not there is a mistake
// of the test.
func change(scripts string, pairs ...string) func(*world, string, string) string {
	return func(_ *world, script, text string) string {
		if !contains(scripts, script) {
			return text
		}
		return replaced(script, text, pairs...)
	}
}

func contains(words, word string) bool { return strings.Contains(" "+words+" ", " "+word+" ") }

func replaced(script, text string, pairs ...string) string {
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			panic(fmt.Sprintf("%s.lua does not contain %q any more: plant the bug anew", script, pairs[i]))
		}
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	return text
}

// halfReleased ends one release in three after one of its two halves, as if each
// were a call and the worker had crashed between them.
func halfReleased(addFirst bool) func(*world, string, string) string {
	const added = "  local how = place == 'd' and ',D' or ',L'\n"
	const taken = "  local delay, moved, place = ARGV[delays + i], nil, 'w'\n"
	return func(w *world, script, text string) string {
		if script != "release" || w.unit("half", w.now().String()) > 1./3 {
			return text
		}
		if addFirst {
			return replaced(script, text, added, "  do return end\n"+added)
		}
		return replaced(script, text, taken, "  do redis.call('XACK', stream, group, entry) redis.call('XDEL', stream, entry) redis.call('HDEL', tasks, id) return end\n"+taken)
	}
}

const (
	heldBy   = "return rec and string.sub(rec, -#tail) == tail"
	renewIf  = "if ends[i] and tonumber(ends[i]) > now then"
	covering = "covered = ends and tonumber(ends) > now"
)

var planted = []*bug{{
	name: "ack before the effect", within: 5, early: true, want: "done with 0 effects",
}, {
	name: "marker before the effect", within: 40, marker: true, want: "done with 0 effects",
}, {
	name: "settle without the holder check", within: 40, want: "I4: ",
	lua: func(_ *world, script, text string) string {
		const pending = "rec and (string.sub(rec, 1, 1) == 'h' or string.sub(rec, 1, 1) == 'p')"
		switch script {
		case "complete":
			return replaced(script, text, "if rec and sub(rec, ends) == tail then", "if "+pending+" then")
		case "retry", "release", "dead":
			return replaced(script, text, heldBy, "return "+pending)
		}
		return text
	},
}, {
	name: "fence from a plain counter that is lost", within: 30, want: "I3: ",
	lua: change("begin", "if fence < us then fence = us else written = string.format('%.0f', fence) end", "written = string.format('%.0f', fence)"),
}, {
	name: "renewal by PEL owner only, though the lease has ended", within: 40, want: "I4: renew revives", config: late,
	lua: change("renew", renewIf, "if ends[i] then"),
}, {
	name: "renewal by anyone", within: 20, want: "I4: renew revives", config: late,
	lua: change("renew", renewIf, "if true then", "'XX', ", ""),
}, {
	name: "release adds, crashes, never removes", within: 5, want: "I1: ", lua: halfReleased(true),
}, {
	name: "release removes, crashes, never adds", within: 5, want: "I1: ", lua: halfReleased(false),
}, {
	name: "reclaim ignores live leases", within: 10, want: "I2: reclaim takes over",
	lua: change("reclaim", covering, "covered = false"),
}, {
	name: "reclaim and begin ignore live leases", within: 10, want: "I2: ",
	lua: func(_ *world, script, text string) string {
		switch script {
		case "reclaim":
			return replaced(script, text, covering, "covered = false")
		case "begin":
			return replaced(script, text, "return ends and tonumber(ends) > now", "return false")
		}
		return text
	},
}, {
	name: "reclaim skips its own consumer", within: 30, want: "lost: ",
	config: func(c *config) { c.workers = 1 },
	lua: change("reclaim", "  if have[entry] then return true end\n",
		"  if have[entry] then return true end\n  local row = redis.call('XPENDING', KEYS[1], group, entry, entry, 1)\n  if row[1] and row[1][2] == me then return true end\n"),
}, {
	name: "drain stops renewals first", within: 60, want: "nothing accounts for",
	config: only("drain"),
	drop:   func(s *server, who, script string) bool { return script == "renew" && s.drains(who) },
}, {
	name: "nobody renews", within: 20, want: "nothing accounts for",
	config: only(),
	drop:   func(_ *server, _, script string) bool { return script == "renew" },
}, {
	name: "begin does not look at done marks", within: 10, want: "I5: ", config: only("copy"),
	lua: change("begin", "return marks[i]", "return nil"),
}, {
	name: "begin does not see copies", within: 10, want: "I", config: only("copy"),
	lua: change("begin", "if take(home, at) or (tok and live_lease(tok)) then return 'copy', nil, places[place] end", ""),
}, {
	name: "start is not on record", within: 20, want: "I6: ",
	lua: change("start", "if #set > 0 then", "if false then"),
}, {
	name: "complete leaves no mark", within: 3, want: "I1: gone without a done mark",
	lua: change("complete", "call('HSET', slices[s], unpack(marks, 1, 2 * k))", ""),
}, {
	name: "promote forgets the index", within: 10, want: "left in the schedule",
	lua: change("promote", "redis.call('ZREM', due, unpack(members))", ""),
}, {
	name: "a take-over is not told", within: 3, want: "told as reclaimed",
	lua: change("begin", "if trace or verdict == 'take' then", "if trace and verdict ~= 'take' then"),
}, {
	name: "enqueue twice after a lost reply", within: 10, want: "I",
	lua: change("enqueue", "if not parts then", "redis.call('HDEL', tasks, unpack(ARGV, ids + 1, ids + n))\nif not parts then"),
}}

// only makes all seeds have faults of some kinds and no others.
func only(kinds ...string) func(*config) {
	return func(c *config) { c.faults, c.odds = kinds, odds{} }
}

// late makes all seeds have requests that arrive when a lease is over.
func late(c *config) {
	c.faults, c.every, c.odds = []string{"pause"}, 2*time.Second, odds{slow: .05}
	c.lease, c.spread, c.tasks, c.workers = 2*time.Second, 60*time.Second, 60, 1
}

var bugFlag = flag.String("sim.bug", "", "the planted bug that TestSeed and a soak run with")

// chosen is the bug that was asked for, none by default.
func chosen() *bug {
	for _, b := range planted {
		if b.name == *bugFlag {
			return b
		}
	}
	if *bugFlag != "" {
		panic("no planted bug is called " + *bugFlag)
	}
	return nil
}

// drains reports whether a process is draining.
func (s *server) drains(who string) bool {
	p := s.proc(who)
	return p != nil && p.draining.Load()
}

// TestPlanted shows that the simulation can fail: each planted bug is found
// within the number of seeds that stands beside it.
func TestPlanted(t *testing.T) {
	for _, b := range planted {
		t.Run(b.name, func(t *testing.T) {
			began := time.Now()
			for seed := uint64(1); seed <= uint64(b.within); seed++ {
				r := simulate(t, seed, b)
				if len(r.found) == 0 {
					continue
				}
				t.Logf("found by seed %d of %d (%v): %s: %s", seed, b.within, time.Since(began).Round(time.Millisecond), r.found[0].task, r.found[0].what)
				for _, f := range r.found {
					if strings.HasPrefix(f.what, b.want) || strings.Contains(f.what, b.want) {
						return
					}
				}
				t.Errorf("found, but as %q, not as %q", r.found[0].what, b.want)
				return
			}
			t.Errorf("not found in %d seeds", b.within)
		})
	}
}
