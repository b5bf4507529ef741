package names

import (
	"errors"
	"strings"
	"testing"
)

// uriCase is one URI and its answer. The reason is compared as well: a URI
// refused for something other than its defect is refused by luck.
type uriCase struct {
	name    string
	uri     string
	want    string // the path; empty when refused
	refusal string // part of the reason
}

// uriCases holds every example form of RFC 8089 (sections 2 and 3, appendices B, D, E and F)
// with our result, and then forms that RFC 8089 does not mention.
var uriCases = []uriCase{
	// Section 2 and appendix B.
	{"local, empty authority (B)", "file:///path/to/file", "/path/to/file", ""},
	{"localhost (2)", "file://localhost/path/to/file", "/path/to/file", ""},
	{"localhost in capitals (RFC 3986 3.2.2)", "file://LOCALHOST/x", "/x", ""},
	{"localhost in mixed case", "file://LocalHost/x", "/x", ""},
	{"scheme in capitals (RFC 3986 3.1)", "FILE:///x", "/x", ""},
	{"scheme in mixed case", "File:///x", "/x", ""},
	{"minimal form (B)", "file:/path/to/file", "", "no authority"},
	{"minimal form, short", "file:/x", "", "no authority"},
	{"relative", "file:x", "", "no authority"},
	{"non-local (B)", "file://host.example.com/path/to/file", "", `names the host "host.example.com"`},
	// Appendix D: user information.
	{"user (D)", "file://user@localhost/x", "", "user information"},
	{"user and password", "file://user:secret@localhost/x", "", "user information"},
	{"empty user", "file://@/x", "", "user information"},
	// Appendix E.2 and F: DOS and Windows drive letters.
	{"drive (E.2)", "file:///c:/path/to/file", "", "drive form"},
	{"drive, localhost", "file://localhost/c:/x", "", "drive form"},
	{"drive, capital", "file:///C:/x", "", "drive form"},
	{"drive, alone", "file:///c:", "", "drive form"},
	{"drive, vertical bar (E.2.2)", "file:///C|/x", "", "drive form"},
	{"drive, bar encoded", "file:///c%7C/x", "", "drive form"},
	{"drive, colon encoded", "file:///c%3A/x", "", "drive form"},
	{"drive, letter encoded", "file:///%63:/x", "", "drive form"},
	{"drive, minimal (E.2)", "file:c:/path/to/file", "", "no authority"},
	{"drive, minimal with slash (E.2)", "file:/c:/path/to/file", "", "no authority"},
	{"drive, minimal with bar (E.2.2)", "file:c|/path/to/file", "", "no authority"},
	{"drive as authority", "file://c:/path/to/file", "", `names the host "c:"`},
	{"longer than a drive", "file:///cc:/x", "/cc:/x", ""},
	{"a name that begins like a drive", "file:///c:x", "/c:x", ""},
	{"a drive below the top", "file:///a/c:/x", "/a/c:/x", ""},
	{"a digit is no drive", "file:///1:/x", "/1:/x", ""},
	// Appendix E.3: UNC.
	{"UNC as authority (E.3.1)", "file://host.example.com/Share/path/to/file.txt", "", `names the host "host.example.com"`},
	{"UNC as path (E.3.2)", "file:////host.example.com/path/to/file", "", "UNC"},
	{"UNC, five slashes (E.3.2)", "file://///host.example.com/path/to/file", "", "UNC"},
	{"UNC, localhost", "file://localhost//server/share", "", "UNC"},
	{"share", "file://server/share", "", `names the host "server"`},

	// Other schemes, and texts that are not URIs, are refused (R156).
	{"http", "http://localhost/x", "", `scheme "http"`},
	{"https", "https://example.com/x", "", `scheme "https"`},
	{"a longer scheme", "files:///x", "", `scheme "files"`},
	{"white space before", " file:///x", "", `scheme " file"`},
	{"no scheme", "/x", "", "not a URI"},
	{"empty scheme", "://x", "", "not a URI"},
	{"empty", "", "", "not a URI"},
	{"scheme only", "file:", "", "no authority"},
	{"one slash", "file:/", "", "no authority"},
	{"no path", "file://", "", "no path"},
	{"host and no path", "file://localhost", "", "no path"},

	// Hosts: nothing but localhost is local (R199).
	{"another host", "file://example.com/x", "", `names the host "example.com"`},
	{"address", "file://127.0.0.1/x", "", `names the host "127.0.0.1"`},
	{"address, version 6", "file://[::1]/x", "", `names the host "[::1]"`},
	{"port", "file://localhost:80/x", "", `names the host "localhost:80"`},
	{"empty port", "file://localhost:/x", "", `names the host "localhost:"`},
	{"trailing dot", "file://localhost./x", "", `names the host "localhost."`},
	{"longer", "file://localhost.evil/x", "", `names the host "localhost.evil"`},
	{"encoded", "file://%6cocalhost/x", "", `names the host "%6cocalhost"`},
	// Unicode folds U+017F, the long s, with s.
	{"folded", "file://localho\u017ft/x", "", "names the host"},
	{"host .. is a host", "file://../x", "", `names the host ".."`},

	// Query and fragment.
	{"query", "file:///x?q=1", "", "query or a fragment"},
	{"empty query", "file:///x?", "", "query or a fragment"},
	{"fragment", "file:///x#top", "", "query or a fragment"},
	{"query in the authority", "file://?/x", "", "query or a fragment"},
	{"encoded ? and #", "file:///a%3Fb%23c", "/a?b#c", ""},

	// Percent forms (R201).
	{"space", "file:///a%20b", "/a b", ""},
	{"percent", "file:///100%25", "/100%", ""},
	{"decoded once only", "file:///a%252Fb", "/a%2Fb", ""},
	{"dots encoded twice are a name", "file:///%252e%252e/x", "/%2e%2e/x", ""},
	{"lower and upper hex", "file:///%c3%A4", "/ä", ""},
	{"not UTF-8", "file:///%FF%fe", "/\xff\xfe", ""},
	{"newline", "file:///a%0Ab", "/a\nb", ""},
	{"backslash is a byte of the name", "file:///a%5C..%5Cb", `/a\..\b`, ""},
	{"slash", "file:///a%2Fb", "", "percent form %2F"},
	{"slash, lower case", "file:///a%2fb", "", "percent form %2f"},
	{"UNC by encoded slash", "file:///%2Fserver/share", "", "percent form %2F"},
	{"NUL", "file:///a%00", "", "percent form %00"},
	{"bare NUL", "file:///a\x00b", "", "NUL byte"},
	{"truncated to %", "file:///a%", "", "ends inside a percent form"},
	{"truncated to one digit", "file:///a%4", "", "ends inside a percent form"},
	{"not hexadecimal", "file:///a%zz", "", `malformed percent form "%zz"`},
	{"second digit not hexadecimal", "file:///a%2g", "", `malformed percent form "%2g"`},
	{"two percent signs", "file:///a%%20", "", `malformed percent form "%%2"`},
	{"sign in place of a digit", "file:///a%+1b", "", `malformed percent form "%+1"`},
	{"percent before the slash", "file:///a%2/b", "", `malformed percent form "%2/"`},

	// Traversal (R109).
	{"..", "file:///a/../b", "", "dot element"},
	{".. at the top", "file:///..", "", "dot element"},
	{".. at the end", "file:///a/..", "", "dot element"},
	{"%2e%2e", "file:///a/%2e%2e/b", "", "dot element"},
	{"%2E%2E", "file:///a/%2E%2E", "", "dot element"},
	{"mixed, .%2e", "file:///a/.%2e/b", "", "dot element"},
	{"mixed, %2E.", "file:///a/%2E./b", "", "dot element"},
	{".", "file:///a/./b", "", "dot element"},
	{"%2e", "file:///a/%2e/b", "", "dot element"},
	{"three dots are a name", "file:///a/.../b", "/a/.../b", ""},
	{"dot file", "file:///a/.b", "/a/.b", ""},

	// Cleaning.
	{"top", "file:///", "/", ""},
	{"top, localhost", "file://localhost/", "/", ""},
	{"trailing slash", "file:///a/b/", "/a/b", ""},
	{"repeated slashes", "file:///a//b///c", "/a/b/c", ""},
	{"tilde is a byte of the name", "file:///~/x", "/~/x", ""},
	{"plus is a plus", "file:///a+b", "/a+b", ""},
}

