package jsonline

import (
	"bytes"
	"encoding/json"
)

// Span is a part of a line: the bytes from index From up to, but not including, index To.
type Span struct{ From, To int }

// Of returns the part itself, nil if there is none.
func (s Span) Of(b []byte) []byte {
	if s.Absent() {
		return nil
	}
	return b[s.From:s.To]
}

// Absent reports whether there is no such part. A part that is present is never empty.
func (s Span) Absent() bool { return s.To == 0 }

// Walker goes through the members of one object or the elements of one array, and skips
// nested values. In skipped values only strings and brackets must be closed, and any text
// up to the next delimiter counts as a number or a literal.
type Walker struct {
	Key, Val Span // of the current member; Key with its quotes, absent in an array

	b     []byte
	i     int  // next byte
	close byte // the closing bracket
	begun bool // Next has reached the first member, so a comma must stand before another
	ended bool // the closing bracket was found, before i
}

// Object begins a walk of the object at b[i:]. It reports false if there is none.
func Object(b []byte, i int) (Walker, bool) { return open(b, i, '{', '}') }

// Array begins a walk of the array at b[i:]. It reports false if there is none.
func Array(b []byte, i int) (Walker, bool) { return open(b, i, '[', ']') }

func open(b []byte, i int, first, last byte) (Walker, bool) {
	if i >= len(b) || b[i] != first {
		return Walker{}, false
	}
	return Walker{b: b, i: i + 1, close: last}, true
}

// Next goes to the next member and reports whether there is one. When it reports false, Ended
// distinguishes the end from broken syntax.
func (w *Walker) Next() bool {
	if w.ended {
		return false
	}
	i := SkipSpace(w.b, w.i)
	if i == len(w.b) {
		return false
	}
	if w.b[i] == w.close {
		w.i, w.ended = i+1, true
		return false
	}
	if w.begun {
		if w.b[i] != ',' {
			return false
		}
		i = SkipSpace(w.b, i+1)
	}
	w.begun = true
	if w.close == '}' {
		to := endOfString(w.b, i)
		if to < 0 {
			return false
		}
		w.Key = Span{i, to}
		i = SkipSpace(w.b, to)
		if i == len(w.b) || w.b[i] != ':' {
			return false
		}
		i = SkipSpace(w.b, i+1)
	}
	to := EndOfValue(w.b, i)
	if to < 0 {
		return false
	}
	w.Val, w.i = Span{i, to}, to
	return true
}

// Ended reports whether the walk came to the end of the object or array.
func (w *Walker) Ended() bool { return w.ended }

// reachedEnd reports whether the walk came to the end, and only white space follows it.
func (w *Walker) reachedEnd() bool { return w.ended && SkipSpace(w.b, w.i) == len(w.b) }

// Is reports whether the member's key is name, however it is escaped.
func (w *Walker) Is(name string) bool { return Equal(w.Key.Of(w.b), name) }

// SkipSpace returns the index of the first byte from i on that is no JSON white space.
func SkipSpace(b []byte, i int) int {
	for i < len(b) && isSpace(b[i]) {
		i++
	}
	return i
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// endOfString returns the end of the string at b[i:], -1 if there is none. It finds the next
// quote with IndexByte, which uses vectors, and then counts the backslashes before the quote.
// This is faster than a loop over eight bytes at a time, even if every tenth byte is escaped
// (measured).
func endOfString(b []byte, i int) int {
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

// EndOfValue returns the end of the value at b[i:], -1 if there is none.
func EndOfValue(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"':
		return endOfString(b, i)
	case '{', '[':
		return endOfNested(b, i)
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
	case ',', ':', '{', '}', '[', ']', '"':
		return true
	}
	return isSpace(c)
}

// endOfNested returns the end of the object or array at b[i:], -1 if it has none.
func endOfNested(b []byte, i int) int {
	for depth := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			to := endOfString(b, i)
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

// Equal reports whether a JSON string, with its quotes, means s.
func Equal(quoted []byte, s string) bool {
	return len(quoted) > 0 && quoted[0] == '"' && string(Unquote(quoted)) == s
}

// Unquote returns the text of a JSON string. Without escapes (as in nearly all strings) the
// text is a part of quoted. Unquote returns nil if quoted is no string, or has a broken escape.
func Unquote(quoted []byte) []byte {
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
