package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode/utf8"
)

// Decode reads the JSON object b into v, strictly: every key must be a field of
// v in its exact spelling and stand there once, every value must have the
// field's type, and the text must be UTF-8. encoding/json by itself takes keys
// in any case, lets the last of several win and turns bad UTF-8 into U+FFFD,
// each of which would let two readers of one request see different paths. Empty
// and null mean an empty object. The error is one line for a person.
func Decode(b []byte, v any) error {
	b = bytes.TrimSpace(b)
	if len(b) == 0 || bytes.Equal(b, []byte("null")) {
		b = []byte("{}")
	}
	if !utf8.Valid(b) {
		return errors.New("params are not UTF-8")
	}
	if err := exact(b, reflect.TypeOf(v).Elem()); err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		var te *json.UnmarshalTypeError
		if errors.As(err, &te) {
			return fmt.Errorf("%s must be %s, not %s", te.Field, described(te.Type), te.Value)
		}
		return fmt.Errorf("params: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if dec.More() {
		return errors.New("params: something follows the value")
	}
	return nil
}

// exact checks the keys of the outermost object: each a field of t by its exact
// name, and none twice. It also refuses lone surrogates, which decode to U+FFFD.
func exact(b []byte, t reflect.Type) error {
	known := map[string]bool{}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name != "" && name != "-" {
			known[name] = true
		}
	}
	keys, err := Keys(b)
	if err != nil {
		return err
	}
	for _, k := range keys {
		if !known[k] {
			return fmt.Errorf("params: unknown field %q", k)
		}
	}
	if loneSurrogate(b) {
		return errors.New("params: a \\u escape is half of a surrogate pair")
	}
	return nil
}

// Keys returns the keys of a JSON object, in their order, and refuses one that
// stands there twice.
func Keys(b []byte) ([]string, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	tok, err := dec.Token()
	if err != nil {
		return nil, fmt.Errorf("params: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if tok != json.Delim('{') {
		return nil, errors.New("params must be an object")
	}
	var keys []string
	seen := map[string]bool{}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("params: %s", strings.TrimPrefix(err.Error(), "json: "))
		}
		k, _ := tok.(string)
		if seen[k] {
			return nil, fmt.Errorf("params: the field %q stands there twice", k)
		}
		seen[k] = true
		keys = append(keys, k)
		var skip json.RawMessage
		if err := dec.Decode(&skip); err != nil {
			return nil, fmt.Errorf("params: %s", strings.TrimPrefix(err.Error(), "json: "))
		}
	}
	if _, err := dec.Token(); err != nil {
		return nil, errors.New("params: the object does not end")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("params: something follows the object")
	}
	return keys, nil
}

// loneSurrogate reports a \ud800 to \udfff escape that is not half of a pair.
func loneSurrogate(b []byte) bool {
	for {
		i := bytes.IndexByte(b, '\\')
		if i < 0 || i+1 >= len(b) {
			return false
		}
		if b[i+1] != 'u' {
			b = b[i+2:]
			continue
		}
		r, ok := hex4(b[i+2:])
		b = b[min(len(b), i+6):]
		switch {
		case !ok:
			return false // the decoder refuses it
		case r < 0xd800 || r > 0xdfff:
			continue
		case r > 0xdbff:
			return true
		}
		if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
			return true
		}
		if low, ok := hex4(b[2:]); !ok || low < 0xdc00 || low > 0xdfff {
			return true
		}
		b = b[6:]
	}
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

func described(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "an integer"
	case reflect.String:
		return "a string"
	case reflect.Slice:
		return "a list"
	}
	return "an object"
}
