package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// PushRoute sends the kinds that match a pattern to a URL.
type PushRoute struct {
	Pattern string // a kind, a prefix followed by '*', or "*"
	URL     string // may hold a token: not for logs
}

// String shows the pattern and the host: paths and queries often hold tokens.
func (r PushRoute) String() string {
	u, err := url.Parse(r.URL)
	if err != nil {
		return r.Pattern + "=?"
	}
	return r.Pattern + "=" + u.Scheme + "://" + u.Host
}

// GoString hides the URL from %#v.
func (r PushRoute) GoString() string { return "config.PushRoute(" + r.String() + ")" }

// MarshalText hides the URL from JSON and its like.
func (r PushRoute) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// PushRoutes is the routes in the order in which they were named.
type PushRoutes []PushRoute

// LogValue shows patterns and hosts only.
func (rs PushRoutes) LogValue() slog.Value {
	list := make([]string, len(rs))
	for i, r := range rs {
		list[i] = r.String()
	}
	return slog.AnyValue(list)
}

// UnmarshalText reads kind=URL, separated by white space, because a URL may
// hold any other separator. Its errors never quote a URL.
func (rs *PushRoutes) UnmarshalText(text []byte) error {
	var routes PushRoutes
	for n, item := range strings.Fields(string(text)) {
		pattern, raw, ok := strings.Cut(item, "=")
		if !ok || pattern == "" || strings.Contains(pattern, "://") {
			return fmt.Errorf("entry %d: write kind=URL, or *=URL for every kind", n+1)
		}
		if i := strings.IndexByte(pattern, '*'); i >= 0 && i != len(pattern)-1 {
			return fmt.Errorf("entry %d: '*' may stand only at the end of %q", n+1, pattern)
		}
		u, err := url.Parse(raw)
		if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
			return fmt.Errorf("entry %d: what follows %q is not an http:// or https:// URL", n+1, pattern+"=")
		}
		if _, rest, ok := strings.Cut(raw, ","); ok && strings.Contains(rest, "=http") {
			return fmt.Errorf("entry %d: separate entries with spaces, not commas", n+1)
		}
		if slices.ContainsFunc(routes, func(r PushRoute) bool { return r.Pattern == pattern }) {
			return fmt.Errorf("entry %d: %q is named twice", n+1, pattern)
		}
		routes = append(routes, PushRoute{Pattern: pattern, URL: raw})
	}
	*rs = routes
	return nil
}

// MaxSigningSecrets bounds the signatures on one request.
const MaxSigningSecrets = 5

// SigningSecrets is the keys that sign requests, as they were written.
type SigningSecrets struct{ list []string }

// Reveal returns the keys, each beginning with whsec_.
func (s SigningSecrets) Reveal() []string { return s.list }

// UnmarshalText reads whsec_ and base64, several separated by spaces. Its
// errors never quote a key.
func (s *SigningSecrets) UnmarshalText(text []byte) error {
	list := strings.Fields(string(text))
	for n, item := range list {
		enc, ok := strings.CutPrefix(item, "whsec_")
		if !ok {
			return fmt.Errorf("key %d does not begin with whsec_", n+1)
		}
		key, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(enc, "="))
		if err != nil {
			return fmt.Errorf("key %d is not base64 after whsec_", n+1)
		}
		if len(key) < 24 || len(key) > 64 {
			return fmt.Errorf("key %d has %d bytes, use 24 to 64 (head -c 32 /dev/urandom | base64)", n+1, len(key))
		}
	}
	if len(list) > MaxSigningSecrets {
		return fmt.Errorf("use at most %d keys, got %d", MaxSigningSecrets, len(list))
	}
	s.list = list
	return nil
}

// String tells only how many keys there are.
func (s SigningSecrets) String() string { return fmt.Sprintf("%d keys", len(s.list)) }

// GoString hides the keys from %#v.
func (s SigningSecrets) GoString() string { return "config.SigningSecrets(" + s.String() + ")" }

// LogValue hides the keys from slog.
func (s SigningSecrets) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText hides the keys from JSON and its like.
func (s SigningSecrets) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// StatusList is HTTP status codes.
type StatusList []int

// UnmarshalText reads codes of 300 to 599, separated by commas.
func (s *StatusList) UnmarshalText(text []byte) error {
	list := StatusList{}
	for item := range items(text) {
		n, err := strconv.Atoi(item)
		if err != nil || n < 300 || n > 599 {
			return fmt.Errorf("use status codes of 300 to 599, separated by commas, got %q", item)
		}
		list = append(list, n)
	}
	*s = list
	return nil
}

// ListenAddr is host:port, or empty for none.
type ListenAddr string

// UnmarshalText reads host:port or "off".
func (a *ListenAddr) UnmarshalText(text []byte) error {
	s := string(text)
	if s == "off" {
		*a = ""
		return nil
	}
	_, port, err := net.SplitHostPort(s)
	if n, perr := strconv.Atoi(port); err != nil || perr != nil || n < 0 || n > 65535 {
		return errors.New("use host:port such as 127.0.0.1:9090, :9090 for every address, or off, got " + strconv.Quote(s))
	}
	*a = ListenAddr(s)
	return nil
}
