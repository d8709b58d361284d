package queue

import (
	"fmt"
	"strconv"
	"time"
)

// Replies of the server arrive as any; these take them apart. A shape that no
// script or command of ours gives is reported, never guessed at.

func asList(v any) []any {
	l, _ := v.([]any)
	return l
}

func asString(v any) string {
	switch s := v.(type) {
	case string:
		return s
	case int64:
		return strconv.FormatInt(s, 10)
	case float64:
		return strconv.FormatFloat(s, 'f', -1, 64)
	}
	return ""
}

func asInt(v any) int64 {
	switch n := v.(type) {
	case int64:
		return n
	case string:
		i, err := strconv.ParseInt(n, 10, 64)
		if err != nil {
			f, _ := strconv.ParseFloat(n, 64)
			return int64(f)
		}
		return i
	case float64:
		return int64(n)
	}
	return 0
}

func asStrings(v any) []string {
	l := asList(v)
	out := make([]string, len(l))
	for i, x := range l {
		out[i] = asString(x)
	}
	return out
}

func asTime(v any) time.Time { return time.UnixMilli(asInt(v)) }

// entries reads a list of [ID, [name, value, …]].
func (q *Queue) entries(partition int, v any) []Entry {
	var out []Entry
	for _, x := range asList(v) {
		pair := asList(x)
		if len(pair) != 2 || pair[1] == nil {
			continue // deleted from outside between delivery and reply
		}
		out = append(out, Entry{Queue: q, Partition: partition, ID: EntryID(asString(pair[0])), Fields: asStrings(pair[1])})
	}
	return out
}

// exceptions calls f for each (index from 0, code, detail) of a flat list on n
// items. It is false, and f was not called, when the list is no such thing:
// then it is not known which of the items it excepts.
func exceptions(list []any, n int, f func(i int, code, detail string)) bool {
	if len(list)%3 != 0 {
		return false
	}
	for i := 0; i < len(list); i += 3 {
		if !indexes(list[i:i+1], n) {
			return false
		}
	}
	for ; len(list) > 0; list = list[3:] {
		f(int(asInt(list[0]))-1, asString(list[1]), asString(list[2]))
	}
	return true
}

// indexes reports whether each of list is an index from 1 to n.
func indexes(list []any, n int) bool {
	for _, x := range list {
		if i := asInt(x); i < 1 || i > int64(n) {
			return false
		}
	}
	return true
}

func shapeError(what string, v any) error {
	return fmt.Errorf("%w: %s: the server answered with %T where a list was expected", ErrIndefinite, what, v)
}

// group is a part of a request: items of one partition, at most MaxBatch.
type group struct {
	home
	index []int // into the request
}

// home is what items of one group have in common.
type home struct {
	partition int
	consumer  string // that holds them, where the request is a holder's
}

// byPartition cuts n items into groups, in order.
func byPartition(n int, partition func(i int) int) []group {
	return byHolder(n, func(i int) Grant { return Grant{Partition: partition(i)} })
}

// byHolder cuts n items into groups of one partition and one consumer name, in
// order. A worker has more than one name only after a call that failed.
func byHolder(n int, of func(i int) Grant) []group {
	var groups []group
	var open map[home]int // to its unfilled group, once there are many
	at := -1              // group of the item before
	for i := range n {
		grant := of(i)
		h := home{grant.Partition, grant.Consumer}
		if at < 0 || groups[at].home != h {
			at = -1
			if g, ok := open[h]; ok {
				at = g
			}
		}
		if at < 0 || len(groups[at].index) == MaxBatch {
			if len(groups) == 1 {
				open = map[home]int{groups[0].home: 0}
			}
			at = len(groups)
			groups = append(groups, group{home: h})
			if at == 0 {
				groups[0].index = make([]int, 0, min(n, MaxBatch))
			} else {
				open[h] = at
			}
		}
		groups[at].index = append(groups[at].index, i)
	}
	return groups
}
