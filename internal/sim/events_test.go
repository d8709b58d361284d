package sim

import "github.com/claimq/claimq/queue"

// judgeEvents compares what the queue tells of tasks with what was seen to
// happen to them: neither more nor less. The caller holds the observer's mu.
func (f *fleet) judgeEvents() {
	o := f.watch
	told := map[string]map[queue.EventKind]int{}
	for _, p := range o.parts {
		entries, _ := f.srv.mini.Stream(p.prefix + "events")
		if len(entries) >= queue.EventsKept {
			return // the oldest are gone
		}
		for _, e := range entries {
			var kind, id string
			for i := 0; i+1 < len(e.Values); i += 2 {
				switch e.Values[i] {
				case "event":
					kind = e.Values[i+1]
				case "task":
					id = e.Values[i+1]
				}
			}
			if told[id] == nil {
				told[id] = map[queue.EventKind]int{}
			}
			told[id][queue.EventKind(kind)]++
		}
	}
	for _, id := range sortedKeys(o.tasks) {
		t := o.tasks[id]
		want := map[queue.EventKind]int{queue.EventReclaimed: t.taken, queue.EventFailed: t.failures}
		if f.cfg.trace && t.done {
			want[queue.EventCompleted] = 1
		}
		for _, kind := range []queue.EventKind{queue.EventReclaimed, queue.EventFailed, queue.EventCompleted} {
			if n := told[id][kind]; n != want[kind] {
				f.w.report(id, "told as %s %d times, and that it was %d times", kind, n, want[kind])
			}
		}
	}
}
