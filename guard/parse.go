package guard

import (
	"errors"
	"maps"
	"path/filepath"
	"strings"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Parse turns the text of a peer into a path inside a root: "name/…", an absolute path inside a
// live root, or a file URI. An absolute path chooses the innermost root that is granted to the
// subject, and of several at one directory the root for the narrowest subject. The path is
// compared as text with the resolved paths of the roots, and with the paths by which the roots
// were approved. If no root contains the path, Parse follows the links that NoteLink has stored,
// as text, and tries again.
// Parse never looks at the file system. So a peer can neither make Parse wait, nor learn anything
// about files outside of the roots. Links are resolved when the path is opened, beneath the root.
func (g *Registry) Parse(who Subject, s string) (Path, error) {
	if strings.HasPrefix(s, "file:") || len(s) > 5 && strings.EqualFold(s[:5], "file:") {
		p, err := names.ParseURI(s)
		if err != nil {
			return Path{}, err
		}
		return g.parseAbs(who, p)
	}
	if strings.HasPrefix(s, "/") {
		if strings.IndexByte(s, 0) >= 0 {
			return Path{}, &Error{Kind: names.Invalid, Err: errors.New("path has a NUL byte")}
		}
		return g.parseAbs(who, s)
	}
	return names.ParsePath(s)
}

// parseAbs is Parse for an absolute path.
func (g *Registry) parseAbs(who Subject, s string) (Path, error) {
	for elem := range strings.SplitSeq(s, "/") {
		if elem == ".." {
			return Path{}, &Error{Kind: names.Invalid, Err: errors.New(`path has the element ".."`)}
		}
	}
	snap, clean := g.snap.Load(), filepath.Clean(s)
	r, rel, ok := snap.find(who, clean)
	if links := g.links.Load(); !ok && links != nil {
		r, rel, ok = snap.find(who, names.FollowLinks(*links, clean))
	}
	if !ok {
		return Path{}, &Error{Kind: names.NoConsent}
	}
	return names.NewPath(r.name, rel)
}

// maxNotedLinks bounds the links that NoteLink stores, because clients name some of them.
const maxNotedLinks = 256

// NoteLink makes Parse follow a link: Parse reads a path that begins with the link's absolute path
// (at) as if it began with target, unless a root contains the path. The caller has checked that at
// leads to target on the host, and that programs can change none of the links between the two.
func (g *Registry) NoteLink(at, target string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	links := map[string]string{}
	if have := g.links.Load(); have != nil {
		maps.Copy(links, *have)
	}
	if links[at] == target || len(links) >= maxNotedLinks {
		return
	}
	links[at] = target
	g.links.Store(&links)
}

// find returns the innermost live root of a subject that contains the absolute, clean path
// p, and the path below that root. p may begin with the resolved path of the root, or with
// the path by which the root was approved. Only text is compared.
func (s *snapshot) find(who Subject, p string) (r *root, rel string, ok bool) {
	_, at := s.innermost(byDir, who, p)
	if r, asked := s.innermost(byRequested, who, p); len(asked) > len(at) {
		p = filepath.Join(r.grant.Resolved, p[len(asked):])
	}
	r, at = s.innermost(byDir, who, p)
	if r == nil || r.src.File() != "" && at != p {
		return nil, "", false
	}
	return r, strings.TrimPrefix(p[len(at):], "/"), true
}

// innermost returns, of the subject's live roots that contain p, the one whose path of the
// given kind is longest, and that path. Its cost is bounded by the length of the roots'
// paths, however many roots there are, and however long a peer makes p.
func (s *snapshot) innermost(kind pathKind, who Subject, p string) (r *root, at string) {
	if len(p) > s.longest {
		p = parentDir(p[:s.longest+1])
	}
	for {
		if r := s.index.live(indexKey{kind, p}, who); r != nil {
			return r, p
		}
		if p == "/" {
			return nil, ""
		}
		p = parentDir(p)
	}
}

// parentDir returns the directory of an absolute, clean path. filepath.Dir would clean the
// whole path again.
func parentDir(p string) string { return p[:max(1, strings.LastIndexByte(p, '/'))] }
