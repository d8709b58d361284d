package config

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Names lists every variable of every program, NAME_FILE forms included.
func Names() []string {
	var names []string
	for _, g := range allGroups() {
		for _, v := range variablesOf(g) {
			names = append(names, v.Name)
			if v.Secret {
				names = append(names, v.Name+"_FILE")
			}
		}
	}
	return names
}

// allGroups lists one of each group, in the order of config.example.env.
func allGroups() []any {
	return []any{&Redis{}, &Postgres{}, &Queue{}, &Run{}, &Push{}, &Produce{}, &Move{}, &Ops{}, &Log{}}
}

// prefixes are those in which a name that is not ours is a mistake.
var prefixes = []string{"REDIS_", "QUEUES", "QUEUE_", "WORKER_", "PUSH_", "PRODUCER_", "RELAY_", "POSTGRES_UR", "POSTGRES_SCHEMA", "POSTGRES_RETENTION", "OPS_", "LOG_"}

// serviceLink matches what Kubernetes and Docker set by themselves for a
// service called, say, redis or worker.
var serviceLink = regexp.MustCompile(`_SERVICE_(HOST|PORT)(_.*)?$|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$`)

// checkNames reports names with our prefixes that nobody reads: a typing
// error would otherwise be a default that nobody wanted.
func (l *loader) checkNames() {
	if l.failed[""] {
		return
	}
	l.failed[""] = true // once, however many groups are loaded
	known := Names()
	for _, name := range slices.Sorted(maps.Keys(l.env)) {
		ours := slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
		if !ours || slices.Contains(known, name) || foreign(name, l.env[name]) {
			continue
		}
		near := nearest(name, known)
		l.bad(name, "there is no such variable; did you mean %s?", near)
	}
}

func foreign(name, value string) bool {
	return serviceLink.MatchString(name) || strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://")
}

// nearest returns the known name with the smallest edit distance.
func nearest(name string, known []string) string {
	best, least := "", 1<<30
	for _, k := range known {
		if d := distance(name, k); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance counts the letters to insert, drop or change to turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
