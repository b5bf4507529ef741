package client

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rootsfs/rootsfs/broker/wire"
)

// The two large answers, contents and listings, are read by hand where they are
// written as our host writes them. Whatever else comes is left to encoding/json,
// so that the result and its errors are the same either way.

var errNotBase64 = errors.New("the content is not base64")

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
	n, err := base64.StdEncoding.Decode(data, text)
	if err != nil || base64.StdEncoding.EncodedLen(n) != len(text) {
		return nil, r, false
	}
	const none = "\x00" // a content that stands there a second time replaces it
	r.Content = none
	if json.Unmarshal(append([]byte("{"), rest[1:]...), &r) != nil || r.Content != none {
		return nil, wire.ReadResult{}, false
	}
	r.Content = ""
	return data[:n], r, true
}

// decodeList reads a ListResult.
func decodeList(raw []byte) (r wire.ListResult, err error) {
	s := scanner{rest: raw}
	if r, ok := s.list(); ok {
		return r, nil
	}
	r = wire.ListResult{}
	return r, json.Unmarshal(raw, &r)
}

// scanner reads JSON in the one spelling that our host uses.
type scanner struct{ rest []byte }

// lit passes over a text, if it stands there.
func (s *scanner) lit(text string) bool {
	if len(s.rest) >= len(text) && string(s.rest[:len(text)]) == text {
		s.rest = s.rest[len(text):]
		return true
	}
	return false
}

// str reads the rest of a string up to its quote; escapes are not for it, nor
// what no JSON string holds.
func (s *scanner) str() (text []byte, ok bool) {
	i := bytes.IndexByte(s.rest, '"')
	if i < 0 {
		return nil, false
	}
	text = s.rest[:i]
	ascii := true
	for _, c := range text {
		if c < ' ' || c == '\\' {
			return nil, false
		}
		ascii = ascii && c < utf8.RuneSelf
	}
	if !ascii && !utf8.Valid(text) {
		return nil, false
	}
	s.rest = s.rest[i+1:]
	return text, true
}

// num reads a number that is not negative.
func (s *scanner) num() (n int64, ok bool) {
	i := 0
	for i < len(s.rest) && '0' <= s.rest[i] && s.rest[i] <= '9' {
		i++
	}
	if i == 0 || i > 1 && s.rest[0] == '0' {
		return 0, false
	}
	n, err := strconv.ParseInt(string(s.rest[:i]), 10, 64)
	s.rest = s.rest[i:]
	return n, err == nil
}

func (s *scanner) list() (r wire.ListResult, ok bool) {
	if !s.lit(`{"entries":[`) {
		return r, false
	}
	r.Entries = make([]wire.Entry, 0, min(len(s.rest)/minEntry, maxGuess))
	if !s.lit(`]`) {
		for {
			n := len(r.Entries)
			r.Entries = append(r.Entries, wire.Entry{})
			if !s.entry(&r.Entries[n]) {
				return r, false
			}
			if s.lit(`]`) {
				break
			}
			if !s.lit(`,`) {
				return r, false
			}
		}
	}
	if s.lit(`,"nextCursor":"`) {
		text, ok := s.str()
		if !ok {
			return r, false
		}
		r.NextCursor = string(text)
	}
	return r, s.lit(`}`) && len(s.rest) == 0
}

const (
	minEntry = 60   // bytes that an entry has at least, nearly
	maxGuess = 1000 // entries for which room is made before they are seen
)

func (s *scanner) entry(e *wire.Entry) bool {
	if !s.lit(`{"name":"`) {
		return false
	}
	name, ok := s.str()
	if !ok || !s.lit(`,"path":"`) {
		return false
	}
	path, ok := s.str()
	if !ok || !s.lit(`,"type":"`) {
		return false
	}
	e.Path = string(path)
	if strings.HasSuffix(e.Path, string(name)) {
		e.Name = e.Path[len(e.Path)-len(name):] // one string for both
	} else {
		e.Name = string(name)
	}
	typ, ok := s.str()
	if !ok {
		return false
	}
	switch string(typ) {
	case wire.TypeFile:
		e.Type = wire.TypeFile
	case wire.TypeDirectory:
		e.Type = wire.TypeDirectory
	default:
		e.Type = string(typ)
	}
	if s.lit(`,"size":`) {
		if e.Size, ok = s.num(); !ok {
			return false
		}
	}
	for _, f := range []struct {
		key string
		to  *string
	}{{`,"mtime":"`, &e.MTime}, {`,"rawName":"`, &e.RawName}, {`,"rawPath":"`, &e.RawPath}, {`,"mode":"`, &e.Mode}} {
		if s.lit(f.key) {
			text, ok := s.str()
			if !ok {
				return false
			}
			*f.to = string(text)
		}
	}
	return s.lit(`}`)
}
