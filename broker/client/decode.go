package client

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	fastbase64 "github.com/segmentio/asm/base64" // the SDK's JSON library's; several times as fast where there is AVX2

	"github.com/rootsfs/rootsfs/broker/wire"
)

// The two large answers, contents and listings, are read by hand where they are
// written as our host writes them. Whatever else comes is left to encoding/json,
// so that the result and its errors are the same either way.

var errNotBase64 = errors.New("the content is not base64")

func malformed(method, name string, err error) error {
	return broken(method, name, "the client's result is malformed: "+err.Error())
}

const contentHead = `{"content":"`

// decodeRead reads a ReadResult whose content is base64. The bytes are in data,
// Content is left empty. errNotBase64 is the one error that is not of the JSON.
func decodeRead(raw []byte) (data []byte, r wire.ReadResult, err error) {
	if data, r, ok := decodeReadFast(raw); ok {
		return data, r, nil
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, r, err
	}
	data, err = base64.StdEncoding.DecodeString(r.Content)
	if err != nil {
		return nil, r, errNotBase64
	}
	r.Content = ""
	return data, r, nil
}

// maxRest bounds what is copied of what follows the content.
const maxRest = 4 << 10

func decodeReadFast(raw []byte) (data []byte, r wire.ReadResult, ok bool) {
	text, ok := bytes.CutPrefix(raw, []byte(contentHead))
	if !ok {
		return nil, r, false
	}
	end := bytes.IndexByte(text, '"')
	if end < 0 {
		return nil, r, false
	}
	text, rest := text[:end], text[end+1:]
	if len(rest) < 2 || len(rest) > maxRest || rest[0] != ',' || rest[1] != '"' {
		return nil, r, false
	}
	// An escape, and a quote behind one, are no base64; line ends, which the
	// decoder passes over and no JSON string holds, show in the length.
	data = make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := fastbase64.StdEncoding.Decode(data, text)
	if err != nil || base64.StdEncoding.EncodedLen(n) != len(text) {
		return nil, r, false
	}
	if plain(rest) {
		s := scanner{text: string(rest)}
		if s.readRest(&r) {
			return data[:n], r, true
		}
	}
	const none = "\x00" // a content that stands there a second time replaces it
	r = wire.ReadResult{Content: none}
	if json.Unmarshal(append([]byte("{"), rest[1:]...), &r) != nil || r.Content != none {
		return nil, wire.ReadResult{}, false
	}
	r.Content = ""
	return data[:n], r, true
}

// decodeList reads a ListResult.
func decodeList(raw []byte) (r wire.ListResult, err error) {
	if plain(raw) {
		s := scanner{text: string(raw)}
		if r, ok := s.list(); ok {
			return r, nil
		}
	}
	return r, json.Unmarshal(raw, &r)
}

// plain reports whether no string in a JSON text can have an escape, or a byte
// that none may have. It is looked at once, because most texts are plain as a
// whole.
func plain(text []byte) bool {
	if bytes.IndexByte(text, '\\') >= 0 || !utf8.Valid(text) {
		return false
	}
	const ones = 0x0101010101010101
	for ; len(text) >= 8; text = text[8:] {
		x := binary.LittleEndian.Uint64(text)
		if (x-' '*ones)&^x&(0x80*ones) != 0 { // one of the eight is below a space
			return false
		}
	}
	for _, c := range text {
		if c < ' ' {
			return false
		}
	}
	return true
}

// scanner reads plain JSON in the one spelling that our host uses. The strings
// it returns are parts of text. It moves a number and not a string, which costs
// the collector's write barrier.
type scanner struct {
	text string
	at   int
}

// lit passes over a text, if it stands there.
func (s *scanner) lit(text string) bool {
	end := s.at + len(text)
	if end > len(s.text) || s.text[s.at:end] != text {
		return false
	}
	s.at = end
	return true
}

// str reads the rest of a string up to its quote.
func (s *scanner) str() (text string, ok bool) {
	n := strings.IndexByte(s.text[s.at:], '"')
	if n < 0 {
		return "", false
	}
	from := s.at
	s.at += n + 1
	return s.text[from : from+n], true
}

