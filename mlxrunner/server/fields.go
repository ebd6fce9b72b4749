package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
)

// fields are the parameters of a request. Each is taken once, by name; what
// nobody took is refused at the end, so nothing is ever ignored. The first
// error stays and makes the rest do nothing.
type fields struct {
	prefix string // of names, for an object within the request
	values map[string]json.RawMessage
	err    *error // shared with the objects within
}

// readFields reads a body of at most limit bytes.
func readFields(w http.ResponseWriter, r *http.Request, limit int64) (*fields, error) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		return nil, unread(err)
	}
	f := &fields{err: new(error)}
	if err := json.Unmarshal(text, &f.values); err != nil && json.Valid(text) {
		return nil, badRequest("", "the body is not a JSON object: it is %s", kindOf(bytes.TrimSpace(text)))
	} else if err != nil {
		return nil, badRequest("", "the body is not a JSON object: %v", err)
	}
	if f.values == nil {
		return nil, badRequest("", "the body is not a JSON object")
	}
	return f, nil
}

// unread tells why a body could not be read, which is the client's fault.
func unread(err error) error {
	_, long := errors.AsType[*http.MaxBytesError](err)
	if _, told := errors.AsType[*apiError](err); told || long {
		return err
	}
	return badRequest("", "the body did not come to its end: %v", err)
}

// fail makes err the request's error, where it has none yet and err is one.
func (f *fields) fail(err error) {
	if err != nil && *f.err == nil {
		*f.err = err
	}
}

// refuse makes a fault of a parameter the request's error.
func (f *fields) refuse(name, format string, args ...any) {
	f.fail(badRequest(f.prefix+name, "%s: "+format, append([]any{f.prefix + name}, args...)...))
}

// raw takes a parameter as it stands; nil where it is missing or null.
func (f *fields) raw(name string) json.RawMessage {
	value := f.values[name]
	delete(f.values, name)
	if string(value) == "null" {
		return nil
	}
	return value
}

// take decodes a parameter, strictly by its type.
func take[T any](f *fields, name, want string, otherwise T) T {
	value := f.raw(name)
	if value == nil {
		return otherwise
	}
	var out T
	if err := json.Unmarshal(value, &out); err != nil {
		f.refuse(name, "it is %s, want %s", kindOf(value), want)
		return otherwise
	}
	return out
}

// as decodes a value that may be of several types.
func as[T any](value json.RawMessage) (out T, ok bool) {
	if err := json.Unmarshal(value, &out); err != nil {
		var none T // what was decoded until the error is not
		return none, false
	}
	return out, true
}

// kindOf says what a value is, without telling it: what people say is not for
// the log.
func kindOf(value json.RawMessage) string {
	switch value[0] {
	case '"':
		return "a text"
	case '[':
		return "a list"
	case '{':
		return "an object"
	}
	return brief(string(value)) // a number, true or false
}

// brief is as much of a text as an error tells.
func brief(text string) string {
	const enough = 40
	if len(text) > enough {
		return strings.ToValidUTF8(text[:enough], "") + "…"
	}
	return text
}

func (f *fields) number(name string, low, high, otherwise float64) float64 {
	n := take(f, name, "a number", otherwise)
	if n != otherwise && !(n >= low && n <= high) {
		f.refuse(name, "it is %v, want %v to %v", n, low, high)
	}
	return n
}

func (f *fields) integer(name string, low, high, otherwise int) int {
	n := take(f, name, "a whole number", otherwise)
	if n != otherwise && (n < low || n > high) {
		if high == math.MaxInt {
			f.refuse(name, "it is %d, want %d or more", n, low)
		} else {
			f.refuse(name, "it is %d, want %d to %d", n, low, high)
		}
	}
	return n
}

func (f *fields) flag(name string, otherwise bool) bool {
	return take(f, name, "true or false", otherwise)
}

func (f *fields) text(name string) string { return take(f, name, "a text", "") }

// object takes a parameter that has parameters of its own; nil where it is
// missing. Give it to done.
func (f *fields) object(name string) *fields {
	inner := take(f, name, "an object", map[string]json.RawMessage(nil))
	if inner == nil {
		return nil
	}
	return &fields{prefix: f.prefix + name + ".", values: inner, err: f.err}
}

// objects takes a parameter that is a list of objects.
func (f *fields) objects(name string) []*fields {
	var out []*fields
	for i, inner := range take(f, name, "a list of objects", []map[string]json.RawMessage(nil)) {
		out = append(out, &fields{prefix: f.prefix + place(name, i) + ".", values: inner, err: f.err})
	}
	return out
}

// only takes a parameter of which the server can do nothing but the values
// given, each as JSON without spaces.
func (f *fields) only(name string, can ...string) {
	value := f.raw(name)
	if value == nil {
		return
	}
	var plain bytes.Buffer
	if json.Compact(&plain, value) == nil && slices.Contains(can, plain.String()) {
		return
	}
	f.fail(unsupported(f.prefix+name, "%s: %s is not supported, only %s", f.prefix+name, brief(string(value)), strings.Join(can, " or ")))
}

// done gives the first error; a parameter that nobody took is one, unless it is
// null and so asks for nothing.
func (f *fields) done() error {
	maps.DeleteFunc(f.values, func(_ string, value json.RawMessage) bool { return string(value) == "null" })
	if *f.err == nil && len(f.values) > 0 {
		name := f.prefix + slices.Min(slices.Collect(maps.Keys(f.values)))
		f.fail(unsupported(name, "%s is not a parameter that this server supports", name))
	}
	return *f.err
}
