package secret

import (
	"net/url"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"
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
		"/a b/c%20d":              "/a%20b/c%20d",
		"/%41%2dz~_":              "/A-z~_",
		"/@scope%2fname":          "/@scope%2Fname",
		"/100%25":                 "/100%25",
		"/caf%c3%a9/é":            "/caf%C3%A9/%C3%A9",
		"/v1/models/gpt:generate": "/v1/models/gpt:generate",
		"/repo/+/refs/a+b":        "/repo/+/refs/a+b",
		"/...x/e…c/½™":            "/...x/e%E2%80%A6c/%C2%BD%E2%84%A2",
		"/日本　語/e\u0301/a\u200cb":  "/%E6%97%A5%E6%9C%AC%E3%80%80%E8%AA%9E/e%CC%81/a%E2%80%8Cb",
	} {
		p, err := parsePath(written)
		if err != nil || p.sent != want || p.isChanged != (strings.Count(written, "/") != strings.Count(want, "/") || strings.HasSuffix(written, ".")) {
			t.Errorf("%q: %+v, %v, want %q", written, p, err, want)
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
		{"GET /v1/*/read", "GET", "/v1/secret%20x/read", false},
		{"GET /v1/**/read", "GET", "/v1/secret%20HTTP/1.1/read", false},
		{"GET /v1/* */read", "GET", "/v1/secret%20x/read", true},
		{"GET /v1/**", "GET", "/v1/a%20b/my%20file", true},
		{"GET /x/*.txt", "GET", "/x/{a,b}.txt", true},
	} {
		r, err := parseRule(c.rule)
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
		if r, err := parseRule(text); err == nil {
			t.Errorf("%q is read as %s", text, r)
		}
	}
}

// A path is refused if some servers would read it as another path than the one that a rule allows.
// Such servers may decode the path twice, put the decoded path into a new request, normalize the
// path, or drop parts that other servers keep.
func TestParsePathRefusesWhatServersReadDifferently(t *testing.T) {
	for what, paths := range map[string][]string{
		"the end of a path":                 {"/v1/secret%3F/read", "/v1/secret%3f", "/v1/%2e%2e%3F/read", "/v1/x%2Fdelete%3F/read", "/v1/secret%23/read", "/v1/secret#/read"},
		"the end of a path, encoded twice":  {"/v1/secret%253F/read", "/v1/secret%2523", "/v1/%25u002e%25u002e/read"},
		"the end of a path in another form": {"/v1/secret\uff1f/read", "/v1/secret\uff03/read", "/v1/secret\u037e/read", "/v1/secret\uff1b/read"},
		"a way up in another form":          {"/v1/\uff0e\uff0e/read", "/v1/\u2025/read", "/v1/\u2024./read", "/v1/.\u200b./read", "/v1/\u200b../read", "/v1/\ufeff/read"},
		"a slash in another form":           {"/v1/..\uff0fx/read", "/v1/x\u2215y/read", "/v1/x\u2044y/read", "/v1/x\uff3cy/read", "/v1/x\u2216y/read", "/v1/x\ufe68y/read", "/v1/x\u00a5y/read", "/v1/x\uffe6y/read"},
		"encoding in another form":          {"/v1/\uff052e\uff052e/read", "/v1/%25\uff12e/read"},
		"a new line":                        {"/v1/x\u0085y/read", "/v1/x\u2028y/read", "/v1/x\u2029y/read"},
		"a space at an end":                 {"/v1/x%20/read", "/v1/%20x/read", "/v1/x\u00a0/read", "/v1/..+/read", "/v1/+../read", "/v1/+..+/read", "/v1/.+/read", "/v1/\u3000x"},
		"a dot at the end":                  {"/v1/x./read", "/v1/x..", "/v1/x\uff0e/read"},
	} {
		for _, written := range paths {
			if p, err := parsePath(written); err == nil {
				t.Errorf("%s: %q is read as %q", what, written, p.sent)
			}
		}
	}
}

// The path that is sent is the path that is compared with rules: a server that decodes the sent
// path gets the compared path, in which nothing is still encoded and no element leads up.
func FuzzPath(f *testing.F) {
	for _, seed := range []string{"/", "/repos/me/%2e%2e/x", "/a%2fb", "/%25", "/a/../..//b;c", "/é%c3", "/..%2f", "/%2e%252e"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, written string) {
		p, err := parsePath(written)
		if err != nil {
			if p != (requestPath{}) {
				t.Errorf("%q: the path is %+v, with the error %v", written, p, err)
			}
			return
		}
		again, err := parsePath(p.sent)
		if p.isChanged = false; err != nil || again != p {
			t.Errorf("%q: %+v is read again as %+v, %v", written, p, again, err)
		}
		decoded, err := url.PathUnescape(p.sent)
		if err != nil || decoded != p.split {
			t.Errorf("%q: the sent path is decoded as %q, want %q, %v", written, decoded, p.split, err)
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
		if strings.ContainsAny(norm.NFKC.String(p.split), "\\;?#\x00\r\n") || encodedTwice().MatchString(p.split) {
			t.Errorf("%q: %q is ambiguous", written, p.split)
		}
	})
}

// The rule that is proposed for a request has the method and the path of the request. No rule is
// proposed for a path that is long or that the owner could misread.
func TestProposedRule(t *testing.T) {
	for path, want := range map[string]string{
		"/repos/me/x": "GET /repos/me/x", "/": "GET /", "/@me/a-b_c~d+e.f": "GET /@me/a-b_c~d+e.f", "/dir/": "GET /dir/",
		"/a*": "", "/a%20b": "", "/a%22%2C%20%22GET": "", "/a%2Fb": "", "/[a]": "", "/{a,b}": "", "/%C3%A9": "", "/" + strings.Repeat("a", 200): "",
	} {
		p, err := parsePath(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := ruleFor("GET", p); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if p, _ := parsePath("/x"); ruleFor("get", p)+ruleFor("*", p)+ruleFor("GET /** ", p) != "" {
		t.Error("a rule is proposed for something that is no method")
	}
}
