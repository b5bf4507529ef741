package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"testing/iotest"
	"unicode/utf8"
)

// What ReadFrame reads is JSON, and means what encoding/json says that it means;
// what CutResult cuts out is what it says, where it is JSON at all.
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
				t.Errorf("%q: read as %+v; of encoding/json: %q %v", line, fr, fields, valid)
			}
		}
		id, result, ok := CutResult(line)
		if !ok || valid != nil || !json.Valid(result) || !utf8.Valid(line) {
			return
		}
		var text string
		if json.Unmarshal(fields["id"], &text) != nil || text != string(id) || !bytes.Equal(bytes.TrimSpace(fields["result"]), bytes.TrimSpace(result)) {
			t.Errorf("%q: cut into %q and %q; of encoding/json: %q", line, id, result, fields)
		}
	})
}

// Lines are those of the stream, up to the limit, however it comes in.
func FuzzReadLine(f *testing.F) {
	f.Add([]byte("one\ntwo\n\nhalf"), uint16(3))
	f.Add(bytes.Repeat([]byte("long "), 20), uint16(16))
	f.Fuzz(func(t *testing.T, stream []byte, limit uint16) {
		for _, in := range []io.Reader{bytes.NewReader(stream), iotest.OneByteReader(bytes.NewReader(stream))} {
			r, rest := bufio.NewReaderSize(in, 16), stream
			for {
				line, err := ReadLine(r, nil, int(limit))
				want, more, whole := bytes.Cut(rest, []byte("\n"))
				if !whole { // half a line is none
					if !errors.Is(err, io.EOF) {
						t.Errorf("%q: %q, %v at the end", stream, line, err)
					}
					break
				}
				want, rest = rest[:len(want)+1], more
				switch long := len(want) > int(limit); {
				case long != errors.Is(err, ErrTooLong), !long && err != nil:
					t.Fatalf("%q: %q of %d bytes, limit %d: %v", stream, line, len(want), limit, err)
				case long && !bytes.HasPrefix(want, line), !long && !bytes.Equal(line, want):
					t.Fatalf("%q: %q, want %q", stream, line, want)
				}
			}
		}
	})
}
