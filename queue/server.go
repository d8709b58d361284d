package queue

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Oldest servers that have what is needed.
var (
	oldestRedis  = []int{7, 0, 5}
	oldestValkey = []int{7, 2, 0}
)

// Ensure makes the group and the settings of every partition where they are
// missing and compares those that exist. It is cheap and safe to call at any
// time: a worker calls it when it starts and whenever the server answers that
// a group is gone. ErrMismatch: the queue was made with another number of
// partitions, or a second group reads a stream.
func (q *Queue) Ensure(ctx context.Context) error {
	calls := make([]*call, len(q.parts))
	longest := slices.Max(q.classes)
	for p := range q.parts {
		calls[p] = q.call(scriptEnsure, p, Group, len(q.parts), longest.Milliseconds())
	}
	// The first partition alone first: with too large a number the others must
	// not be made, for nobody would read them.
	q.run(ctx, calls[0])
	if err := q.ensured(0, calls[0]); err != nil || len(calls) == 1 {
		return err
	}
	q.run(ctx, calls[1:]...)
	for p, c := range calls {
		if err := q.ensured(p, c); err != nil {
			return err
		}
	}
	return nil
}

func (q *Queue) ensured(p int, c *call) error {
	if c.err != nil {
		return c.err
	}
	reply := asStrings(c.reply)
	if len(reply) != 2 {
		return shapeError("ensure", c.reply)
	}
	if reply[0] != strconv.Itoa(len(q.parts)) {
		return fmt.Errorf("%w: queue %s was made with %s partitions, not %d: set Partitions to that", ErrMismatch, q.cfg.Name, reply[0], len(q.parts))
	}
	if reply[1] != "" {
		return fmt.Errorf("%w: group %q reads %s too, but finished entries are deleted: remove it with XGROUP DESTROY, and use a queue of its own for a second reader",
			ErrMismatch, reply[1], q.StreamKey(p))
	}
	return nil
}

// Finding is one thing that Probe has to say.
type Finding struct {
	Fatal  bool   // the queue cannot work like this
	What   string // "version", "XCLAIM", "maxmemory-policy" …
	Detail string
	Remedy string
}

// ProbeReport is what Probe found out about the server.
type ProbeReport struct {
	Server   string // "redis" or "valkey"
	Version  string // empty when it would not say
	Findings []Finding
}

// Fatal reports whether a finding is fatal.
func (r ProbeReport) Fatal() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Fatal })
}

// Probe examines the server: its version, the commands and permissions that
// are needed, eviction and persistence. It writes to one scratch key, which it
// removes. The error is non-nil when the server cannot be reached.
func (q *Queue) Probe(ctx context.Context) (ProbeReport, error) {
	var r ProbeReport
	info, err := q.rdb.Info(ctx).Result()
	switch err := classify("info", err); {
	case errors.Is(err, ErrUnavailable) && strings.Contains(err.Error(), "NOPERM"):
		r.add(false, "INFO", "not permitted: version, eviction and persistence are not known", "permit INFO to this user")
	case err != nil:
		return r, err
	default:
		r.readInfo(info)
	}
	c := q.call(scriptProbe, 0)
	q.run(ctx, c)
	if c.err != nil {
		if errors.Is(c.err, ErrIndefinite) {
			return r, c.err
		}
		r.add(true, "scripts", c.err.Error(), "permit EVAL and EVALSHA, and the keys "+q.cfg.Prefix+":*, to this user")
		return r, nil
	}
	for l := asStrings(c.reply); len(l) >= 2; l = l[2:] {
		if strings.HasPrefix(l[1], "OOM") || strings.Contains(l[1], "-OOM") {
			r.add(false, "memory", "full: new tasks are refused until the queue has drained", "raise maxmemory or remove other data")
			break
		}
		r.add(true, l[0], l[1], "permit the command, and the keys "+q.cfg.Prefix+":*, to this user, or use a newer server")
	}
	return r, nil
}

func (r *ProbeReport) add(fatal bool, what, detail, remedy string) {
	r.Findings = append(r.Findings, Finding{Fatal: fatal, What: what, Detail: detail, Remedy: remedy})
}

var infoLine = regexp.MustCompile(`(?m)^([a-z_0-9]+):([^\r\n]*)`)

func (r *ProbeReport) readInfo(info string) {
	v := map[string]string{}
	for _, m := range infoLine.FindAllStringSubmatch(info, -1) {
		v[m[1]] = m[2]
	}
	oldest := oldestRedis
	r.Server, r.Version = "redis", v["redis_version"]
	if v["valkey_version"] != "" {
		r.Server, r.Version, oldest = "valkey", v["valkey_version"], oldestValkey
	}
	switch {
	case r.Version == "":
		r.add(false, "version", "the server does not say", "use Redis 7.0.5, Valkey 7.2 or newer")
	case older(r.Version, oldest):
		r.add(true, "version", r.Server+" "+r.Version, "use Redis 7.0.5, Valkey 7.2 or newer")
	}
	if p := v["maxmemory_policy"]; p != "" && p != "noeviction" && v["maxmemory"] != "0" {
		r.add(false, "maxmemory-policy", p+": a full server would remove tasks, leases and done marks without a word", "set maxmemory-policy noeviction")
	}
	if v["role"] == "slave" {
		r.add(true, "role", "this is a replica and takes no writes", "connect to the primary")
	}
	if v["cluster_enabled"] == "1" {
		r.add(true, "cluster", "this is a node of a cluster: a read spans partitions, which a cluster keeps apart", "connect to a single server")
	}
	if v["aof_enabled"] == "0" {
		r.add(false, "persistence", "no append-only file: a restart forgets everything since the last snapshot, or everything", "set appendonly yes")
	}
}

// older reports whether a dotted version is below least.
func older(version string, least []int) bool {
	parts := strings.Split(version, ".")
	for i, want := range least {
		have := 0
		if i < len(parts) {
			have, _ = strconv.Atoi(parts[i])
		}
		if have != want {
			return have < want
		}
	}
	return false
}
