package contender

import (
	"fmt"
	"strings"
	"time"
)

// stampBytes is the length of the time at the start of each payload.
const stampBytes = 20

// Payloads makes payloads of a size. Each begins with the time at which it was
// made, which also names the task.
type Payloads struct{ tail string }

// NewPayloads returns a maker of payloads of this many bytes, at least 20. The
// text does not compress to nothing, and is safe in JSON.
func NewPayloads(size int) Payloads {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	var b strings.Builder
	seed := uint32(12345)
	for range max(0, size-stampBytes) {
		seed = seed*1664525 + 1013904223
		b.WriteByte(letters[(seed>>16)%uint32(len(letters))])
	}
	return Payloads{b.String()}
}

// Make returns a payload with the present time.
func (p Payloads) Make() string {
	return fmt.Sprintf("%0*d", stampBytes, time.Now().UnixNano()) + p.tail
}

// ID returns the i-th task ID of a length, at least 36. Equal seeds give equal
// IDs.
func ID(seed int64, i, length int) string {
	id := fmt.Sprintf("%08x-%04x-7%03x-8%03x-%012x", uint32(seed>>16), uint16(seed), i>>20&0xfff, i>>12&0xfff, i)
	if length > len(id) {
		id += strings.Repeat("x", length-len(id))
	}
	return id
}
