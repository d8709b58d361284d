package queue_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/queue"
)

func (w *traceWorld) key(what string) string { return w.prefix + ":{q.0}:" + what }

// inspect id
func (w *traceWorld) inspect(plain []string, _ map[string]string) []string {
	i, err := w.q.Inspect(bg, queue.TaskID(w.actual(plain[0])))
	if err != nil {
		return []string{short(err)}
	}
	out := []string{fmt.Sprintf("%s failures=%d interruptions=%d error=%q reason=%q result=%q", i.Place, i.Failures, i.Interruptions, i.LastError, i.Reason, i.Result)}
	if i.Token != "" {
		out = append(out, fmt.Sprintf("  holder %s fence=%d started=%v lease=%v", i.Token, i.Fence, i.Started, !i.LeaseEnds.IsZero()))
	}
	for _, s := range i.Steps {
		out = append(out, fmt.Sprintf("  step %s %s key=%s calls=%d fence=%d result=%q", s.Name, s.State, s.Key, s.Calls, s.Fence, s.Result))
	}
	return out
}

// state: what the server holds
func (w *traceWorld) state([]string, map[string]string) []string {
	c := w.b.Client
	var out []string
	for _, e := range c.XRange(bg, w.key("stream"), "-", "+").Val() {
		out = append(out, fmt.Sprintf("stream %s %v", e.ID, e.Values["id"]))
	}
	for _, p := range c.XPendingExt(bg, &redis.XPendingExtArgs{Stream: w.key("stream"), Group: queue.Group, Start: "-", End: "+", Count: 100}).Val() {
		out = append(out, fmt.Sprintf("pending %s %s", p.ID, p.Consumer))
	}
	for _, what := range []string{"tasks", "counts"} {
		h := c.HGetAll(bg, w.key(what)).Val()
		for _, id := range slices.Sorted(maps.Keys(h)) {
			v := h[id]
			if what == "tasks" && (v[0] == 's' || v[0] == 'd') {
				v = v[:1] + strings.ToUpper(v[:1]) + v[1:]
			}
			out = append(out, fmt.Sprintf("%s %s: %s", what, id, v))
		}
	}
	now := c.Time(bg).Val().UnixMilli()
	for _, z := range c.ZRangeWithScores(bg, w.key("leases"), 0, -1).Val() {
		live := "ended"
		if z.Score > float64(now) {
			live = "live"
		}
		out = append(out, fmt.Sprintf("lease %v %s", z.Member, live))
	}
	for _, what := range []string{"scheduled", "dead"} {
		for _, e := range c.XRange(bg, w.key(what), "-", "+").Val() {
			out = append(out, fmt.Sprintf("%s %s%s %v", what, strings.ToUpper(what[:1]), e.ID, e.Values["id"]))
		}
	}
	marks := 0
	for s := range 3 {
		marks += int(max(0, c.HLen(bg, w.key(fmt.Sprintf("done%d", s+1))).Val()-1))
	}
	if marks > 0 {
		out = append(out, fmt.Sprintf("done marks %d", marks))
	}
	if len(out) == 0 {
		out = []string{"nothing"}
	}
	return out
}

// advance d: lets time pass for everything the server stored
func (w *traceWorld) advance(plain []string, _ map[string]string) []string {
	c, d := w.b.Client, duration(plain[0])
	for _, what := range []string{"leases", "due", "consumers"} {
		for _, m := range c.ZRange(bg, w.key(what), 0, -1).Val() {
			c.ZIncrBy(bg, w.key(what), float64(-d.Milliseconds()), m)
		}
	}
	for name, value := range c.HGetAll(bg, w.key("conf")).Val() {
		if strings.HasSuffix(name, "_ms") && name != "lease_ms" {
			c.HSet(bg, w.key("conf"), name, int64(atoi(value))-d.Milliseconds())
		}
	}
	window := w.q.Config().Retention.Milliseconds()
	for s := range 3 {
		key := w.key(fmt.Sprintf("done%d", s+1))
		if began, err := c.HGet(bg, key, "").Int64(); err == nil {
			began -= d.Milliseconds()
			c.HSet(bg, key, "", began-began%window)
		}
	}
	for _, p := range c.XPendingExt(bg, &redis.XPendingExtArgs{Stream: w.key("stream"), Group: queue.Group, Start: "-", End: "+", Count: 100}).Val() {
		idle := strconv.FormatInt((p.Idle + d).Milliseconds(), 10)
		c.Do(bg, "XCLAIM", w.key("stream"), queue.Group, p.Consumer, "0", p.ID, "IDLE", idle, "RETRYCOUNT", p.RetryCount, "JUSTID")
	}
	return nil
}

// intent WORKER id step [call=TOKEN]
func (w *traceWorld) intent(plain []string, named map[string]string) []string {
	call := w.q.NewToken()
	if named["call"] != "" {
		call = token(named["call"])
	}
	s, err := w.q.StepIntent(bg, w.held(plain[0], plain[1:2])[0], plain[2], "key-"+plain[2], call)
	return stepLine(s, err)
}

// result WORKER id step value|unsent
func (w *traceWorld) result(plain []string, _ map[string]string) []string {
	state, value := queue.StepDone, []byte(plain[3])
	if plain[3] == "unsent" {
		state, value = queue.StepPending, nil
	}
	s, err := w.q.StepResult(bg, w.held(plain[0], plain[1:2])[0], plain[2], state, value)
	return stepLine(s, err)
}

func stepLine(s queue.Step, err error) []string {
	if err != nil {
		return []string{short(err) + fmt.Sprintf(" (recorded %q)", s.Result)}
	}
	if s.State == "" {
		return []string{"never tried"}
	}
	return []string{fmt.Sprintf("%s key=%s calls=%d result=%q", s.State, s.Key, s.Calls, s.Result)}
}

// xdel e1…: deletes entries behind the queue's back
func (w *traceWorld) xdel(plain []string, _ map[string]string) []string {
	for _, label := range plain {
		w.b.Client.XDel(bg, w.key("stream"), w.actual(label))
	}
	return nil
}

// forget what…: deletes keys or, as tasks/id, fields behind the queue's back
func (w *traceWorld) forget(plain []string, _ map[string]string) []string {
	for _, what := range plain {
		if key, field, ok := strings.Cut(what, "/"); ok {
			w.b.Client.HDel(bg, w.key(key), field)
		} else {
			w.b.Client.Del(bg, w.key(what))
		}
	}
	return nil
}

func (w *traceWorld) deadTasks([]string, map[string]string) []string {
	ds, err := w.q.DeadTasks(bg, 0, "", 100)
	if err != nil {
		return []string{short(err)}
	}
	var out []string
	for _, d := range ds {
		out = append(out, fmt.Sprintf("%s reason=%s error=%q failures=%d interruptions=%d fields=%q", d.TaskID, d.Reason, d.Error, d.Failures, d.Interruptions, d.Fields))
	}
	return out
}

// zadd-due member: a schedule member that no task belongs to
func (w *traceWorld) zaddDue(plain []string, _ map[string]string) []string {
	w.b.Client.ZAdd(bg, w.key("due"), redis.Z{Score: 1, Member: plain[0]})
	return nil
}
