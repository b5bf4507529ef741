package wire

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
)

// strict makes both ends read a request in the same way. The library is the origin of
// encoding/json/v2. Unlike encoding/json it accepts only the exact spelling of keys, and
// refuses duplicate keys. It also refuses text that is not UTF-8, or has half a surrogate pair,
// where encoding/json writes U+FFFD. In each of these cases two readers could see different paths.
var strict = json.RejectUnknownMembers(true)

// Decode reads the JSON object b into v, strictly. Empty and null mean an empty object. The error
// is one line for a person. The error names a field that is unknown, repeated or of a wrong type.
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
			return fmt.Errorf("params: %s must be %s, not %s", field, typeText(sem.GoType), sem.JSONKind)
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

// typeText describes the JSON values that a Go type takes.
func typeText(t reflect.Type) string {
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

// Frame is the outermost object of one JSON-RPC message. ID and Params are undecoded parts of the
// line; Method is decoded.
type Frame struct {
	ID     []byte // raw; nil: absent, as in a notification
	Method string // "": a response
	Params []byte // raw; nil: absent
}

// Call reports whether the frame is a request that wants an answer.
func (f *Frame) Call() bool { return f.Method != "" && len(f.ID) > 0 && string(f.ID) != "null" }

// ReadFrame reads the outermost object of line, checking all of its syntax. Two readers of a frame
// with two methods or two ids could read it differently, so ReadFrame refuses duplicate outermost
// keys. It leaves the inner keys to Decode, because the caller of Decode has the id for an error
// response.
func ReadFrame(line []byte) (Frame, error) {
	p, ok := jsonline.Parse(line)
	return frameOf(line, &p, ok)
}

// frameOf is ReadFrame for a line for which jsonline.Parse returned p and ok.
func frameOf(line []byte, p *jsonline.Frame, ok bool) (Frame, error) {
	if err := jsonline.Check(line); err != nil {
		return Frame{}, err
	}
	method := jsonline.Unquote(p.Method.Of(line))
	switch {
	case !ok:
		return Frame{}, errors.New("not an object")
	case !p.Clash.Absent():
		return Frame{}, fmt.Errorf("duplicate or misspelt field %q, or too many fields", jsonline.Unquote(p.Clash.Of(line)))
	case method == nil && !p.Method.Absent():
		return Frame{}, errors.New("method must be a string")
	}
	return Frame{ID: p.ID.Of(line), Method: string(method), Params: p.Params.Of(line)}, nil
}
