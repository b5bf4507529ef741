package client

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rootsfs/rootsfs/guard/names"
)

// ParseWindowsURI reads a file URI by the rules of Windows (RFC 8089, appendices E and F)
// and returns the absolute path in its usual form, "C:\a\b" or "\\server\share\a". Drive
// forms are file:///c:/x, file:///c|/x and file://localhost/c:/x; network forms are
// file://server/share/x and file:////server/share/x. It refuses, each with its reason:
// other schemes, URIs without an authority, user information, ports, queries, fragments,
// percent forms of separators and NUL, and "..". It drops ".". It also refuses paths that
// Windows would read as something else: device names, streams, names that end in a dot or
// a space. Percent-encoded text must be UTF-8.
func ParseWindowsURI(s string) (string, error) {
	if !isFileURI(s) {
		return "", badWindows(s, "is not a file URI")
	}
	rest := s[len("file:"):]
	switch {
	case !strings.HasPrefix(rest, "//"):
		return "", badWindows(s, "has no authority; write file:///c:/path")
	case strings.ContainsAny(rest, "?#"):
		return "", badWindows(s, "has a query or a fragment")
	case strings.IndexByte(rest, '\\') >= 0:
		return "", badWindows(s, "has a backslash; a URI separates with /")
	}
	host, path, ok := strings.Cut(rest[2:], "/")
	if !ok {
		return "", badWindows(s, "has no path")
	}
	if strings.ContainsAny(host, "@:%") {
		return "", badWindows(s, "has user information, a port or a percent form in its host")
	}
	path, why := names.Unescape(path, `/\`)
	if why != "" {
		return "", badWindows(s, why)
	}
	path = strings.ReplaceAll(path, "/", `\`)
	if host != "" && !strings.EqualFold(host, "localhost") {
		return windowsPath(`\\` + host + `\` + path)
	}
	if len(path) >= 2 && path[1] == '|' && isLetter(path[0]) {
		path = path[:1] + ":" + path[2:]
	}
	if strings.HasPrefix(path, `\`) { // file:////server/share
		return windowsPath(`\` + path)
	}
	return windowsPath(path)
}

// windowsPath reads an absolute Windows path or a file URI. It returns drive
// letters in upper case and separators as backslashes.
func windowsPath(s string) (string, error) {
	if isFileURI(s) {
		return ParseWindowsURI(s)
	}
	if !utf8.ValidString(s) {
		return "", badWindows(s, "is not UTF-8")
	}
	p := strings.ReplaceAll(s, "/", `\`)
	switch {
	case inDeviceSpace(p):
		return "", badWindows(s, "names the device space")
	case strings.HasPrefix(p, `\\`):
		return uncPath(s, p[2:])
	case len(p) >= 2 && p[1] == ':' && isLetter(p[0]):
		drive := strings.ToUpper(p[:1]) + ":"
		if len(p) == 2 {
			return drive, nil // file:///c: means the drive
		}
		if p[2] != '\\' {
			return "", badWindows(s, "is relative to a drive's working directory")
		}
		return joinWindows(s, drive, p[3:])
	}
	return "", badWindows(s, "is not absolute; write C:\\path or \\\\server\\share\\path")
}

// inDeviceSpace reports whether a path with backslashes lies in the device space, outside
// any drive or share.
func inDeviceSpace(p string) bool {
	return strings.HasPrefix(p, `\\?\`) || strings.HasPrefix(p, `\\.\`) || strings.HasPrefix(p, `\??\`)
}

func uncPath(whole, p string) (string, error) {
	server, rest, _ := strings.Cut(p, `\`)
	share, rest, _ := strings.Cut(rest, `\`)
	if server == "" || share == "" {
		return "", badWindows(whole, "names no share of a server")
	}
	for _, e := range []string{server, share} {
		if why := badElement(e); why != "" {
			return "", badWindows(whole, why)
		}
	}
	return joinWindows(whole, `\\`+server+`\`+share, rest)
}

func joinWindows(whole, volume, rest string) (string, error) {
	var b strings.Builder
	b.WriteString(volume)
	for elem := range strings.SplitSeq(rest, `\`) {
		if elem == "" || elem == "." {
			continue
		}
		if why := badElement(elem); why != "" {
			return "", badWindows(whole, why)
		}
		b.WriteByte('\\')
		b.WriteString(elem)
	}
	return b.String(), nil
}

// badElement returns the reason why e is not a plain Windows name: for example, e is a dot element
// or a device name, or has a forbidden character. It returns "" for a plain name. e must not be
// empty.
func badElement(e string) string {
	if e == "." || e == ".." {
		return "has a dot element"
	}
	if last := e[len(e)-1]; last == '.' || last == ' ' {
		return "has an element that ends in a dot or a space, which Windows drops"
	}
	for _, r := range e {
		if r < ' ' || strings.ContainsRune(`<>:"|?*`, r) {
			return "has a character that no Windows name may have"
		}
	}
	base, _, _ := strings.Cut(e, ".")
	if devices[strings.ToUpper(strings.TrimRight(base, " "))] {
		return "has a device name"
	}
	return ""
}

// devices are the names that Windows takes for a device, also with an extension.
var devices = func() map[string]bool {
	m := map[string]bool{"CON": true, "PRN": true, "AUX": true, "NUL": true, "CONIN$": true, "CONOUT$": true}
	for _, port := range "0123456789¹²³" { // Windows takes the superscript digits for digits
		m["COM"+string(port)], m["LPT"+string(port)] = true, true
	}
	return m
}()

// foldWindows makes two spellings of one Windows path equal. It folds only
// letters that are each other's upper and lower case: folding wider than NTFS
// does (K and the Kelvin sign, s and the long s) would take two directories for
// one.
func foldWindows(s string) string {
	return strings.Map(func(r rune) rune {
		if up := unicode.ToUpper(r); up <= 0xffff && unicode.ToLower(up) == r {
			return up
		}
		return r
	}, s)
}

func badWindows(s, why string) error {
	return invalidPath(names.QuoteShort(s) + " " + why)
}
