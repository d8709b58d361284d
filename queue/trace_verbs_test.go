package queue_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/queue"
)

// do runs one command line of a trace and tells what came of it.
func (w *traceWorld) do(line string) []string {
	words := strings.Fields(line)
	plain, named := args(words[1:])
	verbs := map[string]func([]string, map[string]string) []string{
		"enqueue": w.enqueue, "xadd": w.xadd, "read": w.read, "begin": w.begin, "start": w.start, "renew": w.renew,
		"split": w.split, "complete": w.settle(w.q.Complete), "retry": w.settle(w.q.Retry), "release": w.settle(w.q.Release),
		"dead": w.settle(w.q.DeadLetter), "reclaim": w.reclaim, "turn": w.turn, "promote": w.promote, "tidy": w.tidy,
		"redrive": w.moved(w.q.Redrive), "delete": w.moved(w.q.Delete), "inspect": w.inspect, "state": w.state,
		"advance": w.advance, "intent": w.intent, "result": w.result, "xdel": w.xdel, "dead-tasks": w.deadTasks, "forget": w.forget, "zadd-due": w.zaddDue,
		"events": w.events, "timeline": w.timeline, "trace": w.trace,
	}
	verb, ok := verbs[words[0]]
	if !ok {
		w.t.Fatalf("unknown command %q", line)
	}
	return verb(plain, named)
}

var bg = context.Background()

func short(err error) string {
	for _, known := range []error{queue.ErrLeaseLost, queue.ErrQueueFull, queue.ErrInvalidTask, queue.ErrNotFound, queue.ErrStepConflict,
		queue.ErrEntryGone, queue.ErrMismatch} {
		if errors.Is(err, known) {
			return "error: " + known.Error()
		}
	}
	return "error: " + err.Error()
}

// enqueue CALL id… [delay=] [kind=] [payload=] [deadline=]
func (w *traceWorld) enqueue(plain []string, named map[string]string) []string {
	var tasks []queue.Task
	for _, id := range plain[1:] {
		t := queue.Task{ID: queue.TaskID(id), Kind: "k", Payload: []byte(named["payload"]), Delay: duration(named["delay"])}
		if named["kind"] != "" {
			t.Kind = named["kind"]
		}
		tasks = append(tasks, t)
	}
	var out []string
	for _, r := range w.q.Enqueue(bg, token(plain[0]), tasks) {
		switch {
		case r.Err != nil:
			out = append(out, fmt.Sprintf("%s %s", r.ID, short(r.Err)))
		case r.Added:
			out = append(out, fmt.Sprintf("%s added, %s", r.ID, r.Place))
		default:
			out = append(out, fmt.Sprintf("%s duplicate, %s", r.ID, r.Place))
		}
	}
	return out
}

// xadd name=value…: a plain XADD, as another language would do it
func (w *traceWorld) xadd(_ []string, named map[string]string) []string {
	var values []string
	for _, name := range slices.Sorted(maps.Keys(named)) {
		values = append(values, name, named[name])
	}
	id, err := w.b.Client.XAdd(bg, &redis.XAddArgs{Stream: w.q.StreamKey(0), Values: values}).Result()
	if err != nil {
		w.t.Fatal(err)
	}
	return []string{id}
}

// read WORKER n
func (w *traceWorld) read(plain []string, _ map[string]string) []string {
	es, err := queue.Read(bg, queue.ReadRequest{Queues: []*queue.Queue{w.q}, Consumer: plain[0], Max: atoi(plain[1])})
	if err != nil {
		return []string{short(err)}
	}
	w.entries[plain[0]] = es
	return entryLines(es)
}

func entryLines(es []queue.Entry) []string {
	var out []string
	for _, e := range es {
		out = append(out, fmt.Sprintf("%s %s", e.ID, strings.Join(e.Fields, " ")))
	}
	return out
}

// begin WORKER TOKEN start=n: of the entries last read or reclaimed
func (w *traceWorld) begin(plain []string, named map[string]string) []string {
	b, err := w.q.Begin(bg, queue.BeginRequest{Token: token(plain[1]), Consumer: plain[0], Entries: w.entries[plain[0]], Start: atoi(named["start"])})
	if err != nil {
		return []string{short(err)}
	}
	var out []string
	list := func(what string, ds []queue.Delivery) {
		for _, d := range ds {
			if w.leases[plain[0]] == nil {
				w.leases[plain[0]] = map[queue.TaskID]queue.Lease{}
			}
			w.leases[plain[0]][d.Task.ID] = d.Lease
			l := d.Lease
			how := "held"
			if d.Started {
				how = "started"
			}
			out = append(out, fmt.Sprintf("%s%s %s fence=%d attempt=%d failures=%d interruptions=%d", what, l.TaskID, how, l.Fence, l.Attempt, l.Failures, l.Interruptions))
		}
	}
	list("", b.Deliveries)
	list("exhausted ", b.Exhausted)
	for _, c := range b.Duplicates {
		out = append(out, fmt.Sprintf("copy %s %s of %s", c.TaskID, c.EntryID, c.Detail))
	}
	for _, id := range b.Busy {
		out = append(out, fmt.Sprintf("busy %s", id))
	}
	for _, c := range b.Buried {
		out = append(out, fmt.Sprintf("buried %s: %s", c.EntryID, c.Detail))
	}
	return out
}

func (w *traceWorld) held(worker string, ids []string) []queue.Lease {
	var ls []queue.Lease
	for _, id := range ids {
		l, ok := w.leases[worker][queue.TaskID(id)]
		if !ok {
			w.t.Fatalf("%s never had a lease on %s", worker, id)
		}
		ls = append(ls, l)
	}
	return ls
}

