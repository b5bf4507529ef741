package client

import (
	"encoding/base64"
	"fmt"
	"reflect"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/rootsfs/rootsfs/broker/wire"
)

// slowRead is decodeRead without decodeInPlace.
func slowRead(raw []byte) (data []byte, r wire.ReadResult, err error) {
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, r, err
	}
	if data, err = base64.StdEncoding.DecodeString(r.Content); err != nil {
		return nil, r, errNotBase64
	}
	r.Content = ""
	return data, r, nil
}

var reads = []struct {
	text    string
	inPlace bool
}{
	{`{"content":"aGVsbG8=","size":5,"mimeType":"text/plain","encoding":"base64","eof":true,"nextOffset":5,"etag":"x","mtime":"2026-01-02T03:04:05Z"}`, true},
	{`{"content":"","size":0,"mimeType":"","eof":true,"nextOffset":0}`, true},
	{`{"content":"","size":0,"mimeType":"","eof":false,"nextOffset":0,"etag":"a\nb"}`, true},
	{`{"content":"","size":0,"mimeType":"","eof":false,"nextOffset":0} `, true},
	{`{"content":"aGVsbG8=","size":5,"unknown":[1,{"content":"no"}]}`, true},
	{`{"content":"aGVsbG8=","content":"eA=="}`, false},
	{`{"content":"aGVsbG8=","CONTENT":"eA=="}`, true},
	{`{"content":"aGVsbG8=","content":""}`, false},
	{`{"content":"aGVsbG8=","content":null}`, false},
	{`{"content":"aGVsbG8="}`, true},
	{`{"content":"aGVsbG8=",}`, false},
	{`{"content":"aGVsbG8=","size":5},"error":{}`, false},
	{`{"content":"aGVsbG8=","size":5`, false},
	{`{"content":"aGVs\/bG8","size":5}`, false},
	{`{"content":"aGVs\"bG8","size":5}`, false},
	{`{"content":"aGVs` + "\r" + `bG8=","size":5}`, false},
	{`{"content":"aGVs` + "\n" + `bG8=","size":5}`, false},
	{`{"content":"aGVs` + "\xff" + `bG8=","size":5}`, false},
	{`{"content":"aGVsbG8","size":5}`, false},
	{`{"content":"aGVsbG8=","size":"5"}`, false},
	{`{"content":"aGVsbG8=", "size":5}`, true},
	{`{"size":5,"content":"aGVsbG8="}`, false},
	{`{"content":null}`, false},
	{`null`, false}, {`[]`, false}, {``, false},
}

// compareWithSlowRead tests that decodeRead and slowRead return the same for raw.
func compareWithSlowRead(t *testing.T, raw []byte) {
	data, r, err := decodeRead(raw)
	wantData, want, wantErr := slowRead(raw)
	if string(data) != string(wantData) || r != want || !reflect.DeepEqual(err, wantErr) {
		t.Errorf("%q: %q %+v %v, want %q %+v %v", raw, data, r, err, wantData, want, wantErr)
	}
}

func TestDecodeRead(t *testing.T) {
	for _, c := range reads {
		compareWithSlowRead(t, []byte(c.text))
		if _, _, ok := decodeInPlace([]byte(c.text)); ok != c.inPlace {
			t.Errorf("%q: in place: %v", c.text, ok)
		}
	}
}

func FuzzDecodeRead(f *testing.F) {
	for _, c := range reads {
		f.Add([]byte(c.text))
	}
	f.Fuzz(compareWithSlowRead)
}

// The faster base64 decoder refuses the same texts as the decoder of the standard library, and
// decodes all others to the same bytes. The test tries each byte in each place of texts of several
// lengths, some of them long enough for vector instructions.
func TestFastBase64(t *testing.T) {
	data := make([]byte, 100)
	for i := range data {
		data[i] = byte(i * 37)
	}
	for _, n := range []int{0, 1, 2, 3, 33, 34, 48, 99, 100} {
		text := []byte(base64.StdEncoding.EncodeToString(data[:n]))
		for i := range text {
			was := text[i]
			for c := range 256 {
				text[i] = byte(c)
				compareWithSlowRead(t, fmt.Appendf(nil, `{"content":"%s","size":1,"mimeType":"","eof":true,"nextOffset":1}`, text))
			}
			text[i] = was
		}
	}
}
