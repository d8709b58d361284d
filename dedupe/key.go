package dedupe

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"github.com/claimq/claimq/queue"
)

// Key is what the other side recognises a repeated call by: 32 hexadecimal
// digits, the same at every attempt, at every worker and in every release.
type Key string

// String returns the digits.
func (k Key) String() string { return string(k) }

// KeyFor derives the key of a step: the first 16 bytes of SHA-256 over queue
// name, task ID and step name, each after its length as four bytes, the most
// significant first. The lengths keep ("a", "bc") and ("ab", "c") apart.
//
// The name of the server and the prefix of its keys do not enter: a queue that
// moves keeps its keys, and two installations that talk to the same account
// need different queue names or task IDs.
func KeyFor(queueName string, id queue.TaskID, step string) Key {
	h := sha256.New()
	for _, part := range []string{queueName, string(id), step} {
		var length [4]byte
		binary.BigEndian.PutUint32(length[:], uint32(len(part)))
		h.Write(length[:])
		h.Write([]byte(part))
	}
	return Key(hex.EncodeToString(h.Sum(nil)[:16]))
}