// start WORKER id…
func (w *traceWorld) start(plain []string, _ map[string]string) []string {
	return errLines(plain[1:], w.q.Start(bg, w.held(plain[0], plain[1:])))
}

func errLines(ids []string, errs []error) []string {
	var out []string
	for i, err := range errs {
		if err != nil {
			out = append(out, ids[i]+" "+short(err))
		} else {
			out = append(out, ids[i]+" ok")
		}
	}
	return out
}

// renew WORKER [only=TOKEN]
func (w *traceWorld) renew(plain []string, named map[string]string) []string {
	var grants []queue.Grant
	for _, l := range w.leases[plain[0]] {
		if named["only"] != "" && l.Grant.Token != token(named["only"]) {
			continue
		}
		if !slices.Contains(grants, l.Grant) {
			grants = append(grants, l.Grant)
		}
	}
	slices.SortFunc(grants, func(a, b queue.Grant) int { return strings.Compare(string(a.Token), string(b.Token)) })
	var out []string
	for _, r := range w.q.Renew(bg, grants) {
		switch {
		case r.Err != nil:
			out = append(out, string(r.Grant.Token)+" "+short(r.Err))
		default:
			out = append(out, fmt.Sprintf("%s renewed, revoked %v", r.Grant.Token, r.Revoked))
		}
	}
	return out
}

// split WORKER TOKEN id…
func (w *traceWorld) split(plain []string, _ map[string]string) []string {
	ls, errs := w.q.Split(bg, token(plain[1]), w.held(plain[0], plain[2:]))
	for _, l := range ls {
		w.leases[plain[0]][l.TaskID] = l
	}
	return errLines(plain[2:], errs)
}

// complete|retry|release|dead WORKER id… [result=] [delay=] [error=] [reason=] [unhandled=yes] [ends=yes]
func (w *traceWorld) settle(verb func(context.Context, []queue.Settlement) []queue.Settled) func([]string, map[string]string) []string {
	return func(plain []string, named map[string]string) []string {
		var s []queue.Settlement
		for _, l := range w.held(plain[0], plain[1:]) {
			s = append(s, queue.Settlement{
				Lease: l, Result: []byte(named["result"]), Delay: duration(named["delay"]), Error: named["error"],
				Reason: queue.DeadReason(named["reason"]), Unhandled: named["unhandled"] == "yes", EndsGrant: named["ends"] == "yes",
			})
		}
		var out []string
		for _, r := range verb(bg, s) {
			if r.Err != nil {
				out = append(out, fmt.Sprintf("%s %s", r.TaskID, short(r.Err)))
			} else {
				out = append(out, fmt.Sprintf("%s %s", r.TaskID, r.Outcome))
			}
		}
		return out
	}
}

// reclaim WORKER n
func (w *traceWorld) reclaim(plain []string, _ map[string]string) []string {
	r, err := w.q.Reclaim(bg, queue.ReclaimRequest{Consumer: plain[0], Max: atoi(plain[1])})
	if err != nil {
		return []string{short(err)}
	}
	w.entries[plain[0]] = r.Entries
	out := entryLines(r.Entries)
	for _, m := range r.Missing {
		out = append(out, fmt.Sprintf("missing %s %s", m.TaskID, m.EntryID))
	}
	if r.More {
		out = append(out, "more")
	}
	return out
}

// turn WORKER [slots=no]
func (w *traceWorld) turn(plain []string, named map[string]string) []string {
	t := w.q.Turn(bg, queue.TurnRequest{Consumer: plain[0], Slots: named["slots"] != "no", Interval: 500 * time.Millisecond})[0]
	if t.Err != nil {
		return []string{short(t.Err)}
	}
	return []string{fmt.Sprintf("consumers=%d reclaim=%v due=%v tidy=%v", t.Consumers, t.Reclaim, t.Due, t.Tidy)}
}

// promote n
func (w *traceWorld) promote(plain []string, _ map[string]string) []string {
	p, err := w.q.Promote(bg, 0, atoi(plain[0]))
	if err != nil {
		return []string{short(err)}
	}
	return []string{fmt.Sprintf("promoted %d more=%v malformed=%v", p.Count, p.More, p.Malformed)}
}

func (w *traceWorld) tidy([]string, map[string]string) []string {
	r, err := w.q.Tidy(bg, 0)
	if err != nil {
		return []string{short(err)}
	}
	slices.Sort(r.RemovedConsumers)
	out := []string{fmt.Sprintf("removed %v", r.RemovedConsumers)}
	for _, c := range r.Lost {
		out = append(out, fmt.Sprintf("lost %s %s", c.TaskID, c.EntryID))
	}
	return out
}

func (w *traceWorld) moved(verb func(context.Context, []queue.TaskID) []queue.Moved) func([]string, map[string]string) []string {
	return func(plain []string, _ map[string]string) []string {
		var ids []queue.TaskID
		for _, id := range plain {
			ids = append(ids, queue.TaskID(w.actual(id)))
		}
		var out []string
		for _, m := range verb(bg, ids) {
			if m.Err != nil {
				out = append(out, fmt.Sprintf("%s %s", m.ID, short(m.Err)))
			} else {
				out = append(out, fmt.Sprintf("%s was %s", m.ID, m.From))
			}
		}
		return out
	}
}

// actual gives the entry ID behind a label.
func (w *traceWorld) actual(label string) string {
	for value, l := range w.seen {
		if l == label {
			return value
		}
	}
	return label
}
