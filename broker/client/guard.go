package client

import (
	"errors"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Platform says how paths of a client are read.
type Platform uint8

const (
	// Local is a client on this machine: links are resolved, ~ and relative
	// paths have a meaning.
	Local Platform = iota
	// POSIX is a client on another machine with POSIX paths, which are judged by name.
	POSIX
	// Windows is a client on another machine with drive and network paths, which
	// are judged by name, without regard to case.
	Windows
)

// Guard answers whether a path lies inside one of a client's roots. It is
// immutable and may be used concurrently; the zero Guard denies everything.
//
// Its answer holds for the moment of the question (see the package comment).
type Guard struct {
	platform Platform
	roots    []string // canonical, without a trailing separator except "/" itself
}

// NewGuard makes a guard. A root is left out if its URI is invalid or cannot be resolved. Paths
// that lie only in such a root are denied. A local root's links are resolved here and not again:
// a root that is replaced by a link later does not widen the guard.
func NewGuard(platform Platform, roots []wire.Root) *Guard {
	g := &Guard{platform: platform}
	for _, r := range roots {
		if !isFileURI(r.URI) {
			continue // a root must be a file URI
		}
		if p, err := g.canonical(r.URI); err == nil {
			g.roots = append(g.roots, p)
		}
	}
	return g
}

// Within reports whether path is a root or lies below one. It takes absolute
// paths and file URIs, and for a local client ~, ~/x and relative paths; other
// forms with "~", such as ~user, are denied. For a local client, links are resolved
// as far as the path exists. For a client on another machine, ".." is denied, because
// its meaning depends on links. A path that cannot be resolved is denied, and for a local
// client also a path that is too long for a system call. Nothing is opened.
func (g *Guard) Within(path string) bool { return g.Check(path) == nil }

// Check is Within with the reason for a denial: names.Invalid for a path that cannot be
// interpreted, names.Escaped for a path outside the roots, and otherwise the reason why the path
// could not be resolved. The error's text quotes the path as it was given, shortened if the path
// is long, and does not say where links lead.
func (g *Guard) Check(path string) error {
	refuse := func(kind names.Kind, why string) error {
		return &names.Error{Kind: kind, Err: errors.New("path " + names.QuoteShort(path) + " " + why)}
	}
	if g == nil || len(g.roots) == 0 {
		return refuse(names.Escaped, "is refused: the client has declared no roots")
	}
	p, err := g.canonical(path)
	switch {
	case errors.Is(err, names.TooLong):
		return refuse(names.TooLong, "is "+strconv.Itoa(len(path))+" bytes long, more than this system takes, so it is taken as outside the client's declared roots")
	case err != nil:
		return refuse(names.Reason(err), "cannot be resolved, so it is taken as outside the client's declared roots")
	case slices.ContainsFunc(g.roots, func(root string) bool { return g.inside(root, p) }):
		return nil
	}
	return refuse(names.Escaped, "is outside the client's declared roots")
}

// Roots returns the canonical paths of the roots. The caller may change the result.
func (g *Guard) Roots() []string {
	if g == nil {
		return nil
	}
	return slices.Clone(g.roots)
}

// inside reports whether p is root or lies below root. It compares whole elements: /home/ab does
// not lie in /home/a.
func (g *Guard) inside(root, p string) bool {
	if g.isWindows() {
		root, p = foldWindows(root), foldWindows(p)
	}
	rest, ok := strings.CutPrefix(p, root)
	sep := g.separator()
	return ok && (rest == "" || rest[0] == sep || root[len(root)-1] == sep)
}

// isWindows reports whether paths have backslashes and are compared without regard to case.
func (g *Guard) isWindows() bool { return g.platform == Windows || g.platform == Local && localWindows }

func (g *Guard) separator() byte {
	if g.isWindows() {
		return '\\'
	}
	return '/'
}

// canonical brings a path into the form that inside compares.
func (g *Guard) canonical(s string) (string, error) {
	switch {
	case s == "" || strings.IndexByte(s, 0) >= 0:
		return "", invalidPath("the path is empty or has a NUL byte")
	case g.platform == Local:
		return resolveLocal(s)
	case g.platform == Windows:
		return windowsPath(s)
	case isFileURI(s):
		return names.ParseURI(s)
	}
	return posixPath(s)
}

// posixPath cleans an absolute path of another machine. It refuses a relative path and a path
// with "..".
func posixPath(s string) (string, error) {
	switch {
	case s[0] != '/':
		return "", invalidPath("not an absolute path")
	case climbs(s):
		return "", invalidPath("a path on another machine may not climb")
	}
	return path.Clean(s), nil
}

// climbs reports whether a path, written with slashes, has the element "..".
func climbs(s string) bool { return strings.Contains("/"+s+"/", "/../") }

func invalidPath(why string) error { return &names.Error{Kind: names.Invalid, Err: errors.New(why)} }
