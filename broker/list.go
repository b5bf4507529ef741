package broker

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

func (s *Session) list(r *request) (any, error) {
	var p wire.ListParams
	if err := decode(r, &p); err != nil {
		return nil, err
	}
	switch {
	case p.Limit < 0 || p.Limit > vfs.MaxListLimit:
		return nil, badParams{"params: limit must be from 1 to 10000"}
	case p.Depth < 0:
		return nil, badParams{"params: depth must not be negative"}
	case p.Depth > 0 && !p.Recursive:
		return nil, badParams{"params: depth goes with recursive"}
	}
	if p.Path == "" || p.Path == "." || p.Path == "./" {
		if p.Cursor != "" {
			return nil, badParams{"params: the list of roots has one page; leave the cursor out"}
		}
		return s.listTop(), nil
	}
	q, err := s.path("path", p.Path)
	if err != nil {
		return nil, err
	}
	page, err := s.b.cfg.Tree.List(r.ctx, s.caller, q, vfs.ListOptions{
		Recursive: p.Recursive, Hidden: p.IncludeHidden, Glob: p.Glob, Depth: p.Depth, Limit: p.Limit, Cursor: p.Cursor, Follow: true,
	})
	if err != nil {
		if ge := guardError(err); ge.Kind == names.Invalid && (p.Cursor != "" || p.Glob != "") {
			return nil, badParams{"params: " + ge.Text()}
		}
		return nil, err
	}
	res := &wire.ListResult{Entries: make([]wire.Entry, len(page.Entries)), NextCursor: page.Next}
	for i := range page.Entries {
		res.Entries[i] = entry(&page.Entries[i])
	}
	return res, nil
}

func entry(l *vfs.Listed) wire.Entry {
	full := l.Path.String()
	e := wire.Entry{
		Name: l.Name, Path: full, Type: typeOf(&l.Info), Size: sizeOf(&l.Info), MTime: stamp(l.Info.ModTime()),
	}
	if !utf8.ValidString(l.Name) {
		e.Name, e.RawName = strings.ToValidUTF8(l.Name, "\uFFFD"), base64.StdEncoding.EncodeToString([]byte(l.Name))
	}
	if !utf8.ValidString(full) {
		e.Path, e.RawPath = strings.ToValidUTF8(full, "\uFFFD"), base64.StdEncoding.EncodeToString([]byte(full))
	}
	return e
}

// listTop lists the roots as the directories they are to a peer.
func (s *Session) listTop() *wire.ListResult {
	res := &wire.ListResult{Entries: []wire.Entry{}}
	for _, st := range s.visible() {
		e := wire.Entry{
			Name: string(st.Grant.Root), Path: string(st.Grant.Root), Type: wire.TypeDirectory,
			Mode: st.Grant.Policy.Rights.String(),
		}
		if st.FileRoot {
			e.Type = wire.TypeFile
		}
		res.Entries = append(res.Entries, e)
	}
	return res
}

// visible are the live roots that the session may know of, by name.
func (s *Session) visible() []guard.Status {
	var out []guard.Status
	for _, st := range s.b.cfg.Registry.Roots() {
		if st.State == guard.Live && (st.Grant.Subject == "" || st.Grant.Subject == s.subject) {
			out = append(out, st)
		}
	}
	return out
}
