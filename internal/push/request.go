package push

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/queue"
)

// Headers that tell the receiver about the task.
const (
	headerTaskID  = "Claimq-Task-Id"
	headerKind    = "Claimq-Kind"
	headerAttempt = "Claimq-Attempt"
	headerFence   = "Claimq-Fence"
	headerQueue   = "Claimq-Queue"
	headerKey     = "Idempotency-Key"
)

// request builds the POST of one task.
func (p *Pusher) request(ctx context.Context, target string, d consumer.Delivery, key string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, body(d.Task.Payload))
	if err != nil {
		return nil, err
	}
	req.ContentLength = int64(len(d.Task.Payload))
	h := req.Header
	h.Set("User-Agent", p.cfg.UserAgent)
	h.Set("Content-Type", contentType(d.Task))
	h.Set(headerTaskID, string(d.Task.ID))
	setSafe(h, headerKind, d.Task.Kind)
	h.Set(headerAttempt, strconv.Itoa(d.Lease.Attempt))
	h.Set(headerFence, strconv.FormatUint(uint64(d.Lease.Fence), 10))
	h.Set(headerQueue, d.Lease.Queue)
	h.Set(headerKey, structuredString(key))
	for _, name := range p.cfg.ForwardHeaders {
		if v, ok := lookup(d.Task.Headers, name); ok {
			setSafe(h, name, v)
		}
	}
	if len(p.keys) > 0 {
		id, at := messageID(key), p.cfg.Now()
		h.Set("Webhook-Id", id)
		h.Set("Webhook-Timestamp", strconv.FormatInt(at.Unix(), 10))
		h.Set("Webhook-Signature", signatures(p.keys, id, at, d.Task.Payload))
	}
	return req, nil
}

// body hides from net/http that the payload could be read again. With a body
// that can be rewound, and because of the Idempotency-Key header, the transport
// would quietly send a request a second time when a kept connection breaks: a
// request nobody recorded.
func body(payload []byte) io.Reader {
	return io.NopCloser(bytes.NewReader(payload))
}

// contentType is the task's own, else what the payload is seen to be.
func contentType(t queue.Task) string {
	switch {
	case t.ContentType != "" && headerSafe(t.ContentType):
		return t.ContentType
	case t.ContentType == "" && json.Valid(t.Payload):
		return "application/json"
	default:
		return "application/octet-stream"
	}
}

// structuredString writes s as a string of RFC 8941: quoted, with backslash
// and quote escaped. A key is printable ASCII, as its task ID is.
func structuredString(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

func lookup(headers map[string]string, name string) (string, bool) {
	if v, ok := headers[name]; ok {
		return v, true
	}
	for k, v := range headers {
		if strings.EqualFold(k, name) {
			return v, true
		}
	}
	return "", false
}

// setSafe leaves out a value that cannot be sent: a foreign producer's stray
// line break must not fail a task that is otherwise whole.
func setSafe(h http.Header, name, value string) {
	if headerSafe(value) {
		h.Set(name, value)
	}
}

func headerSafe(v string) bool {
	for i := range len(v) {
		if c := v[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
