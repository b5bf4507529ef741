package proxy

import (
	"bytes"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
	"github.com/rootsfs/rootsfs/broker/wire"
)

// flaw returns the reason why hosts may read a line of the server in different ways, such as one
// message or two, and "" if there is none. The reason is that the line is not exactly one object or
// array of RFC 8259 in UTF-8, or has a CR before its end. The line must not be blank. flaw
// accepts an escape of half a surrogate pair, such as \ud800: in the line it is six ASCII characters.
func flaw(line []byte) string {
	switch i := jsonline.SkipSpace(line, 0); {
	case bytes.IndexByte(line, '\r') >= 0:
		return "it has a CR before its end"
	case !utf8.Valid(line):
		return "it is not UTF-8"
	case line[i] != '{' && line[i] != '[':
		return "it is no object"
	case !jsontext.Value(line).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)):
		return "it is no JSON, or more than one value"
	}
	return ""
}

// splitBatch calls decide with the message of a line, or with each message of a batch
// (revision 2025-03-26 has batches). It returns the bytes to carry instead of the line, nil
// for none. If pass is true, the line is carried as it came. decide returns these two for one
// message. For a batch of more than wire.MaxBatch members splitBatch calls tooMany instead, and
// nothing is carried.
func splitBatch(line []byte, decide func([]byte) ([]byte, bool), tooMany func()) (out []byte, pass bool) {
	members, isBatch := jsonline.Batch(line, wire.MaxBatch)
	switch {
	case !isBatch:
		return decide(line)
	case len(members) > wire.MaxBatch:
		tooMany()
		return nil, false
	}
	pass = true
	var carried [][]byte
	for _, m := range members {
		message, same := m.Of(line), true
		if message[0] == '{' {
			if other, ok := decide(message); !ok {
				message, same = other, false
			}
		}
		pass = pass && same
		if message != nil {
			carried = append(carried, message)
		}
	}
	if pass || len(carried) == 0 {
		return nil, pass
	}
	out = append(make([]byte, 0, len(line)), '[')
	return append(append(out, bytes.Join(carried, []byte(","))...), ']'), false
}

// errorReply returns the frame of an error answer.
func errorReply(id []byte, code int, text string) []byte {
	return jsonline.AppendError(nil, id, wire.Error{Code: code, Message: text})
}
