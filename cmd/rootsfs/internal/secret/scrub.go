package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// minScrubbed is the length of the shortest text that is removed from bodies. A shorter one
// would be found in texts that have nothing to do with it.
const minScrubbed = 8

// scrubber removes a credential from a body. Bytes pass as soon as they are read, with one
// exception: if the last bytes, minScrubbed or more, may be the beginning of the credential, they
// wait for the next read. So if a host sends the whole credential in parts, fewer than minScrubbed
// bytes of the credential pass.
type scrubber struct {
	io.ReadCloser
	key, mask []byte // of the same length
	known     int    // how many bytes at the beginning of key the program may know
	window    []byte // bytes that have passed, of which fill keeps at most len(key)-1, and then bytes that have not
	passed    int    // how many bytes at the beginning of window have passed
	waiting   int    // how many bytes at the end of window wait
	err       error  // of the last read
}

// scrub returns a body with a placeholder in the place of a text, or with asterisks if the two have
// different lengths. The program may know the first bytes of the text; known is their number. A text
// of less than minScrubbed bytes is not removed.
func scrub(body io.ReadCloser, text, placeholder string, known int) io.ReadCloser {
	if len(text) < minScrubbed {
		return body
	}
	if len(placeholder) != len(text) {
		placeholder = strings.Repeat("*", len(text))
	}
	return &scrubber{ReadCloser: body, key: []byte(text), mask: []byte(placeholder), known: known}
}

// spellings returns a text in the other forms in which hosts write it: as URLs and JSON encode it.
func spellings(text string) (list []string) {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // the encoding of a string never fails
	}
	inJSON := string(quoted[1 : len(quoted)-1])
	for _, other := range []string{url.QueryEscape(text), url.PathEscape(text), inJSON, strings.ReplaceAll(text, "/", `\/`), strings.ReplaceAll(inJSON, "/", `\/`)} {
		if other != text && !slices.Contains(list, other) {
			list = append(list, other)
		}
	}
	return list
}

// Read implements io.Reader.
func (s *scrubber) Read(p []byte) (int, error) {
	for len(p) > 0 && len(s.window)-s.waiting == s.passed && s.err == nil {
		s.fill(len(p))
	}
	n := copy(p, s.window[s.passed:len(s.window)-s.waiting])
	s.passed += n
	if s.passed < len(s.window) || len(p) == 0 {
		return n, nil
	}
	return n, s.err
}

// fill reads the next bytes, at most size of them, and masks the text where it is complete.
func (s *scrubber) fill(size int) {
	if extra := s.passed - (len(s.key) - 1); extra > 0 {
		s.window, s.passed = append(s.window[:0], s.window[extra:]...), s.passed-extra
	}
	have := len(s.window)
	s.window = slices.Grow(s.window, size)[:have+size]
	n, err := s.ReadCloser.Read(s.window[have:])
	s.window, s.err = s.window[:have+n], err
	for from := 0; ; {
		i := bytes.Index(s.window[from:], s.key)
		if i < 0 {
			break
		}
		from += i
		copy(s.window[max(from, s.passed):from+len(s.key)], s.mask[max(0, s.passed-from):])
		from += len(s.key)
	}
	s.waiting = 0
	if err == nil {
		s.waiting = min(s.partial(), len(s.window)-s.passed)
	}
}

// partial returns how many bytes at the end of the window may be the beginning of the text.
func (s *scrubber) partial() int {
	for n := min(len(s.key)-1, len(s.window)); n >= minScrubbed; n-- {
		if s.mayBegin(s.window[len(s.window)-n:]) {
			return n
		}
	}
	return 0
}

// mayBegin reports whether b, which has at least minScrubbed bytes, may be the beginning of the
// text. A program that makes a host send chosen bytes can measure whether these bytes are held
// back. So the bytes after the known beginning are not compared with the text: they only have to be
// characters of keys. Otherwise the program could find out the text byte by byte.
func (s *scrubber) mayBegin(b []byte) bool {
	if s.known == 0 || len(b) <= s.known { // minScrubbed unknown bytes are too many to guess at once
		return bytes.HasPrefix(s.key, b)
	}
	return bytes.HasPrefix(b, s.key[:s.known]) && bytes.IndexFunc(b[s.known:], isNoKeyCharacter) < 0
}

// isNoKeyCharacter reports whether a character occurs in no spelling of a key that has a known
// beginning.
func isNoKeyCharacter(c rune) bool {
	return !strings.ContainsRune(separators+`%\`, c) && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
}

// knownInBasic returns how many characters of a login in the encoding of HTTP Basic the program may
// know: the encoding of the text before the value and of the value's public prefix.
func knownInBasic(encoded, value string) int {
	login, err := base64.RawStdEncoding.DecodeString(encoded)
	if err != nil {
		return 0
	}
	return (max(0, strings.Index(string(login), value)) + len(publicPrefix(value))) * 8 / 6
}

// Write writes to the host. It is for the body of a connection that has changed its protocol.
func (s *scrubber) Write(p []byte) (int, error) {
	w, ok := s.ReadCloser.(io.Writer)
	if !ok {
		return 0, errors.ErrUnsupported
	}
	return w.Write(p)
}

// reveals reports whether a text contains the credential, or a header value in which the credential
// was sent to the host.
func (x *exchange) reveals(text string) bool {
	return x.p.reveals(text) || slices.ContainsFunc(x.presented, func(value string) bool {
		return strings.Contains(text, strings.TrimPrefix(value, "Basic "))
	})
}

// reveals reports whether a text contains the credential: as it is, as HTTP Basic encodes it, or
// as URLs encode it.
func (p *Proxy) reveals(text string) bool {
	decode := func(text string) string {
		return encodedByte().ReplaceAllStringFunc(text, func(s string) string {
			b, _ := strconv.ParseUint(s[1:], 16, 8)
			return string([]byte{byte(b)})
		})
	}
	inQuery := strings.ReplaceAll(text, "+", " ")
	return p.credential.In(text) || p.credential.In(decode(text)) || p.credential.In(decode(inQuery)) || strings.Contains(text, strings.TrimPrefix(p.value, "Basic "))
}
