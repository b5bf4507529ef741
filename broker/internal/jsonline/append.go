package jsonline

import (
	"bytes"
	"encoding/json"
)

// AppendReply appends the beginning of a response, up to and including the id, which is raw JSON.
// The result (AppendResult) or the error must follow, and a closing brace.
func AppendReply(b, id []byte) []byte { return append(append(b, `{"jsonrpc":"2.0","id":`...), id...) }

// AppendResult appends the key of a result.
func AppendResult(b []byte) []byte { return append(b, `,"result":`...) }

// AppendError appends a whole response whose error object is e.
func AppendError(b, id []byte, e any) []byte {
	return append(AppendValue(append(AppendReply(b, id), `,"error":`...), e), '}')
}

// AppendCall appends a request, or a notification if id is nil. If params is nil, the message has
// no params.
func AppendCall(b, id []byte, method string, params any) []byte {
	b = append(b, `{"jsonrpc":"2.0",`...)
	if id != nil {
		b = append(append(append(b, `"id":`...), id...), ',')
	}
	b = AppendString(append(b, `"method":`...), method)
	if params != nil {
		b = AppendValue(append(b, `,"params":`...), params)
	}
	return append(b, '}')
}

// AppendValue appends v as encoding/json encodes it, but without the escapes meant for HTML, which
// make a character six bytes long. A value that cannot be encoded becomes null; no caller has such
// a value.
func AppendValue(b []byte, v any) []byte {
	w := bytes.NewBuffer(b)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return append(b, "null"...)
	}
	return bytes.TrimSuffix(w.Bytes(), []byte("\n"))
}

// AppendString appends UTF-8 bytes as a JSON string.
func AppendString[S string | []byte](b []byte, s S) []byte {
	return append(AppendText(append(b, '"'), s), '"')
}

// needsEscape has the bytes that AppendText escapes: those for which JSON needs an escape, and
// DEL. The bytes of characters beyond ASCII are not escaped.
var needsEscape = func() (t [256]bool) {
	for c := range 0x20 {
		t[c] = true
	}
	t['"'], t['\\'], t[0x7f] = true, true, true
	return t
}()

// AppendText appends the text between the quotes of a JSON string. Most of a text needs
// no escape and is copied in runs.
func AppendText[S string | []byte](b []byte, s S) []byte {
	const hex = "0123456789abcdef"
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !needsEscape[c] {
			continue
		}
		b = append(b, s[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\t':
			b = append(b, '\\', 't')
		case '\r':
			b = append(b, '\\', 'r')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(b, s[start:]...)
}

// EncodedLen returns the length of the JSON string that AppendString appends for s.
func EncodedLen[S string | []byte](s S) int {
	n := len(s) + 2
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case !needsEscape[c]:
		case c == '"' || c == '\\' || c == '\n' || c == '\t' || c == '\r':
			n++
		default:
			n += 5
		}
	}
	return n
}
