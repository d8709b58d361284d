package tracing

import (
	"errors"
	"fmt"
	"go/token"
	"reflect"
	"strings"
	"unicode/utf8"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/claimq/claimq/consumer"
	"github.com/claimq/claimq/queue"
)

// panicType is the type of error of a handler that panicked.
const panicType = "panic"

// typeOf is the error.type of an error, as the conventions have it. What only
// wraps an error, as consumer.DeadLetter does, says nothing about it: what
// counts is the first in the chain whose type is exported or that has an
// ErrorType method, or else the last.
func typeOf(err error) (name string) {
	defer func() {
		if recover() != nil { // out of a method of the user's
			name = fmt.Sprintf("%T", err)
		}
	}()
	if _, ok := asPanic(err); ok {
		return panicType
	}
	for !telling(err) {
		inner := errors.Unwrap(err)
		if inner == nil {
			break
		}
		err = inner
	}
	return semconv.ErrorType(err).Value.AsString()
}

// telling reports whether the type of an error names what went wrong.
func telling(err error) bool {
	if _, ok := err.(interface{ ErrorType() string }); ok {
		return true
	}
	t := reflect.TypeOf(err)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return token.IsExported(t.Name())
}

// asPanic is errors.AsType for errors of the user's, whose methods may panic.
func asPanic(err error) (p *consumer.PanicError, ok bool) {
	defer func() {
		if recover() != nil {
			p, ok = nil, false
		}
	}()
	return errors.AsType[*consumer.PanicError](err)
}

// textOf is the text of an error of the user's, cut to queue.MaxErrorBytes.
func textOf(err error) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("error of type %T, whose Error method panicked", err)
		}
	}()
	return cut(err.Error())
}

// serverText is the text of an error of package producer. A server that does
// not know a command answers with a part of its arguments, the payload among
// them.
func serverText(err error) string {
	text, _, found := strings.Cut(err.Error(), "with args beginning with")
	if found {
		text += "…"
	}
	return cut(text)
}

// cut shortens s to at most queue.MaxErrorBytes, at a character's boundary.
// Exporters refuse what is not UTF-8.
func cut(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	n := queue.MaxErrorBytes
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
