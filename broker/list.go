package broker

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

func (s *Session) list(r *request, p *wire.ListParams) (any, error) {
	switch {
	case p.Limit < 0 || p.Limit > vfs.MaxListLimit:
		return nil, badParams{text: "params: limit must be from 1 to 10000"}
	case p.Depth < 0:
		return nil, badParams{text: "params: depth must not be negative"}
	case p.Depth > 0 && !p.Recursive:
		return nil, badParams{text: "params: depth goes with recursive"}
	}
	if p.Path == "" || p.Path == "." || p.Path == "./" {
		if p.Cursor != "" {
			return nil, badParams{text: "params: the list of roots has one page; leave the cursor out"}
		}
		if err := s.barred(names.OpOpendir); err != nil {
			return nil, err
		}
		return s.listTop(), nil
	}
	q, err := s.path(r, "path", p.Path)
	if err != nil {
		return nil, err
	}
	page, err := s.b.cfg.Tree.List(r.ctx, s.caller, q, vfs.ListOptions{
		Recursive: p.Recursive, Hidden: p.IncludeHidden, Glob: p.Glob, Depth: p.Depth, Limit: p.Limit, Cursor: p.Cursor, Follow: true,
		NoInfo: p.Metadata != nil && !*p.Metadata, Weigh: weigh,
		Room: func(n int64) error { return s.hold(r, n) },
	})
	if err != nil {
		if ge := guardError(err); ge.Kind == names.Invalid && (p.Cursor != "" || p.Glob != "") {
			return nil, badParams{"params: " + reasonOf(ge), err}
		}
		return nil, err
	}
	return &listResult{page: page, bare: p.Metadata != nil && !*p.Metadata}, nil
}

// longestEntry is how long the JSON of an entry may be without its name and path.
const longestEntry = 112

// weigh returns an upper bound for the length of an entry's JSON, in bytes.
func weigh(l *vfs.Listed) int {
	rel := l.Path.Rel()
	if utf8.ValidString(rel) { // the name stands at the path's end, too
		dir := rel[:len(rel)-len(l.Name)]
		return longestEntry + jsonline.EncodedLen(string(l.Path.Root)) + jsonline.EncodedLen(dir) + 2*jsonline.EncodedLen(l.Name)
	}
	path := l.Path.String()
	const keys = len(`,"rawName":"","rawPath":""`)
	return longestEntry + keys + jsonline.EncodedLen(lossy(l.Name)) + jsonline.EncodedLen(lossy(path)) +
		base64.StdEncoding.EncodedLen(len(l.Name)) + base64.StdEncoding.EncodedLen(len(path))
}

// listResult is a wire.ListResult that encodes itself as JSON.
type listResult struct {
	page vfs.Page
	bare bool // without sizes and times
}

func (r *listResult) appendJSON(b []byte) []byte {
	b = append(b, `{"entries":[`...)
	for i := range r.page.Entries {
		if i > 0 {
			b = append(b, ',')
		}
		b = r.appendEntry(b, &r.page.Entries[i])
	}
	b = append(b, ']')
	if r.page.Next != "" {
		b = jsonline.AppendString(append(b, `,"nextCursor":`...), r.page.Next)
	}
	return append(b, '}')
}

// appendEntry appends the JSON of a wire.Entry, with the fields in the order of that type.
func (r *listResult) appendEntry(b []byte, l *vfs.Listed) []byte {
	name, path := l.Name, l.Path.Rel()
	dir := path[:len(path)-len(name)] // ends in a slash, or is empty
	raw := !utf8.ValidString(path)
	if raw {
		name, dir = lossy(name), lossy(dir)
	}
	b = append(b, `{"name":"`...)
	from := len(b)
	b = jsonline.AppendText(b, name)
	to := len(b)
	b = append(jsonline.AppendText(append(b, `","path":"`...), string(l.Path.Root)), '/')
	b = append(jsonline.AppendText(b, dir), b[from:to]...)
	b = append(append(append(b, `","type":"`...), typeOf(&l.Info)...), '"')
	if !r.bare {
		b = strconv.AppendInt(append(b, `,"size":`...), sizeOf(&l.Info), 10)
		b = append(b, `,"mtime":"`...)
		b = append(l.Info.ModTime().UTC().AppendFormat(b, time.RFC3339Nano), '"')
	}
	if raw {
		if name != l.Name {
			b = appendRaw(append(b, `,"rawName":"`...), l.Name)
		}
		b = appendRaw(append(b, `,"rawPath":"`...), l.Path.String())
	}
	return append(b, '}')
}

func lossy(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func appendRaw(b []byte, s string) []byte {
	return append(base64.StdEncoding.AppendEncode(b, []byte(s)), '"')
}

// listTop lists the roots. A root is shown as a directory, a single-file root as a file.
func (s *Session) listTop() *wire.ListResult {
	res := &wire.ListResult{Entries: []wire.Entry{}}
	for _, st := range s.visible() {
		e := wire.Entry{
			Name: string(st.Grant.Root), Path: string(st.Grant.Root), Type: wire.TypeDirectory,
			Mode: st.Grant.Policy.Rights.Visible().String(),
		}
		if st.FileRoot {
			e.Type = wire.TypeFile
		}
		res.Entries = append(res.Entries, e)
	}
	return res
}

// visible returns the live roots that are shown to the session's subject, sorted by name.
func (s *Session) visible() []guard.Status {
	return s.b.cfg.Registry.ShownRoots(s.subject)
}
