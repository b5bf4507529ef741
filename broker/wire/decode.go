package wire

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// strict is how both ends read. The library is encoding/json/v2's home: unlike
// encoding/json it takes keys in their exact spelling only, refuses one that
// is there twice and refuses text that is not UTF-8 (or half of a surrogate
// pair) instead of putting U+FFFD there, each of which would let two readers of
// one request see different paths.
var strict = json.RejectUnknownMembers(true)

// Decode reads the JSON object b into v, strictly. Empty and null mean an empty
// object. The error is one line for a person and names the field.
func Decode(b []byte, v any) error {
	b = bytes.TrimSpace(b)
	if len(b) == 0 || bytes.Equal(b, []byte("null")) {
		return nil
	}
	if b[0] != '{' {
		return errors.New("params must be an object")
	}
	err := json.Unmarshal(b, v, strict)
	if err == nil {
		return nil
	}
	var meta metaError
	if errors.As(err, &meta) {
		return fmt.Errorf("params: %w", meta)
	}
	var sem *json.SemanticError
	if errors.As(err, &sem) {
		field := strings.TrimPrefix(string(sem.JSONPointer), "/")
		switch {
		case errors.Is(err, json.ErrUnknownName):
			return fmt.Errorf("params: there is no field %q", field)
		case sem.GoType != nil && sem.JSONKind != 0:
			return fmt.Errorf("params: %s must be %s, not %s", field, described(sem.GoType), sem.JSONKind)
		}
	}
	var syn *jsontext.SyntacticError
	if errors.As(err, &syn) {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return fmt.Errorf("params: duplicate field %q", strings.TrimPrefix(string(syn.JSONPointer), "/"))
		}
		return fmt.Errorf("params: byte %d: %w", syn.ByteOffset, syn.Err)
	}
	return fmt.Errorf("params: %w", err)
}

func described(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "an integer in range"
	case reflect.Float64:
		return "a number"
	case reflect.String:
		return "a string"
	case reflect.Slice:
		return "a list"
	}
	return "an object"
}

// Frame is the outermost object of one JSON-RPC message, its values unread.
type Frame struct {
	ID     []byte // raw; nil: a notification
	Method string // "": a response
	Params []byte // raw; nil: absent
}

// Call reports whether the frame is a request that wants an answer.
func (f *Frame) Call() bool { return f.Method != "" && len(f.ID) > 0 && string(f.ID) != "null" }

// maxKeys bounds the keys of a frame; the protocol has five.
const maxKeys = 32

// ReadFrame reads the outermost object of line, checking all of its syntax. A
// frame with two methods or two ids would mean one thing to us and another to
// whoever reads it next, so no key may stand there twice; those further in are
// for Decode, which can answer by id.
func ReadFrame(line []byte) (Frame, error) {
	var f Frame
	dec := jsontext.NewDecoder(bytes.NewBuffer(line), jsontext.AllowDuplicateNames(true))
	tok, err := dec.ReadToken()
	if err != nil {
		return f, frameError(err)
	}
	if tok.Kind() != '{' {
		return f, errors.New("not an object")
	}
	var seen []string
	for dec.PeekKind() != '}' {
		key, err := dec.ReadToken()
		if err != nil {
			return f, frameError(err)
		}
		name := key.String()
		if slices.Contains(seen, name) || len(seen) == maxKeys {
			return f, fmt.Errorf("duplicate field %q, or too many fields", name)
		}
		seen = append(seen, name)
		val, err := dec.ReadValue()
		if err != nil {
			return f, frameError(err)
		}
		switch name {
		case "id":
			f.ID = bytes.Clone(val)
		case "method":
			if err := json.Unmarshal(val, &f.Method); err != nil {
				return f, errors.New("method must be a string")
			}
		case "params":
			f.Params = val // a part of line
		}
	}
	if _, err := dec.ReadToken(); err != nil {
		return f, frameError(err)
	}
	// Not PeekKind: it has no kind for what is no JSON.
	if len(bytes.TrimLeft(line[dec.InputOffset():], " \t\r\n")) > 0 {
		return f, errors.New("something follows the object")
	}
	return f, nil
}

// longestAsked bounds an id that is repeated to say what is wrong with a message,
// bytes of JSON.
const longestAsked = 1024

// Asked reads, of a line that ReadFrame has refused or of the beginning of one that
// is too long, which request it is: its method and its id, raw, so that whoever
// waits for the answer can be told. Both are empty where that cannot be said for
// certain: the line is no request, or says it twice, or what is wrong stands before.
func Asked(line []byte) (id []byte, method string) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(line), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if tok, err := dec.ReadToken(); err != nil || tok.Kind() != '{' {
		return nil, ""
	}
	ids, methods := 0, 0
	for dec.PeekKind() == '"' && ids+methods <= 2 {
		key, err := dec.ReadToken()
		if err != nil {
			break
		}
		name := key.String()
		val, err := dec.ReadValue()
		if err != nil {
			break
		}
		switch name {
		case "id":
			id = bytes.Clone(val)
			ids++
		case "method":
			_ = json.Unmarshal(val, &method) // "": no method
			methods++
		}
	}
	whole := ids == 1 && methods == 1 && method != "" && len(id) <= longestAsked && jsontext.Value(id).IsValid()
	if !whole || id[0] != '"' && id[0] != '-' && (id[0] < '0' || id[0] > '9') {
		return nil, ""
	}
	return id, method
}

func frameError(err error) error {
	var syn *jsontext.SyntacticError
	if errors.As(err, &syn) {
		return fmt.Errorf("byte %d: %w", syn.ByteOffset, syn.Err)
	}
	return errors.New("the object does not end")
}