// last passes over the last brace, if nothing follows it.
func (s *scanner) last() bool { return s.text[s.at:] == "}" }

// num reads a number that is not negative.
func (s *scanner) num() (n int64, ok bool) {
	from := s.at
	for s.at < len(s.text) && '0' <= s.text[s.at] && s.text[s.at] <= '9' {
		s.at++
	}
	digits := s.text[from:s.at]
	if digits == "" || len(digits) > 1 && digits[0] == '0' {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, err == nil
}

// field reads a string that may be left out.
func (s *scanner) field(key string, to *string) (ok bool) {
	if !s.lit(key) {
		return true
	}
	*to, ok = s.str()
	return ok
}

// readRest reads a ReadResult behind its content.
func (s *scanner) readRest(r *wire.ReadResult) (ok bool) {
	if !s.lit(`,"size":`) {
		return false
	}
	if r.Size, ok = s.num(); !ok || !s.lit(`,"mimeType":"`) {
		return false
	}
	if r.MimeType, ok = s.str(); !ok || !s.field(`,"encoding":"`, &r.Encoding) {
		return false
	}
	if r.EOF = s.lit(`,"eof":true`); !r.EOF && !s.lit(`,"eof":false`) || !s.lit(`,"nextOffset":`) {
		return false
	}
	if r.Next, ok = s.num(); !ok {
		return false
	}
	return s.field(`,"etag":"`, &r.ETag) && s.field(`,"mtime":"`, &r.MTime) && s.last()
}

func (s *scanner) list() (r wire.ListResult, ok bool) {
	if !s.lit(`{"entries":[`) {
		return r, false
	}
	r.Entries = []wire.Entry{}
	if !s.lit(`]`) {
		for {
			var e wire.Entry
			from := s.at
			if !s.entry(&e) {
				return r, false
			}
			if len(r.Entries) == 0 { // room as if the others were like it
				r.Entries = newEntries(min((len(s.text)-from)/(s.at-from)+1, maxGuess))
			}
			r.Entries = append(r.Entries, e)
			if s.lit(`]`) {
				break
			}
			if !s.lit(`,`) {
				return r, false
			}
		}
	}
	return r, s.field(`,"nextCursor":"`, &r.NextCursor) && s.last()
}

// maxGuess is how many entries room is made for before they are seen.
const maxGuess = 1000

// entries are used again: those of a page are as much garbage as its text.
var entries sync.Pool // of *[]wire.Entry

// newEntries makes room for n.
func newEntries(n int) []wire.Entry {
	if room, ok := entries.Get().(*[]wire.Entry); ok && cap(*room) >= n {
		return *room
	}
	return make([]wire.Entry, 0, n)
}

// yieldEntries hands on the entries of a page, each a copy, and gives back their
// room. It reports false when no more are wanted.
func yieldEntries(page []wire.Entry, yield func(wire.Entry, error) bool) bool {
	defer func() {
		if cap(page) <= maxGuess+1 {
			clear(page) // of its strings
			room := page[:0]
			entries.Put(&room)
		}
	}()
	for _, e := range page {
		if !yield(e, nil) {
			return false
		}
	}
	return true
}

func (s *scanner) entry(e *wire.Entry) (ok bool) {
	if !s.lit(`{"name":"`) {
		return false
	}
	if e.Name, ok = s.str(); !ok || !s.lit(`,"path":"`) {
		return false
	}
	if e.Path, ok = s.str(); !ok || !s.lit(`,"type":"`) {
		return false
	}
	if e.Type, ok = s.str(); !ok {
		return false
	}
	if s.lit(`,"size":`) {
		if e.Size, ok = s.num(); !ok {
			return false
		}
	}
	return s.field(`,"mtime":"`, &e.MTime) && s.field(`,"rawName":"`, &e.RawName) && s.field(`,"rawPath":"`, &e.RawPath) &&
		s.field(`,"mode":"`, &e.Mode) && s.lit(`}`)
}
