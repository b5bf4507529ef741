package proxy

import (
	"bytes"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
	"github.com/rootsfs/rootsfs/broker/wire"
)

// flaw is why hosts may read a line of the server's in different ways, such as one
// message or two: it is not exactly one object or array of RFC 8259. "" is no flaw.
// Half a surrogate pair in an escape is none, because it is part of no character's bytes.
func flaw(line []byte) string {
	switch i := blank(line, 0); {
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

// examine puts the message of a line to look, or each of a batch (revision
// 2025-03-26 has them), and returns what is to be carried instead of the line;
// nil is nothing. pass: the line is carried as it came. A batch of more messages
// than wire.MaxBatch is not looked at: many is told, and nothing is carried.
func examine(line []byte, look func([]byte) ([]byte, bool), many func()) (out []byte, pass bool) {
	i := blank(line, 0)
	if i == len(line) || line[i] != '[' {
		return look(line)
	}
	switch messages, whole := isList(line, i); {
	case !whole:
		return look(line)
	case messages > wire.MaxBatch:
		many()
		return nil, false
	}
	l, _ := open(line, i)
	n, last := 0, i+1 // how many are carried; the end of those that passed
	pass = true
	for l.next() {
		with, same := l.val.of(line), true
		if with[0] == '{' {
			if other, ok := look(with); !ok {
				with, same = other, false
			}
		}
		if pass && !same {
			pass, out = false, append(make([]byte, 0, len(line)), line[:last]...)
		}
		if with == nil {
			continue
		}
		if !pass {
			if n > 0 {
				out = append(out, ',')
			}
			out = append(out, with...)
		}
		n, last = n+1, l.val.to
	}
	switch {
	case pass:
		return nil, true
	case n == 0:
		return nil, false
	}
	return append(out, ']'), false
}

// isList reports how many messages the array at line[i:] has, and whether it is
// whole.
func isList(line []byte, i int) (messages int, whole bool) {
	l, _ := open(line, i)
	for l.next() {
		if l.val.of(line)[0] == '{' {
			messages++
		}
	}
	return messages, l.closed && blank(line, l.i) == len(line)
}

// errorReply is the frame of an error.
func errorReply(id []byte, code int, text string) []byte {
	return jsonline.AppendError(nil, id, wire.Error{Code: code, Message: text})
}
