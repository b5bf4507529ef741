package client

import (
	"encoding/base64"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/broker/wire"
)

// slowRead is decodeRead without its fast path.
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
	text string
	fast bool // our host writes it like that
}{
	{`{"content":"aGVsbG8=","size":5,"mimeType":"text/plain","encoding":"base64","eof":true,"nextOffset":5,"etag":"x","mtime":"2026-01-02T03:04:05Z"}`, true},
	{`{"content":"","size":0,"mimeType":"","eof":true,"nextOffset":0}`, true},
	{`{"content":"aGVsbG8=","size":5,"unknown":[1,{"content":"no"}]}`, true},
	{`{"content":"aGVsbG8=","content":"eA=="}`, false},
	{`{"content":"aGVsbG8=","CONTENT":"eA=="}`, false},
	{`{"content":"aGVsbG8=","content":""}`, false},
	{`{"content":"aGVsbG8=","content":null}`, true},
	{`{"content":"aGVsbG8="}`, false},
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
	{`{"content":"aGVsbG8=", "size":5}`, false},
	{`{"size":5,"content":"aGVsbG8="}`, false},
	{`{"content":null}`, false},
	{`null`, false}, {`[]`, false}, {``, false},
}

func sameRead(t *testing.T, raw []byte) {
	data, r, err := decodeRead(raw)
	wantData, want, wantErr := slowRead(raw)
	if string(data) != string(wantData) || r != want || !reflect.DeepEqual(err, wantErr) {
		t.Errorf("%q: %q %+v %v, want %q %+v %v", raw, data, r, err, wantData, want, wantErr)
	}
}

func TestDecodeRead(t *testing.T) {
	for _, c := range reads {
		sameRead(t, []byte(c.text))
		if _, _, ok := decodeReadFast([]byte(c.text)); ok != c.fast {
			t.Errorf("%q: by hand: %v", c.text, ok)
		}
	}
}

func FuzzDecodeRead(f *testing.F) {
	for _, c := range reads {
		f.Add([]byte(c.text))
	}
	f.Fuzz(sameRead)
}

var lists = []struct {
	text string
	fast bool
}{
	{`{"entries":[]}`, true},
	{`{"entries":[{"name":"a","path":"p/a","type":"file","size":12,"mtime":"2026-01-02T03:04:05Z"},{"name":"d","path":"p/d","type":"directory"}],"nextCursor":"abc"}`, true},
	{`{"entries":[{"name":"ä","path":"p/ä","type":"symlink","size":0,"rawName":"eA==","rawPath":"eA==","mode":"ro"}]}`, true},
	{`{"entries":[{"name":"b","path":"other","type":"odd"}]}`, true},
	{`{"entries":[{"name":"a\n","path":"p/a\n","type":"file"}]}`, false},
	{`{"entries":[{"name":"` + "\xff" + `","path":"p","type":"file"}]}`, false},
	{`{"entries":[{"name":"` + "\x01" + `","path":"p","type":"file"}]}`, false},
	{`{"entries":[{"name":"a","path":"p/a","type":"file","size":-1}]}`, false},
	{`{"entries":[{"name":"a","path":"p/a","type":"file","size":1.5}]}`, false},
	{`{"entries":[{"name":"a","path":"p/a","type":"file","size":01}]}`, false},
	{`{"entries":[{"name":"a","path":"p/a","type":"file","size":9223372036854775808}]}`, false},
	{`{"entries":[{"name":"a","path":"p/a","type":"file"},]}`, false},
	{`{"entries":[{"name":"a","path":"p/a","type":"file","name":"b"}]}`, false},
	{`{"entries":[],"entries":[]}`, false},
	{`{"entries":[],"nextCursor":null}`, false},
	{`{"entries":null}`, false}, {`{}`, false}, {`{"entries":[]}x`, false}, {`{"entries":[`, false}, {``, false},
}

func sameList(t *testing.T, raw []byte) {
	r, err := decodeList(raw)
	var want wire.ListResult
	wantErr := json.Unmarshal(raw, &want)
	if !reflect.DeepEqual(r, want) || !reflect.DeepEqual(err, wantErr) {
		t.Errorf("%q: %+v %v, want %+v %v", raw, r, err, want, wantErr)
	}
}

func TestDecodeList(t *testing.T) {
	for _, c := range lists {
		sameList(t, []byte(c.text))
		s := scanner{rest: []byte(c.text)}
		if _, ok := s.list(); ok != c.fast {
			t.Errorf("%q: by hand: %v", c.text, ok)
		}
	}
	// More than room is made for at once.
	many := wire.ListResult{Entries: make([]wire.Entry, 2*maxGuess)}
	for i := range many.Entries {
		many.Entries[i] = wire.Entry{Name: strings.Repeat("n", i%50), Path: strings.Repeat("p", i%40), Type: wire.TypeFile, Size: int64(i)}
	}
	raw, err := json.Marshal(many)
	if err != nil {
		t.Fatal(err)
	}
	sameList(t, raw)
}

func FuzzDecodeList(f *testing.F) {
	for _, c := range lists {
		f.Add([]byte(c.text))
	}
	f.Fuzz(sameList)
}