// R228 (RFC 8089), R198 (scheme, host, path), R199 (local forms), R201
// (percent-encoding), R109 (traversal), R128 and R130 (malformed URIs and
// paths), R156 (the scheme).
func TestParseURI_R228_R198_R199_R201_R109_R128_R130_R156(t *testing.T) {
	for _, c := range uriCases {
		t.Run(c.name, func(t *testing.T) {
			got, err := ParseURI(c.uri)
			if c.refusal == "" {
				if err != nil || got != c.want {
					t.Fatalf("ParseURI(%q) = %q, %v; want %q", c.uri, got, err, c.want)
				}
				return
			}
			if got != "" || !errors.Is(err, Invalid) {
				t.Fatalf("ParseURI(%q) = %q, %v; want Invalid", c.uri, got, err)
			}
			if code := Reason(err).Code(); code != InvalidPath {
				t.Errorf("code %s, want %s", code, InvalidPath)
			}
			// The reason follows the quoted URI, which could hold the word too.
			reason := strings.TrimPrefix(err.Error(), "URI "+Quote(c.uri)+" ")
			if reason == err.Error() || !strings.Contains(reason, c.refusal) {
				t.Errorf("ParseURI(%q): %v; the reason should say %q", c.uri, err, c.refusal)
			}
		})
	}
}

