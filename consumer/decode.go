package consumer

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
)

// decode is the inverse of queue.NewTask.
func decode[T any](payload []byte, into *T) error {
	switch p := any(into).(type) {
	case *[]byte:
		*p = payload
		return nil
	case *string:
		*p = string(payload)
		return nil
	case *json.RawMessage:
		*p = payload
		return nil
	case *struct{}:
		if len(payload) == 0 { // a task without a payload
			return nil
		}
	}
	err := json.Unmarshal(payload, into)
	if err == nil {
		return nil
	}
	return &deadLetter{reason: FailedDecode, err: &decodeError{
		what: fmt.Sprintf("payload of %d bytes does not decode as %v: %s", len(payload), reflect.TypeFor[T](), decodeDetail(err)),
	}}
}

type decodeError struct{ what string }

func (e *decodeError) Error() string { return e.what }

// decodeDetail says where decoding failed. The texts of encoding/json quote
// the payload, so they are not used: payloads stay out of logs and errors.
func decodeDetail(err error) string {
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf("not JSON at byte %d", e.Offset)
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if e.Field != "" {
			return fmt.Sprintf("field %q, of Go type %v, has another type at byte %d", e.Field, e.Type, e.Offset)
		}
		return fmt.Sprintf("not a Go %v at byte %d", e.Type, e.Offset)
	}
	return fmt.Sprintf("refused by an UnmarshalJSON method (%T)", err)
}
