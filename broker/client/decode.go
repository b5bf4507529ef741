package client

import (
	"bytes"
	"encoding/base64"
	"errors"

	"github.com/go-json-experiment/json"
	fastbase64 "github.com/segmentio/asm/base64" // the SDK's JSON library's; several times as fast where there is AVX2

	"github.com/rootsfs/rootsfs/broker/wire"
)

var errNotBase64 = errors.New("the content is not base64")

// contentHead is how our host begins a ReadResult, and maxRest bounds what is copied of
// what follows the content.
const (
	contentHead = `{"content":"`
	maxRest     = 4 << 10
)

// decodeRead reads a ReadResult whose content is base64. The bytes are in data, Content is
// left empty. errNotBase64 is the one error that is not of the JSON.
func decodeRead(raw []byte) (data []byte, r wire.ReadResult, err error) {
	if data, r, ok := decodeReadFast(raw); ok {
		return data, r, nil
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, r, err
	}
	if data, err = base64.StdEncoding.DecodeString(r.Content); err != nil {
		return nil, r, errNotBase64
	}
	r.Content = ""
	return data, r, nil
}

// decodeReadFast decodes a content where it lies, if it is written as our host writes it.
func decodeReadFast(raw []byte) (data []byte, r wire.ReadResult, ok bool) {
	text, ok := bytes.CutPrefix(raw, []byte(contentHead))
	end := bytes.IndexByte(text, '"')
	if !ok || end < 0 {
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
	const none = "\x00" // a second content would take its place
	r.Content = none
	if json.Unmarshal(append([]byte("{"), rest[1:]...), &r) != nil || r.Content != none {
		return nil, wire.ReadResult{}, false
	}
	r.Content = ""
	return data[:n], r, true
}
