package config

import (
	"strings"
	"testing"
)

// FuzzValues: whatever a variable is set to, the settings are read or refused
// with an error that names the variable, never with a panic; and a secret is not
// in the error.
func FuzzValues(f *testing.F) {
	names := []string{
		"REDIS_URL", "QUEUES", "QUEUE_LEASE", "QUEUE_KIND_LEASES", "QUEUE_PARTITIONS", "QUEUE_RETENTION", "QUEUE_MAX_PAYLOAD_BYTES", "QUEUE_MAX_BACKLOG",
		"WORKER_CONCURRENCY", "WORKER_BLOCK", "PUSH_URLS", "PUSH_SIGNING_SECRET", "PUSH_RETRY_STATUS", "WORKER_KIND_TIMEOUTS", "PUSH_EXTERNAL_ID_HEADER", "OPS_ADDR", "LOG_LEVEL", "LOG_FORMAT", "REDIS_CA_FILE",
	}
	for i := range names {
		for _, v := range []string{"", "0", "-1", "99999999999999999999", "1s", "1e9h", "a=b,c", "redis://u:p@h:1/0", "redis://%zz", "*=http://h/ x=https://h", "off", ":70000", "\x00", "whsec_!", "k=1s,k=2s"} {
			f.Add(uint8(i), v)
		}
	}
	f.Fuzz(func(t *testing.T, at uint8, value string) {
		name := names[int(at)%len(names)]
		_, err := LoadWorker([]string{name + "=" + value})
		if err != nil && !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%q: %v does not name it", name, value, err)
		}
		if _, err := LoadProducer([]string{name + "=" + value}); err == nil && name != "REDIS_URL" {
			t.Error("a producer without a server")
		}
	})
}

// FuzzPushRoutes: PUSH_URLS is taken apart or refused without quoting a URL, and
// what was taken is written as it was read.
func FuzzPushRoutes(f *testing.F) {
	for _, v := range []string{
		"", "*=http://h/", "a=http://h/x b=https://h/y", "a*=http://h/", "a*b=http://h/", "=http://h", "a=ftp://h", "a=http://", "http://h/", "a=http://h,b=http://h",
		"a=http://h a=http://i", "*=http://u:p@h/?token=x", "\xff=http://h", "a=http://[::1]:80/", "a=http://%zz", "a=http://h/\x7f",
	} {
		f.Add(v)
	}
	const secret = "hunter2"
	f.Fuzz(func(t *testing.T, text string) {
		var rs PushRoutes
		if err := rs.UnmarshalText([]byte(text)); err == nil {
			for i, r := range rs {
				if r.Pattern == "" || r.URL == "" || strings.Fields(text)[i] != r.Pattern+"="+r.URL {
					t.Errorf("%q: %+v", text, rs)
				}
				_, _ = r.String(), rs.LogValue()
			}
		}
		if strings.Contains(text, secret) {
			return
		}
		if err := rs.UnmarshalText([]byte(text + " z=ftp://" + secret + "/")); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%q: %v", text, err)
		}
	})
}
