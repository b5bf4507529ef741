package wire

import (
	"bytes"
	"encoding/json"
	"testing"
)

// A frame that ReadFrame accepts is JSON, and encoding/json reads the same id, method and params.
func FuzzFrame(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"files/read","params":{"path":"a"}}`, `{"id":"a","Method":"x","method":"y"}`, `{"id":null,"result":{}}`,
		`{"jsonrpc":"2.0","id":"rootsfs:1","result":{"a":"}"}}`, `{"jsonrpc":"2.0","id":"x","result":{},"result":{}}`, `{"\u006dethod":"escaped"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var fields map[string]json.RawMessage
		valid := json.Unmarshal(line, &fields)
		if fr, err := ReadFrame(line); err == nil {
			var method string
			_ = json.Unmarshal(fields["method"], &method)
			if valid != nil || method != fr.Method || !bytes.Equal(fields["id"], fr.ID) || !bytes.Equal(fields["params"], fr.Params) {
				t.Errorf("%q: read as %+v; encoding/json reads %q, %v", line, fr, fields, valid)
			}
		}
	})
}
