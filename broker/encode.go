package broker

import (
	"bytes"
	"encoding/json"
	"slices"
	"sync"

	"github.com/segmentio/asm/base64" // several times as fast as the standard library's where there is AVX2

	"github.com/rootsfs/rootsfs/broker/wire"
)

// frames are reused: a megabyte's answer is several of garbage otherwise.
var frames = sync.Pool{New: func() any { b := make([]byte, 0, 4096); return &b }}

const keepFrame = 2 << 20 // larger ones are left to the collector

func newFrame() []byte { return (*frames.Get().(*[]byte))[:0] }

func release(frame []byte) {
	if cap(frame) <= keepFrame {
		frames.Put(&frame)
	}
}

// appender is a result that writes itself: those with contents.
type appender interface{ appendJSON(b []byte) []byte }

// encodeReply makes the one frame of an answer. It is encoded once, here.
func encodeReply(id []byte, result any, err error) []byte {
	b := wire.AppendReply(newFrame(), id)
	if err != nil {
		b = append(b, `,"error":`...)
		return append(appendValue(b, wireError(err)), '}')
	}
	b = wire.AppendResult(b)
	if a, ok := result.(appender); ok {
		return append(a.appendJSON(b), '}')
	}
	return append(appendValue(b, result), '}')
}

func encodeNotification(method string, params any) []byte {
	b := append(newFrame(), `{"jsonrpc":"2.0","method":`...)
	b = appendValue(b, method)
	if params != nil {
		b = append(b, `,"params":`...)
		b = appendValue(b, params)
	}
	return append(b, '}')
}

// appendValue encodes without the escaping that is for web pages.
func appendValue(b []byte, v any) []byte {
	w := bytes.NewBuffer(b)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return append(b, "null"...) // our own types encode
	}
	return bytes.TrimSuffix(w.Bytes(), []byte("\n"))
}

// readResult is a wire.ReadResult whose content is still bytes.
type readResult struct {
	wire.ReadResult
	data []byte
}

// afterContent is more than the other fields and the frame's end usually take.
const afterContent = 512

func (r *readResult) appendJSON(b []byte) []byte {
	b = append(b, `{"content":`...)
	if r.Encoding == wire.Base64 {
		// With room for what follows, so that it is not copied once more.
		n := base64.StdEncoding.EncodedLen(len(r.data))
		b = append(slices.Grow(b, n+afterContent), '"')
		base64.StdEncoding.Encode(b[len(b):len(b)+n], r.data)
		b = append(b[:len(b)+n], '"')
	} else {
		b = wire.AppendString(b, r.data)
	}
	rest := appendValue(nil, &r.ReadResult) // {"content":"","size":...}
	const empty = `{"content":""`
	return append(b, rest[len(empty):]...)
}
