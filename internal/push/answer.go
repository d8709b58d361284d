package push

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/claimq/claimq/queue"
)

// RefusedError is an answer that is not 2xx.
type RefusedError struct {
	Status     int
	RetryAfter time.Duration // what the receiver asked for, at most MaxRetryAfter; 0: nothing
	Detail     string        // a piece of the answer, printable
}

func (e *RefusedError) Error() string {
	msg := fmt.Sprintf("receiver answered %d %s", e.Status, http.StatusText(e.Status))
	if e.Status >= 300 && e.Status < 400 {
		msg += " (redirects are refused; configure the final URL)"
	}
	if e.Detail != "" {
		msg += ": " + e.Detail
	}
	return strings.TrimSpace(msg)
}

// truncated ends a result whose rest was not kept.
const truncated = " [truncated]"

// result is what is kept of a 2xx answer: the external ID when there is one,
// else the body, else a piece of the body that says it is one. How the body
// ends changes nothing about the status, so an error while reading it is a
// truncation and no failure.
func (p *Pusher) result(resp *http.Response) string {
	text, whole := p.read(resp) // read in any case, so that the connection can be kept
	if id := resp.Header.Get(p.cfg.ExternalIDHeader); id != "" {
		return clip(id, maxResult, true)
	}
	return clip(text, maxResult, whole)
}

// maxResult is what a step keeps; a string is kept as it is.
const maxResult = queue.MaxResultBytes

func (p *Pusher) refusal(resp *http.Response) *RefusedError {
	text, whole := p.read(resp)
	return &RefusedError{
		Status:     resp.StatusCode,
		RetryAfter: retryAfter(resp.Header.Get("Retry-After"), p.cfg.Now()),
		Detail:     clip(strings.TrimSpace(printable(text)), maxReasonBytes, whole),
	}
}

// read reads at most MaxResponseBytes and reports whether that was all.
func (p *Pusher) read(resp *http.Response) (text string, whole bool) {
	b, err := io.ReadAll(io.LimitReader(resp.Body, p.cfg.MaxResponseBytes+1))
	if int64(len(b)) > p.cfg.MaxResponseBytes {
		return string(b[:p.cfg.MaxResponseBytes]), false
	}
	return string(b), err == nil
}

// clip cuts s to at most limit bytes, without splitting a character. It says so
// at the end, also when s was not whole to begin with.
func clip(s string, limit int, whole bool) string {
	if whole && len(s) <= limit {
		return s
	}
	cut := min(len(s), limit-len(truncated))
	for cut > 0 && cut < len(s) && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + truncated
}

// printable replaces what would disturb a line of a log or a table.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return '.'
		}
		return r
	}, s)
}

// retryAfter reads a Retry-After header, which holds seconds or an HTTP date.
// What it cannot read or lies in the past is 0: the worker's own backoff.
func retryAfter(v string, now time.Time) time.Duration {
	v = strings.TrimSpace(v)
	secs, err := strconv.ParseUint(v, 10, 64)
	if err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(secs, uint64(MaxRetryAfter/time.Second))) * time.Second
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), MaxRetryAfter)
}
