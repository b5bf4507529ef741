package broker

import (
	"slices"

	"github.com/segmentio/asm/base64" // several times as fast as the standard library's where there is AVX2

	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
	"github.com/rootsfs/rootsfs/broker/wire"
)

// appender is a result that appends its own JSON. readResult and listResult implement it.
type appender interface{ appendJSON(b []byte) []byte }

// encodeReply returns the frame of an answer, in a buffer of jsonline.Frames.
func encodeReply(id []byte, result any, err error) []byte {
	if err != nil {
		return jsonline.AppendError(jsonline.Frames.Get(), id, wireError(err))
	}
	b := jsonline.AppendResult(jsonline.AppendReply(jsonline.Frames.Get(), id))
	if a, ok := result.(appender); ok {
		return append(a.appendJSON(b), '}')
	}
	return append(jsonline.AppendValue(b, result), '}')
}

// readResult is a wire.ReadResult whose content is still bytes.
type readResult struct {
	wire.ReadResult
	data []byte
}

// afterContent is room, in bytes, for the other fields and the frame's end, which usually take
// less.
const afterContent = 512

func (r *readResult) appendJSON(b []byte) []byte {
	b = append(b, `{"content":`...)
	if r.Encoding == wire.Base64 {
		// Get room for the rest of the frame, too, so that the content is not copied again.
		n := base64.StdEncoding.EncodedLen(len(r.data))
		b = append(slices.Grow(b, n+afterContent), '"')
		base64.StdEncoding.Encode(b[len(b):len(b)+n], r.data)
		b = append(b[:len(b)+n], '"')
	} else {
		b = jsonline.AppendString(b, r.data)
	}
	rest := jsonline.AppendValue(nil, &r.ReadResult) // {"content":"","size":...}
	const empty = `{"content":""`
	return append(b, rest[len(empty):]...)
}
