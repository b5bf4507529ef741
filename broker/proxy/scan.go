package proxy

import (
	"bytes"
	"encoding/json"
	"strings"
)

// span is a part of a line: its bytes from one index up to another.
type span struct{ from, to int }

func (s span) of(b []byte) []byte { return b[s.from:s.to] }

// absent: no value is empty.
func (s span) absent() bool { return s.to == 0 }

// list walks the members of one object or the elements of one array, and skips
// what is further in.
//
// Of every valid JSON text it finds the same as encoding/json (the fuzz tests
// compare them). It takes more than that for JSON: what is skipped only has to
// have its strings and brackets closed, and a number or a literal is whatever
// stands up to the next delimiter. So a line that some lenient reader would take
// is looked at like one that every reader takes.
type list struct {
	b      []byte
	i      int  // next byte
	array  bool // elements without keys
	begun  bool // past the first
	closed bool // the end was found, before i
	key    span // with its quotes; of an object
	val    span
}

// open begins a walk of the object or array at b[i:].
func open(b []byte, i int) (list, bool) {
	if i >= len(b) || b[i] != '{' && b[i] != '[' {
		return list{}, false
	}
	return list{b: b, i: i + 1, array: b[i] == '['}, true
}

// next goes to the next member and reports whether there is one. When it reports
// false, closed tells the end from broken syntax.
func (l *list) next() bool {
	if l.closed {
		return false
	}
	i := blank(l.b, l.i)
	if i == len(l.b) {
		return false
	}
	end := byte('}')
	if l.array {
		end = ']'
	}
	if l.b[i] == end {
		l.i, l.closed = i+1, true
		return false
	}
	if l.begun {
		if l.b[i] != ',' {
			return false
		}
		i = blank(l.b, i+1)
	}
	l.begun = true
	if !l.array {
		to := quoted(l.b, i)
		if to < 0 {
			return false
		}
		l.key = span{i, to}
		i = blank(l.b, to)
		if i == len(l.b) || l.b[i] != ':' {
			return false
		}
		i = blank(l.b, i+1)
	}
	to := value(l.b, i)
	if to < 0 {
		return false
	}
	l.val, l.i = span{i, to}, to
	return true
}

// is reports whether the member's key is name, however it is escaped.
func (l *list) is(name string) bool { return equal(l.key.of(l.b), name) }

// blank returns the index of the first byte from i on that is no JSON white
// space.
func blank(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\r' || b[i] == '\n') {
		i++
	}
	return i
}

// quoted returns the end of the string at b[i:], -1 if there is none. Looking for
// the next quote by vectors and then back at its backslashes is faster than eight
// bytes at a time even where every tenth is escaped (measured).
func quoted(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	first := i + 1
	for i = first; ; i++ {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return -1
		}
		i += n
		slashes := i
		for slashes > first && b[slashes-1] == '\\' {
			slashes--
		}
		if (i-slashes)%2 == 0 {
			return i + 1
		}
	}
}

// value returns the end of the value at b[i:], -1 if there is none.
func value(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"':
		return quoted(b, i)
	case '{', '[':
		return nested(b, i)
	}
	from := i
	for i < len(b) && !delimits(b[i]) {
		i++
	}
	if i == from {
		return -1
	}
	return i
}

func delimits(c byte) bool {
	switch c {
	case ',', ':', '{', '}', '[', ']', '"', ' ', '\t', '\r', '\n':
		return true
	}
	return false
}

// nested returns the end of the object or array at b[i:], -1 if it has none.
func nested(b []byte, i int) int {
	for depth := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			to := quoted(b, i)
			if to < 0 {
				return -1
			}
			i = to - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}

// equal reports whether a JSON string, with its quotes, means s.
func equal(quoted []byte, s string) bool {
	return len(quoted) > 0 && quoted[0] == '"' && string(meant(quoted)) == s
}

// meant is what a JSON string means. Without escapes, as nearly all are, it is a
// part of quoted. Of what is none, also for a broken escape, it is nothing.
func meant(quoted []byte) []byte {
	if len(quoted) < 2 || quoted[0] != '"' {
		return nil
	}
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner
	}
	var s string
	if json.Unmarshal(quoted, &s) != nil {
		return nil
	}
	return []byte(s)
}

// frame is where the parts of one JSON-RPC message stand in it.
type frame struct {
	id, method, params, result, err span // absent: to is 0
	rpc                             bool // says that it is JSON-RPC 2.0
	clash                           span // the key by which readers may see different messages
}

// fields are the keys of JSON-RPC.
var fields = [...]string{"jsonrpc", "id", "method", "params", "result", "error"}

// field returns the key of JSON-RPC that some reader takes a key for, "" if none does.
// encoding/json and JsonSerializerDefaults.Web compare keys without their case.
func field(key []byte) string {
	for _, name := range fields {
		if strings.EqualFold(name, string(key)) {
			return name
		}
	}
	return ""
}

// answers reports whether a frame has what only an answer has.
func (f *frame) answers() bool { return !f.result.absent() || !f.err.absent() }

// maxKeys bounds how many keys are compared with each other. The protocol has
// five; beyond this many, a frame counts as one that repeats.
const maxKeys = 64

// readFrame finds the parts of the object in b, whatever the case of their keys. It
// reports false for what is not one object with nothing behind it. clash is a key that
// stands there twice, or one of JSON-RPC in another case.
func readFrame(b []byte) (f frame, ok bool) {
	l, ok := open(b, blank(b, 0))
	if !ok || l.array {
		return f, false
	}
	var seen [maxKeys]span
	n := 0
	for l.next() {
		key := meant(l.key.of(b))
		name := field(key)
		if f.clash.absent() && (n == maxKeys || name != "" && name != string(key) || repeats(b, seen[:n], key)) {
			f.clash = l.key
		}
		if n < maxKeys {
			seen[n] = l.key
			n++
		}
		switch name {
		case "jsonrpc":
			f.rpc = f.rpc || equal(l.val.of(b), "2.0")
		case "id":
			f.id = l.val
		case "method":
			f.method = l.val
		case "params":
			f.params = l.val
		case "result":
			f.result = l.val
		case "error":
			f.err = l.val
		}
	}
	return f, l.closed && blank(b, l.i) == len(b)
}

// repeats reports whether a key was seen, in any case.
func repeats(b []byte, seen []span, key []byte) bool {
	for _, s := range seen {
		if bytes.EqualFold(meant(s.of(b)), key) {
			return true
		}
	}
	return false
}