// A refused URI is shown to people; it must not forge a line (R109).
func TestParseURIErrorIsOneLine_R109(t *testing.T) {
	for _, uri := range []string{
		"file:///a\nroot: approved/..",
		"file://evil\u202e/x",
		"ht\ntp://x",
		"file:///%\n\n",
		"file:///%\xff\xff",
	} {
		_, err := ParseURI(uri)
		if err == nil {
			t.Errorf("ParseURI(%q) was accepted", uri)
			continue
		}
		checkShown(t, err.Error())
	}
}

// The file system judges the length (a root may lie deeper than PATH_MAX, because paths are
// walked in pieces). So a long URI is accepted, or refused because of a mistake at its end
// (R128).
func TestParseURILong_R128(t *testing.T) {
	long := strings.Repeat("/"+strings.Repeat("x", 200), 5000)
	if got, err := ParseURI("file://" + long); err != nil || got != long {
		t.Errorf("a path of %d bytes: %d bytes, %v", len(long), len(got), err)
	}
	encoded := strings.Repeat("/%78", 100_000)
	if got, err := ParseURI("file://" + encoded); err != nil || got != strings.Repeat("/x", 100_000) {
		t.Errorf("a URI of %d bytes: %d bytes, %v", len(encoded), len(got), err)
	}
	for _, end := range []string{"/..", "/%2e%2e", "%2F", "%00", "%2", "?", "#"} {
		if got, err := ParseURI("file://" + long + end); !errors.Is(err, Invalid) {
			t.Errorf("a long URI ending in %q: %d bytes, %v; want Invalid", end, len(got), err)
		}
	}
}

// R222: a path becomes a URI and then the same path again. The URI is compared as well, because
// a peer's parser reads it.
func TestFormatURIRoundTrip_R222(t *testing.T) {
	for _, c := range []struct{ path, uri string }{
		{"/", "file:///"},
		{"/home/u/project", "file:///home/u/project"},
		{"/with space", "file:///with%20space"},
		{"/a#b", "file:///a%23b"},
		{"/100%", "file:///100%25"},
		{"/%2F", "file:///%252F"},
		{"/%2e%2e", "file:///%252e%252e"},
		{"/what?", "file:///what%3F"},
		{"/\xff\xfe/x", "file:///%FF%FE/x"},
		{"/ä", "file:///%C3%A4"},
		{"/\u202e", "file:///%E2%80%AE"},
		{"/new\nline", "file:///new%0Aline"},
		{`/back\slash`, "file:///back%5Cslash"},
		{`/"quoted"`, "file:///%22quoted%22"},
		{"/a|b^c`d{e}[f]<g>", "file:///a%7Cb%5Ec%60d%7Be%7D%5Bf%5D%3Cg%3E"},
		{"/-._~!$&'()*+,;=:@", "file:///-._~!$&'()*+,;=:@"},
		{"/...", "file:///..."},
		{"/tmp/scratch dir/#1 50%?", "file:///tmp/scratch%20dir/%231%2050%25%3F"},
	} {
		uri := FormatURI(c.path)
		if uri != c.uri {
			t.Errorf("FormatURI(%q) = %q, want %q", c.path, uri, c.uri)
		}
		if got, err := ParseURI(uri); err != nil || got != c.path {
			t.Errorf("ParseURI(%q) = %q, %v; want %q", uri, got, err, c.path)
		}
	}
}

// R222, R201: every byte that a name can have is preserved between two other bytes.
func TestFormatURIEveryByte_R222_R201(t *testing.T) {
	for b := 1; b < 256; b++ {
		if b == '/' {
			continue
		}
		p := "/dir/a" + string([]byte{byte(b)}) + "z"
		uri := FormatURI(p)
		for i := 0; i < len(uri); i++ {
			if uri[i] <= ' ' || uri[i] >= 0x7f {
				t.Fatalf("FormatURI(%q) = %q holds the byte %#x bare", p, uri, uri[i])
			}
		}
		if got, err := ParseURI(uri); err != nil || got != p {
			t.Errorf("ParseURI(%q) = %q, %v; want %q", uri, got, err, p)
		}
	}
}

// There is one intended gap in the round trip: a directory that is named like a Windows drive
// is refused in every spelling, so no URI can name it.
func TestFormatURIDriveIsRefused_R222(t *testing.T) {
	for _, p := range []string{"/c:", "/c:/x", "/Z|/x"} {
		if got, err := ParseURI(FormatURI(p)); !errors.Is(err, Invalid) {
			t.Errorf("ParseURI(FormatURI(%q)) = %q, %v; want Invalid", p, got, err)
		}
	}
}
