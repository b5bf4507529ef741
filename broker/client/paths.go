package client

import (
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard/names"
)

// check refuses a path that a request should not carry. It is for early and clear errors;
// the client judges every path again.
func (f *Files) check(method, name string) error {
	if why := f.refusalReason(method, name); why != "" {
		return fault(method, "", names.Invalid, why)
	}
	return nil
}

// refusalReason returns the reason for refusing a path, "" if there is none.
func (f *Files) refusalReason(method, name string) string {
	switch {
	case !utf8.ValidString(name):
		return "the path is not UTF-8"
	case strings.IndexByte(name, 0) >= 0:
		return "the path has a NUL byte"
	case isAbsolute(name) && f.opts.RelativeOnly:
		return "the path is absolute; name the root and what lies in it"
	case isFileURI(name) || isWindows(name):
		if _, err := hostPath(name); err != nil {
			return err.Error()
		}
	case climbs(name):
		return "the path climbs with .."
	case isTop(name) && method != wire.List && method != wire.Consent:
		return "the path is empty; name a root and what lies in it"
	}
	return ""
}

// isTop reports whether a path means the directory of all roots.
func isTop(name string) bool { return path.Clean(name) == "." && !climbs(name) }

// hostPath reads a file URI, a Windows path or a POSIX path, and returns the path.
// The system of the client's machine is not known here, so a URI must be valid for POSIX or for
// Windows.
func hostPath(name string) (string, error) {
	switch {
	case isFileURI(name):
		p, err := names.ParseURI(name)
		if err == nil {
			return p, nil
		}
		p, werr := ParseWindowsURI(name)
		if werr != nil {
			return "", fmt.Errorf("%w; for Windows, %w", err, werr)
		}
		return p, nil
	case name[0] == '/':
		return name, nil
	}
	return windowsPath(name)
}

// splitLast cleans a path that check has accepted, and splits the last element off. A URI becomes
// a path of the client's machine first.
func splitLast(name string) (dir, base string) {
	sep := byte('/')
	if isAbsolute(name) {
		name, _ = hostPath(name)
	}
	if isWindows(name) {
		sep = '\\' // hostPath has cleaned the path
	} else {
		name = path.Clean(name)
	}
	i := strings.LastIndexByte(name, sep)
	dir, base = name[:max(i, 0)], name[i+1:]
	if i == 0 || strings.HasSuffix(dir, ":") {
		dir = name[:i+1] // "/", or the top directory of a drive
	}
	return dir, base
}

// isAbsolute reports whether a path begins like an absolute POSIX path, a file URI or a Windows
// path. The system of the client's machine is not known here.
func isAbsolute(name string) bool {
	return strings.HasPrefix(name, "/") || isFileURI(name) || isWindows(name)
}

func isWindows(name string) bool {
	return strings.HasPrefix(name, `\`) || len(name) >= 2 && name[1] == ':' && isLetter(name[0])
}

func isFileURI(s string) bool { return len(s) >= 5 && strings.EqualFold(s[:5], "file:") }

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
