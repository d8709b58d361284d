// Package value turns results of Go types into bytes to keep, and back: []byte,
// string and json.RawMessage as they are, anything else as JSON.
package value

import "encoding/json"

// Encode returns the bytes to keep for v.
func Encode(v any) ([]byte, error) {
	switch x := v.(type) {
	case []byte:
		return x, nil
	case json.RawMessage:
		return x, nil
	case string:
		return []byte(x), nil
	}
	return json.Marshal(v)
}

// Decode sets *v to what Encode was given.
func Decode[T any](b []byte, v *T) error {
	switch p := any(v).(type) {
	case *[]byte:
		*p = b
	case *json.RawMessage:
		*p = b
	case *string:
		*p = string(b)
	default:
		return json.Unmarshal(b, v)
	}
	return nil
}
