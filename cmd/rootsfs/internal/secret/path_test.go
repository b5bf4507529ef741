package secret

import (
	"net/url"
	"strings"
	"testing"
)

func TestParsePath(t *testing.T) {
	for written, want := range map[string]string{
		"/":                       "/",
		"/repos/me/x":             "/repos/me/x",
		"/repos/me/":              "/repos/me/",
		"//repos///me":            "/repos/me",
		"/repos/./me/.":           "/repos/me/",
		"/repos/me/../you":        "/repos/you",
		"/repos/me/..":            "/repos/",
		"/../../etc":              "/etc",
		"/%72epos/%6de/%2e%2e/a":  "/repos/a",
		"/repos/%2E%2e/%2e./x":    "/x",
		"/a b/%20?":               "/a%20b/%20%3F",
		"/%41%2dz~_":              "/A-z~_",
		"/@scope%2fname":          "/@scope%2Fname",
		"/100%25":                 "/100%25",
		"/caf%c3%a9/é":            "/caf%C3%A9/%C3%A9",
		"/v1/models/gpt:generate": "/v1/models/gpt:generate",
	} {
		p, err := parsePath(written)
		if err != nil || p.sent != want {
			t.Errorf("%q: %q, %v, want %q", written, p.sent, err, want)
		}
	}
	for _, written := range []string{
		"", "repos", "http://api.test/x", "*", "/a%2", "/a%zz",
		"/a;b", "/..;/admin", "/a%3bb", "/a\\b", "/a%5c..%5cb", "/a%00", "/a%0d%0ab", "/a\x7f", "/%ff", "/%c0%ae%c0%ae/", "/a%c0%afb",
		"/a%252e%252e/b", "/a%252fb", "/%2e%252e",
		"/a/..%2f..%2fb", "/a%2f..", "/..%2fa", "/a%2f%2fb", "/%2f", "/a%2f", "/a%2F.%2Fb", "/.../b", "/..%20/b", "/a/ /b", "/. ./b",
	} {
		if p, err := parsePath(written); err == nil {
			t.Errorf("%q is read as %+v", written, p)
		}
	}
}

func TestRule(t *testing.T) {
	for _, c := range []struct {
		rule, method, path string
		want               bool
	}{
		{"GET /repos/me/**", "GET", "/repos/me/x/y", true},
		{"GET /repos/me/**", "HEAD", "/repos/me/x", true},
		{"GET /repos/me/**", "get", "/repos/me/x", false},
		{"GET /repos/me/**", "POST", "/repos/me/x", false},
		{"GET /repos/me/**", "GET", "/repos/me/../you/x", false},
		{"GET /repos/me/**", "GET", "/repos/me/%2e%2e/you/x", false},
		{"GET /repos/me/**", "GET", "/repos/you/..//me/x", true},
		{"GET /repos/me/**", "GET", "/repos/ME/x", false},
		{"GET /repos/me/**", "GET", "/repos/me%2Fx", false},
		{"GET /repos/me/**", "GET", "/repos%2Fme/x", false},
		{"GET /repos/me/**", "GET", "/repos/mex/x", false},
		{"GET /repos/*", "GET", "/repos/me%2Fx", false},
		{"GET /**", "GET", "/repos/me%2Fx", true},
		{"GET /@me%2F*", "GET", "/@me%2fx", true},
		{"GET /@me%2F*", "GET", "/@you%2fx", false},
		{"GET /@me%2F*", "GET", "/@me/x", false},
		{"* /v1/messages", "POST", "/v1/messages", true},
		{"* /v1/messages", "POST", "/v1/messages/", false},
		{"* /v1/{messages,models}", "GET", "/v1/models", true},
		{"GET /a b", "GET", "/a%20b", true},
		{"GET /x/*.txt", "GET", "/x/{a,b}.txt", true},
	} {
		r, err := ParseRule(c.rule)
		if err != nil {
			t.Error(err)
			continue
		}
		p, err := parsePath(c.path)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := r.allows(c.method, p); got != c.want {
			t.Errorf("%s: %s %s: %v", c.rule, c.method, c.path, got)
		}
	}
	for _, text := range []string{"", "/x", "GET", "GET x", "get /x", "GET, POST /x", "GET /a[", "GET /a%20b", "GET /" + strings.Repeat("{a,b}", 10)} {
		if r, err := ParseRule(text); err == nil {
			t.Errorf("%q is read as %s", text, r)
		}
	}
}

// A path is sent as it is compared: whoever reads what is sent gets what was compared, decodes
// nothing more out of it, and finds no way up.
func FuzzPath(f *testing.F) {
	for _, seed := range []string{"/", "/repos/me/%2e%2e/x", "/a%2fb", "/%25", "/a/../..//b;c", "/é%c3", "/..%2f", "/%2e%252e"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, written string) {
		p, err := parsePath(written)
		if err != nil {
			if p != (requestPath{}) {
				t.Errorf("%q: %+v beside %v", written, p, err)
			}
			return
		}
		again, err := parsePath(p.sent)
		if err != nil || again != p {
			t.Errorf("%q: %+v is read again as %+v, %v", written, p, again, err)
		}
		decoded, err := url.PathUnescape(p.sent)
		if err != nil || decoded != p.split {
			t.Errorf("%q: decoded it is %q, want %q, %v", written, decoded, p.split, err)
		}
		u, err := url.ParseRequestURI(p.sent)
		if err != nil || u.Path != p.split || u.EscapedPath() != p.sent || u.Host != "" {
			t.Errorf("%q: %q is %#v, %v", written, p.sent, u, err)
		}
		for _, elem := range strings.Split(strings.Trim(p.split, "/"), "/") {
			if p.split != "/" && (elem == "" || elem == "." || elem == "..") {
				t.Errorf("%q: %q has the element %q", written, p.split, elem)
			}
		}
		if strings.ContainsAny(p.split, "\\;\x00\r\n") || encodedTwice().MatchString(p.split) {
			t.Errorf("%q: %q is ambiguous", written, p.split)
		}
	})
}
