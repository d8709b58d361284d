package push

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"
)

// The vector that the Standard Webhooks libraries test themselves with.
func TestSignatureVector(t *testing.T) {
	key, err := parseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	got := signatures([][]byte{key}, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestSecretLimits(t *testing.T) {
	enc := func(n int) string { return base64.StdEncoding.EncodeToString(make([]byte, n)) }
	for _, tc := range []struct {
		in string
		ok bool
	}{
		{"whsec_" + enc(24), true},
		{"whsec_" + enc(64), true},
		{"whsec_" + strings.TrimRight(enc(25), "="), true},
		{"whsec_" + enc(23), false},
		{"whsec_" + enc(65), false},
		{enc(32), false},
		{"whsec_", false},
		{"whsec_%%%", false},
		{"", false},
	} {
		_, err := parseSecret(tc.in)
		if (err == nil) != tc.ok {
			t.Errorf("%q: %v, want ok %v", tc.in, err, tc.ok)
		}
		if err != nil && len(tc.in) > 8 && strings.Contains(err.Error(), tc.in[6:]) {
			t.Errorf("the error repeats the secret: %v", err)
		}
	}
}

func TestMessageIDHasNoDot(t *testing.T) {
	a, b := messageID("invoice.4821.send/deliver"), messageID("invoice-4821-send/deliver")
	if a == b || strings.Contains(a, ".") || !strings.HasPrefix(a, "msg_") || len(a) != 36 {
		t.Errorf("message IDs %q and %q", a, b)
	}
	if a != messageID("invoice.4821.send/deliver") {
		t.Error("the same key gives another message ID")
	}
}
