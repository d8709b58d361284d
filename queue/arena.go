package queue

import "strings"

const (
	// arenaChunk is how much an arena allocates at once, and so the most that
	// a small value kept for long keeps from being freed besides itself.
	arenaChunk = 8 << 10
	// arenaLargest is the largest value that shares a chunk with others.
	arenaLargest = 1 << 10
)

// arena copies small values of a batch into a few chunks in place of an
// allocation each. The zero value makes every chunk as large as it has to be;
// left is about how many bytes of small values are still to come. It is not
// copied once it is in use.
type arena struct {
	left int
	text strings.Builder
	data []byte
}

// size is how large the next chunk is, for a value of n bytes at least.
func (a *arena) size(n int) int { return max(n, min(a.left, arenaChunk)) }

// string copies b.
func (a *arena) string(b []byte) string {
	n := len(b)
	if n == 0 || n > arenaLargest {
		return string(b)
	}
	if a.text.Cap()-a.text.Len() < n {
		a.text = strings.Builder{}
		a.text.Grow(a.size(n))
	}
	a.left -= n
	from := a.text.Len()
	a.text.Write(b)
	return a.text.String()[from:]
}

// bytes copies s into memory that is the caller's alone: whoever appends to
// the result or writes to it does not touch a neighbour.
func (a *arena) bytes(s string) []byte {
	n := len(s)
	if n == 0 || n > arenaLargest {
		return []byte(s)
	}
	if cap(a.data)-len(a.data) < n {
		a.data = make([]byte, 0, a.size(n))
	}
	a.left -= n
	from := len(a.data)
	a.data = append(a.data, s...)
	return a.data[from : from+n : from+n]
}
