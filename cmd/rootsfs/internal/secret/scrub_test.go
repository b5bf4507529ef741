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

// Wherever a body is cut, fewer than minScrubbed bytes of the credential pass, and no other byte of
// the body changes.
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
			for i, size := range []int{1, 3, 64, 64} {
				known := 4 * (i % 2)
				got, err := readBy(scrub(io.NopCloser(&parts{[]string{body[:cut], body[cut:]}}), text, mask, known), size)
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
	if got, _ := io.ReadAll(scrub(io.NopCloser(strings.NewReader("<"+text+">")), text, "short", 0)); string(got) != "<"+strings.Repeat("*", len(text))+">" {
		t.Errorf("%q", got)
	}
}

// After the public prefix of a key, all characters that keys may have are held back, whether or not
// they match the key. Otherwise a program that chooses what a host sends could find out the key
// byte by byte, by measuring the time.
func TestScrubTellsNothingByTime(t *testing.T) {
	const text = "sk-ant-api03-AbCdEfGhIjKlMnOpQrStUvWxYz0123456789-_AbCd"
	basic := strings.TrimRight(strings.TrimPrefix(basicHeader("x-access-token:"+text), "Basic "), "=")
	for _, c := range []struct {
		text  string
		known int
	}{{text, len(publicPrefix(text))}, {basic, knownInBasic(basic, text)}} {
		if c.known < minScrubbed {
			t.Fatalf("of %s only %d bytes are known", c.text, c.known)
		}
		isHeld := func(sent string) bool {
			s := scrub(io.NopCloser(&parts{[]string{sent, "."}}), c.text, "", c.known)
			n, err := s.Read(make([]byte, 3*len(text)))
			if err != nil && err != io.EOF {
				t.Fatal(err)
			}
			return n != len(sent)
		}
		for n := c.known + 1; n < len(c.text); n++ {
			own, other := c.text[:n], c.text[:n-1]+"7"
			if c.text[n-1] == '7' {
				other = c.text[:n-1] + "8"
			}
			if isHeld(own) != isHeld(other) {
				t.Fatalf("only one of %s and %s is held back", own, other)
			}
			if !isHeld(own) {
				t.Errorf("%s is not held back", own)
			}
		}
		if isHeld(c.text[:c.known] + "x.\n") {
			t.Error("the end of a line is held back")
		}
	}
}

// Bytes that cannot begin the credential, or of which fewer than minScrubbed can, are not held
// back: a program may wait for them.
func TestScrubDoesNotWait(t *testing.T) {
	r, w := io.Pipe()
	s := scrub(r, "abcabcabcabcabd-0123", "", 0)
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
