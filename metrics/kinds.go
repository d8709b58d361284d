package metrics

import (
	"maps"
	"sync"
	"sync/atomic"
)

// MaxKinds is how many kinds get a label of their own; any further one is
// counted as OtherKind. Kinds that are named beforehand come first, then those
// that are seen first.
const (
	MaxKinds  = 100
	OtherKind = "other"
)

// table is a map that is read without a lock and seldom grows: it is copied
// when it does.
type table[T any] struct {
	mu sync.Mutex
	m  atomic.Pointer[map[string]T]
}

func (t *table[T]) get(key string) (v T, ok bool) {
	v, ok = t.all()[key]
	return v, ok
}

// all is not to be changed.
func (t *table[T]) all() map[string]T {
	if m := t.m.Load(); m != nil {
		return *m
	}
	return nil
}

// put adds a key, unless it is there or the table has limit keys, and returns
// what is there then.
func (t *table[T]) put(key string, limit int, value func() T) (v T, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if v, ok = t.get(key); ok || len(t.all()) >= limit {
		return v, ok
	}
	m := maps.Clone(t.all())
	if m == nil {
		m = map[string]T{}
	}
	v = value()
	m[key] = v
	t.m.Store(&m)
	return v, true
}

// kindNames are the kinds that have a label of their own, in all queues
// together.
type kindNames struct{ table[struct{}] }

// admit reports whether a kind has a label of its own, and gives it one while
// there is room.
func (k *kindNames) admit(kind string) bool {
	if kind == OtherKind {
		return false
	}
	_, ok := k.get(kind)
	if !ok && len(k.all()) < MaxKinds {
		_, ok = k.put(kind, MaxKinds, func() struct{} { return struct{}{} })
	}
	return ok
}

// byKind are the series of one queue by kind.
type byKind[T any] struct {
	names *kindNames
	make  func(kind string) T
	kinds table[T]
	other T
}

func newByKind[T any](names *kindNames, make func(kind string) T) *byKind[T] {
	return &byKind[T]{names: names, make: make, other: make(OtherKind)}
}

// of returns the series of a kind.
func (b *byKind[T]) of(kind string) T {
	if v, ok := b.kinds.get(kind); ok {
		return v
	}
	if b.names.admit(kind) {
		if v, ok := b.kinds.put(kind, MaxKinds, func() T { return b.make(kind) }); ok {
			return v
		}
	}
	return b.other
}
