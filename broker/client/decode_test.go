package client

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
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
	{`{"content":"","size":0,"mimeType":"","eof":false,"nextOffset":0,"etag":"a\nb"}`, true},
	{`{"content":"","size":0,"mimeType":"","eof":false,"nextOffset":0} `, true},
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
		ok := plain([]byte(c.text))
		if ok {
			s := scanner{text: c.text}
			_, ok = s.list()
		}
		if ok != c.fast {
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

// A page's room is nobody else's while its entries are handed on, and what was
// handed on stays.
func TestYieldEntries(t *testing.T) {
	page := func(name string) []wire.Entry {
		r, err := decodeList([]byte(`{"entries":[{"name":"` + name + `1","path":"p","type":"file"},{"name":"` + name + `2","path":"p","type":"file"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		return r.Entries
	}
	var got []wire.Entry
	for range 3 {
		whole := yieldEntries(page("outer"), func(e wire.Entry, _ error) bool {
			got = append(got, e)
			return !yieldEntries(page("inner"), func(e wire.Entry, _ error) bool {
				got = append(got, e)
				return false
			})
		})
		if !whole {
			t.Error("the iteration was not whole")
		}
	}
	var listed []string
	for _, e := range got {
		listed = append(listed, e.Name)
	}
	if s, want := strings.Join(listed, " "), strings.Repeat("outer1 inner1 outer2 inner1 ", 3); s+" " != want {
		t.Errorf("handed on: %s, want %s", s, want)
	}
}

func FuzzDecodeList(f *testing.F) {
	for _, c := range lists {
		f.Add([]byte(c.text))
	}
	f.Fuzz(sameList)
}

// The decoder that is faster refuses what the standard library's refuses, and
// returns the same otherwise: each byte in each place of a text long enough for
// its vectors.
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
				sameRead(t, fmt.Appendf(nil, `{"content":"%s","size":1,"mimeType":"","eof":true,"nextOffset":1}`, text))
			}
			text[i] = was
		}
	}
}

// Each byte in each place is seen.
func TestPlain(t *testing.T) {
	text := []byte(strings.Repeat("~ }", 9))
	for i := range text {
		was := text[i]
		for c := range 256 {
			text[i] = byte(c)
			if got, want := plain(text), c >= ' ' && c != '\\' && c < 0x80; got != want {
				t.Errorf("%q: %v", text, got)
			}
		}
		text[i] = was
	}
	for text, want := range map[string]bool{"": true, "ä\u2028\U0001F600 12345678": true, "\xc3": false, "\xed\xa0\x80": false} {
		if plain([]byte(text)) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}
