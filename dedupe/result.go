package dedupe

import (
	"bytes"
	"crypto/sha256"
	"fmt"

	"github.com/claimq/claimq/dedupe/internal/value"
	"github.com/claimq/claimq/queue"
)

// notePrefix begins what stands in the ledger for a result that was not kept.
// A result of the caller's that begins so is not kept either.
const notePrefix = "\x00claimq not kept: "

// encode returns what to record for v. With a detail, v itself cannot be kept
// and result is a note.
func encode[T any](v T) (result []byte, detail string) {
	result, err := value.Encode(v)
	if err != nil {
		return note(fmt.Sprintf("a %T does not encode as JSON", v))
	}
	if len(result) > queue.MaxResultBytes {
		return note(fmt.Sprintf("%d bytes are more than %d (sha256 %x)", len(result), queue.MaxResultBytes, sha256.Sum256(result)))
	}
	if bytes.HasPrefix(result, []byte(notePrefix)) {
		return note("it begins like a note of this package")
	}
	return result, ""
}

func note(detail string) (result []byte, _ string) { return []byte(notePrefix + detail), detail }

// unkept tells a note from a result.
func unkept(result []byte) (detail string, lost bool) {
	d, lost := bytes.CutPrefix(result, []byte(notePrefix))
	return string(d), lost
}
