package jsonline

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// Frame holds the positions of the parts of one JSON-RPC message in its line.
type Frame struct {
	ID, Method, Params, Result, Error Span
	RPC                               bool // the message says that it is JSON-RPC 2.0
	Clash                             Span // the first key by which readers may see different messages, see Parse

	version Span
}

// Answers reports whether a frame has a result or an error, as only an answer has.
func (f *Frame) Answers() bool { return !f.Result.Absent() || !f.Error.Absent() }

// IDInDoubt reports whether a reader may take the key at Clash for "id", so that readers may see
// different ids. It does not examine the keys after Clash.
func (f *Frame) IDInDoubt(b []byte) bool {
	return !f.Clash.Absent() && fieldOf(Unquote(f.Clash.Of(b))) == "id"
}

// fields are the keys of JSON-RPC.
var fields = [...]string{"jsonrpc", "id", "method", "params", "result", "error"}

// fieldOf returns the key of JSON-RPC for which a reader may take key, "" if there is none.
// encoding/json and JsonSerializerDefaults.Web ignore the case of keys.
func fieldOf(key []byte) string {
	for _, name := range fields {
		if string(key) == name {
			return name
		}
	}
	for _, name := range fields {
		if bytes.EqualFold([]byte(name), key) {
			return name
		}
	}
	return ""
}

func (f *Frame) part(field string) *Span {
	switch field {
	case "id":
		return &f.ID
	case "method":
		return &f.Method
	case "params":
		return &f.Params
	case "result":
		return &f.Result
	case "error":
		return &f.Error
	}
	return &f.version
}

// maxKeys bounds how many keys are compared with each other. A frame with more keys counts as
// one with a repeated key. The protocol has six keys, see fields.
const maxKeys = 64

// Parse finds the parts of the object in b by their keys, ignoring case. It reports false if b is
// not exactly one object. Clash is the first key to which one of these applies: the key differs
// from an earlier key at most in case; the key differs from a key of JSON-RPC only in case; the key
// comes after maxKeys other keys.
func Parse(b []byte) (f Frame, ok bool) {
	w, _ := Object(b, SkipSpace(b, 0))
	var others []Span // keys that are not JSON-RPC's
	for keys := 1; w.Next(); keys++ {
		key := Unquote(w.Key.Of(b))
		field := fieldOf(key)
		clash := keys > maxKeys
		if field == "" {
			if clash = clash || repeats(b, others, key); !clash {
				others = append(others, w.Key)
			}
		} else {
			at := f.part(field)
			clash = clash || !at.Absent() || field != string(key)
			*at = w.Val
			f.RPC = f.RPC || field == "jsonrpc" && Equal(w.Val.Of(b), "2.0")
		}
		if clash && f.Clash.Absent() {
			f.Clash = w.Key
		}
	}
	return f, w.reachedEnd()
}

// repeats reports whether a key was seen, ignoring case.
func repeats(b []byte, seen []Span, key []byte) bool {
	for _, s := range seen {
		if bytes.EqualFold(Unquote(s.Of(b)), key) {
			return true
		}
	}
	return false
}

// Check returns nil if a line is exactly one value of RFC 8259, and else an error that says
// why not. It does not look for repeated keys.
func Check(line []byte) error {
	if jsontext.Value(line).IsValid(jsontext.AllowDuplicateNames(true)) {
		return nil
	}
	_, err := jsontext.NewDecoder(bytes.NewReader(line), jsontext.AllowDuplicateNames(true)).ReadValue()
	var syntax *jsontext.SyntacticError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("byte %d: %w", syntax.ByteOffset, syntax.Err)
	case err != nil:
		return errors.New("the value does not end")
	}
	return errors.New("something follows the value")
}

// Batch returns the positions of the members of the batch in line. It reports false if the line
// is not one array. If the array has more members than most, Batch returns most+1 of them.
func Batch(line []byte, most int) (members []Span, ok bool) {
	w, _ := Array(line, SkipSpace(line, 0))
	for w.Next() {
		if len(members) <= most {
			members = append(members, w.Val)
		}
	}
	return members, w.reachedEnd()
}

// longestID bounds the ids that are repeated in error answers, in bytes of JSON.
const longestID = 1024

// Answerable reports whether an id, in JSON, is a string or a number, and at most longestID
// bytes long.
func Answerable(id []byte) bool {
	return len(id) > 0 && len(id) <= longestID && jsontext.Value(id).IsValid() &&
		(id[0] == '"' || id[0] == '-' || id[0] >= '0' && id[0] <= '9')
}
