package config

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// checkRange compares a number or a duration with its range tag.
func (l *loader) checkRange(v variable) {
	if v.Range == "" {
		return
	}
	switch x := v.Value.Interface().(type) {
	case time.Duration:
		rangeOf(l, v, "", x, parseDuration)
	case KindDurations:
		for kind, d := range x {
			rangeOf(l, v, fmt.Sprintf("kind %q: ", kind), d, parseDuration)
		}
	case int:
		rangeOf(l, v, "", int64(x), parseInt)
	case int64:
		rangeOf(l, v, "", x, parseInt)
	case ByteSize:
		rangeOf(l, v, "", x, func(s string) (b ByteSize, err error) { return b, b.UnmarshalText([]byte(s)) })
	}
}

func rangeOf[T time.Duration | int64 | ByteSize](l *loader, v variable, where string, x T, parse func(string) (T, error)) {
	low, high, _ := strings.Cut(v.Range, "..")
	if low != "" {
		if lo, err := parse(low); err != nil || x < lo {
			l.bad(v.Name, "%suse %s, got %v", where, rangeText(v.Range), x)
			return
		}
	}
	if high != "" {
		if hi, err := parse(high); err != nil || x > hi {
			l.bad(v.Name, "%suse %s, got %v", where, rangeText(v.Range), x)
		}
	}
}

// rangeText words a range tag.
func rangeText(r string) string {
	low, high, _ := strings.Cut(r, "..")
	if high == "" {
		return "at least " + low
	}
	return low + " to " + high
}

func (l *loader) checkRedis(r Redis) {
	tls := r.URL.opt != nil && r.URL.opt.TLSConfig != nil
	if r.CAFile != "" && !tls {
		l.bad("REDIS_CA_FILE", "has no effect without TLS; use rediss:// in REDIS_URL or drop it")
	}
	if tls && r.URL.opt.TLSConfig.InsecureSkipVerify {
		l.warn("REDIS_URL turns off the check of the server's certificate (skip_verify): anybody on the way can read and change tasks")
	}
	if !validName(r.KeyPrefix) {
		l.bad("REDIS_KEY_PREFIX", "use 1 to 64 letters, digits, '.', '_' or '-', got %q", r.KeyPrefix)
	}
}

func (l *loader) checkQueue(q Queue) {
	whole := func(name string, d time.Duration) {
		if d%time.Millisecond != 0 {
			l.bad(name, "use whole milliseconds, got %v", d)
		}
	}
	whole("QUEUE_LEASE", q.Lease)
	for _, d := range q.KindLeases {
		whole("QUEUE_KIND_LEASES", d)
	}
	whole("QUEUE_RETENTION", q.Retention)
}

func (l *loader) checkRun(w Worker) {
	r := w.Run
	if r.RetryBase > r.RetryMax {
		l.bad("WORKER_RETRY_BASE", "%v is more than WORKER_RETRY_MAX (%v); lower it or raise the other", r.RetryBase, r.RetryMax)
	}
	if r.Block > r.DrainTimeout {
		l.bad("WORKER_BLOCK", "%v is more than WORKER_DRAIN_TIMEOUT (%v): a stop would end before the read it waits for; lower it", r.Block, r.DrainTimeout)
	}
	if shortest := w.Queue.shortestLease(); r.Block > shortest {
		l.warn("WORKER_BLOCK (%v) is longer than the shortest lease (%v): an idle worker notices a lost server later than a lease lasts", r.Block, shortest)
	}
	if h := w.RetryHorizon(); h > w.Queue.Retention {
		l.warn("QUEUE_RETENTION (%v) is shorter than a task's attempts may take in all (%v): "+
			"an ID sent again that late is not recognised once the first is done; raise it or lower QUEUE_MAX_FAILURES or WORKER_RETRY_MAX",
			w.Queue.Retention, h.Round(time.Second))
	}
	if w.Ops.Pprof && w.Ops.Addr == "" {
		l.warn("OPS_PPROF has no effect: OPS_ADDR is off")
	}
}

func (l *loader) checkRelay(r Relay) {
	if most := r.Queue.Retention - r.Move.Timeout; r.Move.Keep > most {
		l.warn("RELAY_KEEP (%v) is longer than rows may be sent again (%v: QUEUE_RETENTION less RELAY_TIMEOUT): "+
			"older ones only take room; lower it or raise QUEUE_RETENTION", r.Move.Keep, most)
	}
	if r.Ops.Pprof && r.Ops.Addr == "" {
		l.warn("OPS_PPROF has no effect: OPS_ADDR is off")
	}
}

// RetryHorizon is how long the attempts of one task may take in all when each
// runs into its time limit and fails: the other side of a step must remember
// its key for longer.
func (w Worker) RetryHorizon() time.Duration {
	attempt := w.Run.Timeout
	for _, d := range w.Run.KindTimeouts {
		attempt = max(attempt, d)
	}
	total, wait := time.Duration(0), w.Run.RetryBase
	for range w.Queue.MaxFailures - 1 {
		total += attempt + w.Run.Grace + wait + wait/4 // a quarter is the most that jitter adds
		wait = min(2*wait, w.Run.RetryMax)
	}
	return total + attempt
}

func (l *loader) checkSteps(w Worker) {
	if h := w.RetryHorizon(); w.Postgres.URL.IsSet() && h > w.Postgres.Retention {
		l.warn("POSTGRES_RETENTION (%v) is shorter than a task's attempts may take in all (%v): a step may be forgotten before the last of them; raise it",
			w.Postgres.Retention, h.Round(time.Second))
	}
}

func (l *loader) checkPush(w Worker) {
	p := w.Push
	for _, code := range p.DeadStatus {
		if slices.Contains(p.RetryStatus, code) {
			l.bad("PUSH_DEAD_STATUS", "%d is in PUSH_RETRY_STATUS too; keep it in one of the two", code)
		}
	}
	if p.ExternalIDHeader == "" || strings.ContainsAny(p.ExternalIDHeader, " :\t\r\n") {
		l.bad("PUSH_EXTERNAL_ID_HEADER", "use the name of a header, got %q", p.ExternalIDHeader)
	}
	if len(p.URLs) == 0 {
		return
	}
	if len(p.SigningSecrets.Reveal()) == 0 {
		l.warn("PUSH_SIGNING_SECRET is not set: receivers cannot tell these requests from anybody else's")
	}
	for _, r := range p.URLs {
		if exact, ok := w.Run.KindTimeouts[r.Pattern]; ok && exact < p.Timeout {
			l.warn("PUSH_TIMEOUT (%v) is longer than the time of kind %q (%v): the shorter one counts", p.Timeout, r.Pattern, exact)
		}
	}
	if w.Run.Timeout < p.Timeout {
		l.warn("PUSH_TIMEOUT (%v) is longer than WORKER_TIMEOUT (%v): the shorter one counts", p.Timeout, w.Run.Timeout)
	}
}
