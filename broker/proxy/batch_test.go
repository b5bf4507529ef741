package proxy

import (
	"bytes"
	"testing"
)

// Each member of a batch is handled separately.
func TestSplitBatch(t *testing.T) {
	decide := func(b []byte) ([]byte, bool) {
		switch {
		case bytes.Contains(b, []byte("drop")):
			return nil, false
		case bytes.Contains(b, []byte("change")):
			return []byte(`{"changed":1}`), false
		}
		return nil, true
	}
	for in, want := range map[string]string{
		`{"a":1}`: `{"a":1}`, `{"drop":1}`: ``, `{"change":1}`: `{"changed":1}`,
		` [ {"a":1} , {"b":2} ] `:              ` [ {"a":1} , {"b":2} ] `,
		`[{"drop":1},{"b":2}]`:                 `[{"b":2}]`,
		`[{"a":1}, {"drop":1}, {"b":2}]`:       `[{"a":1},{"b":2}]`,
		`[{"a":1},{"b":2},{"drop":1}]`:         `[{"a":1},{"b":2}]`,
		`[{"drop":1},{"drop":2}]`:              ``,
		`[{"change":1},{"drop":2},5,{"c":3} ]`: `[{"changed":1},5,{"c":3}]`,
		`[]`:                                   `[]`,
		`[{"a":1},`:                            `[{"a":1},`,
		`[{"a":1}]]`:                           `[{"a":1}]]`,
	} {
		out, pass := splitBatch([]byte(in), decide, func() { t.Errorf("%s: too many", in) })
		if pass {
			out = []byte(in)
		}
		if string(out) != want {
			t.Errorf("%s: %q, want %q", in, out, want)
		}
	}
}
