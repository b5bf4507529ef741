package names

import (
	"fmt"
	"log/slog"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of names and paths, in bytes.
const (
	// NameMax is NAME_MAX of Linux file systems, linux/limits.h.
	NameMax = 255
	// MaxHostPath is PATH_MAX, linux/limits.h: no system call accepts a path of that many bytes
	// or more. (A Path may be longer: it is walked in parts.)
	MaxHostPath = 4096
	// MaxRootName bounds a root's name, which is one element of a path and a
	// word on the command line.
	MaxRootName = 128
)

// RootName is the unique name of a root within a session. It is the first element of every path
// that a peer sends, and the name of the root's directory in the mount.
type RootName string

// Format implements fmt.Formatter as Foreign does: a server may have chosen the name.
func (n RootName) Format(s fmt.State, verb rune) { Foreign(n).Format(s, verb) }

// LogValue implements slog.LogValuer: see Foreign.
func (n RootName) LogValue() slog.Value { return Foreign(n).LogValue() }

// ParseRootName checks that s can name a root: 1 to MaxRootName bytes of valid UTF-8 that consist of
// graphic characters, without slash, colon, equals sign or comma. NUL, control characters and
// invisible format characters are not graphic. The name must not be "." or "..", begin with a hyphen,
// or begin or end with white space. Colon, equals sign and comma separate the parts of a root SPEC.
func ParseRootName(s string) (RootName, error) {
	bad := func(why string) (RootName, error) {
		return "", &Error{Kind: Invalid, Err: textError("root name " + QuoteShort(s) + " " + why)}
	}
	switch {
	case s == "":
		return bad("is empty")
	case len(s) > MaxRootName:
		return "", &Error{Kind: TooLong, Err: textError("root name is longer than 128 bytes")}
	case s == "." || s == "..":
		return bad("is a dot name")
	case strings.HasPrefix(s, "-"):
		return bad("begins with a hyphen")
	case strings.TrimSpace(s) != s:
		return bad("begins or ends with white space")
	case strings.ContainsAny(s, "/:=,\x00"):
		return bad("has one of the characters / : = , or NUL")
	case !utf8.ValidString(s):
		return bad("is not UTF-8")
	}
	for _, r := range s {
		if unicode.IsControl(r) || !unicode.IsGraphic(r) {
			return bad("has a control character, or one that is invisible")
		}
	}
	return RootName(s), nil
}

// Path is a location inside a root. The zero Path is no location. Only ParsePath, NewPath and Join
// set the elements below the root, so each of these elements is clean. Only ParsePath checks the
// root's name.
type Path struct {
	Root RootName
	rel  string
}

// ParsePath reads the form that peers use, "root/a/b". It drops a trailing slash, repeated
// slashes and "." elements. It refuses "..", because the meaning of ".." depends on links.
func ParsePath(s string) (Path, error) {
	if strings.HasPrefix(s, "/") {
		return Path{}, &Error{Kind: Invalid, Err: textError("path is absolute; it must begin with a root's name")}
	}
	root, rest, _ := strings.Cut(s, "/")
	name, err := ParseRootName(root)
	if err != nil {
		return Path{}, err
	}
	var elems []string
	for elem := range strings.SplitSeq(rest, "/") {
		if elem == "" || elem == "." {
			continue
		}
		elems = append(elems, elem)
	}
	return NewPath(name, strings.Join(elems, "/"))
}

// NewPath makes a path from a root and a relative path whose elements must
// already be clean; "" is the root itself.
func NewPath(root RootName, rel string) (Path, error) {
	if rel == "" {
		return Path{Root: root}, nil
	}
	for elem, rest, more := "", rel, true; more; {
		elem, rest, more = strings.Cut(rest, "/")
		if err := checkElement(elem); err != nil {
			return Path{}, err
		}
	}
	return Path{Root: root, rel: rel}, nil
}

// Join returns the path of the entry called name in directory p.
func (p Path) Join(name string) (Path, error) {
	if err := checkElement(name); err != nil {
		return Path{}, err
	}
	if p.rel == "" {
		return Path{Root: p.Root, rel: name}, nil
	}
	return Path{Root: p.Root, rel: p.rel + "/" + name}, nil
}

// Rel returns the path below the root, without a leading slash; "" for the root.
func (p Path) Rel() string { return p.rel }

// IsRoot reports whether p is a root itself.
func (p Path) IsRoot() bool { return p.rel == "" }

// Split returns the parent directory and the last element. The parent of a
// root is the root, with an empty element.
func (p Path) Split() (dir Path, base string) {
	i := strings.LastIndexByte(p.rel, '/')
	if i < 0 {
		return Path{Root: p.Root}, p.rel
	}
	return Path{Root: p.Root, rel: p.rel[:i]}, p.rel[i+1:]
}

// Under reports whether path is dir or lies below it, by name alone. Both are
// absolute and clean; nothing lies under "".
func Under(path, dir string) bool {
	if dir == "" || !strings.HasPrefix(path, dir) {
		return false
	}
	return len(path) == len(dir) || dir[len(dir)-1] == '/' || path[len(dir)] == '/'
}

// Has reports whether q is p or lies below it.
func (p Path) Has(q Path) bool {
	if p.Root != q.Root {
		return false
	}
	return p.rel == "" || q.rel == p.rel || strings.HasPrefix(q.rel, p.rel+"/")
}

// String returns the form that peers use: the root's name, then the relative path. It never has
// a host path.
func (p Path) String() string {
	if p.rel == "" {
		return string(p.Root)
	}
	return string(p.Root) + "/" + p.rel
}

func checkElement(s string) error {
	switch {
	case s == "":
		return &Error{Kind: Invalid, Err: textError("path has an empty element")}
	case s == "." || s == "..":
		return &Error{Kind: Invalid, Err: textError("path has the element " + Quote(s))}
	case len(s) > NameMax:
		return &Error{Kind: TooLong, Err: textError("path has an element longer than 255 bytes")}
	case strings.IndexByte(s, 0) >= 0:
		return &Error{Kind: Invalid, Err: textError("path has a NUL byte")}
	case strings.IndexByte(s, '/') >= 0:
		return &Error{Kind: Invalid, Err: textError("path element has a slash")}
	}
	return nil
}
