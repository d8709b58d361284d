package push

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Limits of a signing secret, from the Standard Webhooks specification.
const (
	secretPrefix = "whsec_"
	minKeyBytes  = 24
	maxKeyBytes  = 64
	// MaxSecrets bounds the signatures on one request. Two are enough to
	// replace a secret without a gap.
	MaxSecrets = 5
)

// parseSecret decodes "whsec_" followed by base64, padded or not. Its errors
// never repeat the secret.
func parseSecret(s string) ([]byte, error) {
	enc, ok := strings.CutPrefix(s, secretPrefix)
	if !ok {
		return nil, fmt.Errorf("a signing secret begins with %q", secretPrefix)
	}
	key, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(enc, "="))
	if err != nil {
		return nil, fmt.Errorf("what follows %q must be base64", secretPrefix)
	}
	if len(key) < minKeyBytes || len(key) > maxKeyBytes {
		return nil, fmt.Errorf("a signing secret holds %d to %d bytes, this one %d", minKeyBytes, maxKeyBytes, len(key))
	}
	return key, nil
}

// messageID derives the webhook-id from the key of the step: the same on every
// attempt, and without the dot that a task ID may hold and a webhook-id may
// not, since the signed text is joined with dots.
func messageID(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "msg_" + hex.EncodeToString(sum[:16])
}

// signatures returns the value of webhook-signature: one "v1," signature for
// each key, separated by spaces.
func signatures(keys [][]byte, id string, at time.Time, body []byte) string {
	var sigs []string
	for _, key := range keys {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
		mac.Write(body)
		sigs = append(sigs, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return strings.Join(sigs, " ")
}
