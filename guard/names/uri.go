package names

import (
	"path"
	"strconv"
	"strings"
)

// ParseURI reads a file URI (RFC 8089) and returns the local absolute path that the URI names,
// cleaned by path.Clean. It accepts the POSIX forms only: file:///path and
// file://localhost/path. Percent-encoded bytes need not be UTF-8. These are refused, with an
// error that says why:
//   - other schemes, and other hosts
//   - user information, ports, queries and fragments
//   - the minimal form file:/path (RFC 8089, appendix B), about which readers disagree
//   - "/" and NUL, if they are percent-encoded
//   - the elements "." and "..", percent-encoded or not
//   - the Windows drive and UNC forms (appendix E), which name nothing on POSIX
func ParseURI(s string) (hostPath string, err error) {
	authority, rest, err := splitURI(s)
	if err != nil {
		return "", err
	}
	if authority != "" && !isLocalhost(authority) {
		return "", badURI(s, "names the host "+QuoteShort(authority)+"; only localhost is local")
	}
	if strings.HasPrefix(rest, "//") {
		return "", badURI(s, "is a Windows network (UNC) form")
	}
	p, why := Unescape(rest, "/")
	if why != "" {
		return "", badURI(s, why)
	}
	if isDrive(p) {
		return "", badURI(s, "is a Windows drive form")
	}
	for elem := range strings.SplitSeq(p, "/") {
		if elem == "." || elem == ".." {
			return "", badURI(s, "has a dot element; write the path without it")
		}
	}
	return path.Clean(p), nil
}

// FormatURI is the inverse of ParseURI for an absolute, clean path, unless the path has a Windows
// drive form, which ParseURI refuses. Every byte that RFC 3986 does not allow bare in a path
// segment is percent-encoded.
func FormatURI(hostPath string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	b.WriteString("file://")
	for i := 0; i < len(hostPath); i++ {
		c := hostPath[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9',
			strings.IndexByte("/-._~!$&'()*+,;=:@", c) >= 0:
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
	return b.String()
}

// splitURI splits a URI into authority and path, and refuses parts that no file URI has.
func splitURI(s string) (authority, rest string, err error) {
	scheme, after, ok := strings.Cut(s, ":")
	if !ok || scheme == "" {
		return "", "", badURI(s, "is not a URI; it must begin with file://")
	}
	if !strings.EqualFold(scheme, "file") {
		return "", "", badURI(s, "has the scheme "+QuoteShort(scheme)+"; only file is accepted")
	}
	if strings.IndexByte(s, 0) >= 0 {
		return "", "", badURI(s, "has a NUL byte")
	}
	if !strings.HasPrefix(after, "//") {
		return "", "", badURI(s, "has no authority; write file:///path")
	}
	after = after[2:]
	if strings.ContainsAny(after, "?#") {
		return "", "", badURI(s, "has a query or a fragment; encode ? as %3F and # as %23")
	}
	slash := strings.IndexByte(after, '/')
	if slash < 0 {
		return "", "", badURI(s, "has no path")
	}
	if strings.ContainsAny(after[:slash], "@") {
		return "", "", badURI(s, "has user information")
	}
	return after[:slash], after[slash:], nil
}

// Unescape undoes percent-encoding (RFC 3986, section 2.1). It refuses malformed percent forms,
// and those that would change where elements end: the forms of NUL and of the bytes in separators.
// why is the reason of the refusal, or "" if s is accepted.
func Unescape(s, separators string) (text, why string) {
	if strings.IndexByte(s, '%') < 0 {
		return s, ""
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			out = append(out, s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", "ends inside a percent form"
		}
		v, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if err != nil {
			return "", "has the malformed percent form " + Quote(s[i:i+3])
		}
		c := byte(v)
		if c == 0 || strings.IndexByte(separators, c) >= 0 {
			return "", "has the percent form " + s[i:i+3] + " of a separator or of NUL, which may not appear in a path"
		}
		out = append(out, c)
		i += 2
	}
	return string(out), ""
}

// isLocalhost compares ASCII letters only. EqualFold alone would take the long s
// (U+017F, two bytes) for an s; the length rules that out.
func isLocalhost(host string) bool {
	const local = "localhost"
	return len(host) == len(local) && strings.EqualFold(host, local)
}

// isDrive recognises /c:, /c:/x and the older /c|/x.
func isDrive(p string) bool {
	if len(p) < 3 || p[0] != '/' || p[2] != ':' && p[2] != '|' {
		return false
	}
	c := p[1] | 0x20
	return 'a' <= c && c <= 'z' && (len(p) == 3 || p[3] == '/')
}

func badURI(uri, why string) error {
	return &Error{Kind: Invalid, Err: textError("URI " + QuoteShort(uri) + " " + why)}
}
