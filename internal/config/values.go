package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
)

// parsers replace the library's own where its messages name no remedy.
var parsers = map[reflect.Type]env.ParserFunc{
	reflect.TypeFor[time.Duration](): func(s string) (any, error) { return parseDuration(s) },
	reflect.TypeFor[int](): func(s string) (any, error) {
		n, err := parseInt(s)
		return int(n), err
	},
	reflect.TypeFor[int64](): func(s string) (any, error) { return parseInt(s) },
	reflect.TypeFor[bool](): func(s string) (any, error) {
		b, err := strconv.ParseBool(s)
		if err != nil {
			return false, fmt.Errorf("use true or false, got %q", s)
		}
		return b, nil
	},
	reflect.TypeFor[string](): func(s string) (any, error) { return s, nil },
}

func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err == nil {
		return d, nil
	}
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return 0, fmt.Errorf("%q has no unit; write for instance %ss or %sms", s, s, s)
	}
	return 0, fmt.Errorf("use a number with a unit (ms, s, m or h) such as 1m30s, got %q", s)
}

func parseInt(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("use a whole number, got %q", s)
	}
	return n, nil
}

// ByteSize is a number of bytes.
type ByteSize int64

// UnmarshalText reads a number with an optional KiB or MiB.
func (b *ByteSize) UnmarshalText(text []byte) error {
	digits, unit := strings.TrimSpace(string(text)), int64(1)
	for _, u := range []struct {
		suffix string
		factor int64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}} {
		if d, ok := strings.CutSuffix(digits, u.suffix); ok {
			digits, unit = strings.TrimSpace(d), u.factor
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n > 1<<40 || n < 0 {
		return fmt.Errorf("use a number of bytes such as 65536, 64KiB or 1MiB, got %q", text)
	}
	*b = ByteSize(n * unit)
	return nil
}

func (b ByteSize) String() string {
	switch {
	case b > 0 && b%(1<<20) == 0:
		return fmt.Sprintf("%dMiB", b>>20)
	case b > 0 && b%(1<<10) == 0:
		return fmt.Sprintf("%dKiB", b>>10)
	}
	return strconv.FormatInt(int64(b), 10)
}

// KindDurations gives some kinds a duration of their own.
type KindDurations map[string]time.Duration

// UnmarshalText reads kind:duration, separated by commas.
func (k *KindDurations) UnmarshalText(text []byte) error {
	m := KindDurations{}
	for item := range items(text) {
		i := strings.LastIndexByte(item, ':')
		if i < 1 {
			return fmt.Errorf("write kind:duration, separated by commas, got %q", item)
		}
		kind, value := strings.TrimSpace(item[:i]), strings.TrimSpace(item[i+1:])
		d, err := parseDuration(value)
		if err != nil {
			return fmt.Errorf("kind %q: %w", kind, err)
		}
		if _, twice := m[kind]; twice {
			return fmt.Errorf("kind %q is named twice", kind)
		}
		m[kind] = d
	}
	*k = m
	return nil
}

// items yields the parts between commas that are not blank.
func items(text []byte) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for item := range strings.SplitSeq(string(text), ",") {
			if item = strings.TrimSpace(item); item != "" && !yield(item) {
				return
			}
		}
	}
}

// WeightedQueue is a queue and its share of a worker.
type WeightedQueue struct {
	Name   string
	Weight int
}

// MaxQueues is the largest number of queues of one process.
const MaxQueues = 100

// QueueList is the queues in the order in which they were named.
type QueueList []WeightedQueue

// UnmarshalText reads name:weight, separated by commas.
func (q *QueueList) UnmarshalText(text []byte) error {
	var list QueueList
	seen := map[string]bool{}
	for item := range items(text) {
		name, weight, weighted := strings.Cut(item, ":")
		w := WeightedQueue{Name: strings.TrimSpace(name), Weight: 1}
		if weighted {
			n, err := strconv.Atoi(strings.TrimSpace(weight))
			if err != nil || n < 1 || n > 100 {
				return fmt.Errorf("queue %q: use a weight of 1 to 100, got %q", w.Name, weight)
			}
			w.Weight = n
		}
		if !validName(w.Name) {
			return fmt.Errorf("queue %q: use 1 to 64 letters, digits, '.', '_' or '-'", w.Name)
		}
		if seen[w.Name] {
			return fmt.Errorf("queue %q is named twice", w.Name)
		}
		seen[w.Name] = true
		list = append(list, w)
	}
	if len(list) == 0 || len(list) > MaxQueues {
		return fmt.Errorf("name 1 to %d queues, got %d", MaxQueues, len(list))
	}
	*q = list
	return nil
}

// validName is the rule for queue names and key prefixes.
func validName(s string) bool {
	const chars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	return len(s) >= 1 && len(s) <= 64 && strings.Trim(s, chars) == ""
}
