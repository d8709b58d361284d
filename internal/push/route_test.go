package push

import (
	"strings"
	"testing"
)

func TestRouteClosestWins(t *testing.T) {
	rs := routes{
		{"*", "http://all"},
		{"invoice.*", "http://invoice"},
		{"invoice.send.*", "http://send"},
		{"invoice.send", "http://exact"},
	}
	for kind, want := range map[string]string{
		"mail":              "http://all",
		"invoice":           "http://all",
		"invoicesend":       "http://all",
		"invoice.paid":      "http://invoice",
		"invoice.send":      "http://exact",
		"invoice.send.late": "http://send",
	} {
		if got, ok := rs.find(kind); !ok || got != want {
			t.Errorf("%s goes to %s, want %s", kind, got, want)
		}
	}
	if got, ok := rs[3:].find("mail"); ok {
		t.Errorf("a kind without a route goes to %s", got)
	}
}

func TestEveryProblemIsReported(t *testing.T) {
	_, err := New(Config{
		Routes: []Route{
			{"a*b", "http://x"}, {"", "http://x"}, {"ok*", "http://x"},
			{"x", "ftp://user:hunter2@x"}, {"x", "http://"}, {"y", "http://y/#part"}, {"z", "http://user:hunter2@[bad"},
		},
		Timeout: -1, MaxResponseBytes: -1, MaxConnsPerHost: -1,
		DeadStatus: []int{410, 204}, RetryStatus: []int{410, 700},
		SigningSecrets: []string{"whsec_hunter2", "hunter2", "", "", "", ""},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"not its last character", "pattern is empty", "http:// or https://", "has no host",
		"given twice", "fragment", "cannot be parsed",
		"push.Ledger", "push.Timeout", "push.MaxResponseBytes", "push.MaxConnsPerHost",
		"got 204", "got 700", "410 is among RetryStatus", "push.SigningSecrets[0]", "push.SigningSecrets[1]", "use at most 5, got 6",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q", want)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a secret is in the error: %v", err)
	}
	if _, err := New(Config{}); err == nil || !strings.Contains(err.Error(), "push.Routes") {
		t.Errorf("no routes: %v", err)
	}
}
