package proxy

import (
	"encoding/json"

	"github.com/rootsfs/rootsfs/broker/wire"
)

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
	b, _ := json.Marshal(wire.Error{Code: code, Message: text}) // strings and numbers only: cannot fail
	return append(append(append(wire.AppendReply(nil, id), `,"error":`...), b...), '}')
}
