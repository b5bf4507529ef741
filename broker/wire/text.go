package wire

// AppendString appends UTF-8 bytes as a JSON string.
func AppendString[S string | []byte](b []byte, s S) []byte {
	return append(AppendText(append(b, '"'), s), '"')
}

// escaped are the bytes that a string holds in another form. Those of longer
// characters are valid by now, and may stand as they are.
var escaped = func() (t [256]bool) {
	for c := range 0x20 {
		t[c] = true
	}
	t['"'], t['\\'], t[0x7f] = true, true, true
	return t
}()

// AppendText appends what is between the quotes: most of a text needs no escape
// and is copied in runs.
func AppendText[S string | []byte](b []byte, s S) []byte {
	const hex = "0123456789abcdef"
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !escaped[c] {
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

// EncodedLen is how long AppendString makes s.
func EncodedLen[S string | []byte](s S) int {
	n := len(s) + 2
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case !escaped[c]:
		case c == '"' || c == '\\' || c == '\n' || c == '\t' || c == '\r':
			n++
		default:
			n += 5
		}
	}
	return n
}
