package push

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
	"testing"
	"time"
)

// FuzzRetryAfter: whatever a receiver sends, the wait is between none and
// MaxRetryAfter.
func FuzzRetryAfter(f *testing.F) {
	for _, v := range []string{
		"", "0", "5", " 7 ", "-1", "1.5", "99999999999999999999", "18446744073709551615", "Wed, 21 Oct 2065 07:28:00 GMT", "Wed, 21 Oct 1015 07:28:00 GMT",
		"Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994", "soon", "\x00", "0x10", "+5",
	} {
		f.Add(v, int64(1_800_000_000))
	}
	f.Fuzz(func(t *testing.T, v string, now int64) {
		if d := retryAfter(v, time.Unix(now%(1<<40), 0)); d < 0 || d > MaxRetryAfter {
			t.Errorf("%q at %d: %v", v, now, d)
		}
	})
}

// FuzzSign: a secret is decoded or refused without being repeated, and whatever
// is signed verifies as a receiver would verify it: the three parts cannot run
// into each other.
func FuzzSign(f *testing.F) {
	good := "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))
	for _, s := range []string{good, strings.TrimRight(good, "="), "", "whsec_", "whsec_!!!!", "whsec_YQ==", good + good, "WHSEC_" + good, "\xff"} {
		f.Add(s, "key.with.dots", []byte("{}"), int64(1_800_000_000))
	}
	f.Add(good, "", []byte{}, int64(-1))
	f.Fuzz(func(t *testing.T, secret, key string, body []byte, at int64) {
		k, err := parseSecret(secret)
		if err != nil {
			if len(secret) > 12 && strings.Contains(err.Error(), secret) {
				t.Errorf("the error repeats the secret: %v", err)
			}
			return
		}
		id := messageID(key)
		if strings.Contains(id, ".") || id != messageID(key) {
			t.Errorf("%q", id)
		}
		list := strings.Fields(signatures([][]byte{k, k}, id, time.Unix(at, 0), body))
		mac := hmac.New(sha256.New, k)
		mac.Write([]byte(id + "." + strconv.FormatInt(at, 10) + "." + string(body)))
		want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
		if len(list) != 2 || list[0] != want || list[1] != want {
			t.Errorf("%v, want %s twice", list, want)
		}
	})
}
