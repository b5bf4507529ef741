package secret

import (
	"bytes"
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

// scrubbed removes a credential from a body. Bytes pass as they come: only those that may be
// the rest of the credential wait for the next ones, and only when minScrubbed bytes of it have
// passed. So a host that sends the credential in two parts reveals only its beginning.
type scrubbed struct {
	io.ReadCloser
	key, mask []byte // of the same length
	window    []byte // bytes that have passed, at most len(key)-1, and then those that have not
	passed    int    // of window
	waiting   int    // of window, at its end
	err       error  // of the last read
}

// scrub returns a body without a text, in whose place it has another one of the same length.
func scrub(body io.ReadCloser, text, placeholder string) io.ReadCloser {
	if len(text) < minScrubbed {
		return body
	}
	if len(placeholder) != len(text) {
		placeholder = strings.Repeat("*", len(text))
	}
	return &scrubbed{ReadCloser: body, key: []byte(text), mask: []byte(placeholder)}
}

// spellings returns a text in the other forms in which hosts write it: as URLs and JSON encode it.
func spellings(text string) (list []string) {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string has none
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
func (s *scrubbed) Read(p []byte) (int, error) {
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

// fill reads the next bytes, at most size of them.
func (s *scrubbed) fill(size int) {
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
func (s *scrubbed) partial() int {
	for n := min(len(s.key)-1, len(s.window)); n >= minScrubbed; n-- {
		if bytes.HasSuffix(s.window, s.key[:n]) {
			return n
		}
	}
	return 0
}

// Write writes to the host. It is for the body of a connection that has changed its protocol.
func (s *scrubbed) Write(p []byte) (int, error) {
	w, ok := s.ReadCloser.(io.Writer)
	if !ok {
		return 0, errors.ErrUnsupported
	}
	return w.Write(p)
}

// tells reports whether a text contains the credential, or the value of a header that had it.
func (x *exchange) tells(text string) bool {
	return x.p.tells(text) || slices.ContainsFunc(x.presented, func(value string) bool {
		return strings.Contains(text, strings.TrimPrefix(value, "Basic "))
	})
}

// tells reports whether a text contains the credential: as it is, as HTTP Basic encodes it, or
// as URLs encode it.
func (p *Proxy) tells(text string) bool {
	decode := func(text string) string {
		return encodedByte().ReplaceAllStringFunc(text, func(s string) string {
			b, _ := strconv.ParseUint(s[1:], 16, 8)
			return string([]byte{byte(b)})
		})
	}
	inQuery := strings.ReplaceAll(text, "+", " ")
	return p.credential.In(text) || p.credential.In(decode(text)) || p.credential.In(decode(inQuery)) || strings.Contains(text, strings.TrimPrefix(p.value, "Basic "))
}
