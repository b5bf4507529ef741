package client

import (
	"encoding/base64"
	"errors"

	"github.com/go-json-experiment/json"
	fastbase64 "github.com/segmentio/asm/base64" // several times as fast as encoding/base64 where there is AVX2

	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
	"github.com/rootsfs/rootsfs/broker/wire"
)

var errNotBase64 = errors.New("the content is not base64")

// decodeRead reads a ReadResult whose content is base64. data has the decoded bytes, and
// Content is left empty. Every error but errNotBase64 is about the JSON.
func decodeRead(raw []byte) (data []byte, r wire.ReadResult, err error) {
	if data, r, ok := decodeInPlace(raw); ok {
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

// decodeInPlace decodes the content directly from raw, and the other members from a copy of raw
// with an empty content. It reports false if anything is wrong or content is not the first member.
// decodeRead then decodes the message itself.
func decodeInPlace(raw []byte) (data []byte, r wire.ReadResult, ok bool) {
	w, _ := jsonline.Object(raw, 0)
	if !w.Next() || !w.Is("content") || raw[w.Val.From] != '"' {
		return nil, r, false
	}
	// The copy keeps the member content, with an empty text, so that the decoder detects a second
	// member of this name.
	if json.Unmarshal(jsonline.Replace(raw, jsonline.Cut{Span: w.Val, With: []byte(`""`)}), &r) != nil {
		return nil, wire.ReadResult{}, false
	}
	// A text with escapes is not base64, so the base64 decoder refuses it. That decoder skips line
	// ends, but a JSON string cannot contain them, and the check of the length would find them.
	text := raw[w.Val.From+1 : w.Val.To-1]
	data = make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := fastbase64.StdEncoding.Decode(data, text)
	if err != nil || base64.StdEncoding.EncodedLen(n) != len(text) {
		return nil, wire.ReadResult{}, false
	}
	return data[:n], r, true
}
