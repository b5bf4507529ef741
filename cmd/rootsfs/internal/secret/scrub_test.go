package secret

import (
	"io"
	"strings"
	"testing"
)

// parts is a body that comes in parts.
type parts struct{ rest []string }

func (p *parts) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.rest[0])
	if p.rest[0] = p.rest[0][n:]; p.rest[0] == "" {
		p.rest = p.rest[1:]
	}
	return n, nil
}

// Wherever a body is cut, the credential is removed from it, except fewer than minScrubbed of
// its first bytes, and nothing else changes.
func TestScrub(t *testing.T) {
	const text, mask = "abcabcabcabcabd-0123", "XXXXXXXXXXXXXXXXXXXX"
	for body, want := range map[string]string{
		"":                      "",
		"nothing":               "nothing",
		text:                    mask,
		"<" + text + ">":        "<" + mask + ">",
		text + text:             mask + mask,
		"abcabc" + text + "abc": "abcabc" + mask + "abc",
		text[:19] + "x":         text[:19] + "x",
		text[:19]:               text[:19],
		strings.Repeat(".", 50) + text + strings.Repeat(".", 50): strings.Repeat(".", 50) + mask + strings.Repeat(".", 50),
	} {
		for cut := 0; cut <= len(body); cut++ {
			for _, size := range []int{1, 3, 64} {
				got, err := readBy(scrub(io.NopCloser(&parts{[]string{body[:cut], body[cut:]}}), text, mask), size)
				if err != nil || len(got) != len(body) || size == 64 && cut == 0 && got != want {
					t.Fatalf("%q cut at %d: %q, %v", body, cut, got, err)
				}
				for i := range len(got) {
					if got[i] != want[i] && got[i] != body[i] {
						t.Fatalf("%q cut at %d, read by %d: %q", body, cut, size, got)
					}
				}
				if at := strings.Index(body, text); at >= 0 && got[at+minScrubbed:at+len(text)] != mask[minScrubbed:] {
					t.Fatalf("%q cut at %d, read by %d: %q", body, cut, size, got)
				}
			}
		}
	}
	if got, _ := io.ReadAll(scrub(io.NopCloser(strings.NewReader("<"+text+">")), text, "short")); string(got) != "<"+strings.Repeat("*", len(text))+">" {
		t.Errorf("%q", got)
	}
}

// What cannot be the credential is not held back: a program may wait for it.
func TestScrubDoesNotWait(t *testing.T) {
	r, w := io.Pipe()
	s := scrub(r, "abcabcabcabcabd-0123", "")
	for _, event := range []string{"data: 1\n\n", "data: abcabca", "bx", "y"} {
		go func() { _, _ = io.WriteString(w, event) }()
		b := make([]byte, 100)
		if n, err := s.Read(b); string(b[:n]) != event || err != nil {
			t.Fatalf("%q, %v, want %q", b[:n], err, event)
		}
	}
}

func readBy(r io.Reader, size int) (string, error) {
	var out strings.Builder
	b := make([]byte, size)
	for {
		n, err := r.Read(b)
		out.Write(b[:n])
		if err == io.EOF {
			return out.String(), nil
		}
		if err != nil {
			return "", err
		}
	}
}
