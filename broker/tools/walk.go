package tools

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
)

// walk goes through a tree depth first, each directory's names sorted, one page
// of one directory at a time, and of a few that come next: what it holds grows with
// the depth, not with the tree. Directories are listed without following links, so
// that whatever is exchanged meanwhile, it stays where it began. Who has one closes
// it.
type walk struct {
	c      *call
	how    walkHow
	levels []level
	after  []mark // where an earlier answer ended
	start  guard.Path
	begin  int // of the part of a path below the start
	ahead  ahead
	// longest is the path, in bytes, that may be compared with all the patterns:
	// nothing can stop a comparison.
	longest int
	seen    int64
	report  func(int64)
}

// walkHow is what a walk leaves out, with all that lies below it.
type walkHow struct {
	depth   int // levels that it goes down; 0: no limit
	exclude []string
	ignores *ignores // is told of each directory; nil: nothing is ignored
	match   string   // what the caller compares each path with
}

// level is one directory on the way down.
type level struct {
	path  guard.Path
	list  []entry // of the page, those still to come
	asked int     // of these, from the first on, those looked at to be listed ahead
	page  string  // the cursor that gave the page
	next  string  // the cursor of the next one; "": there is none
	last  string  // the name taken last
}

// mark is a level in a cursor.
type mark struct {
	Page string `json:"p,omitempty"`
	Name string `json:"n"`
}

var errWalkCursor = errors.New("arguments: cursor is not one of this answer; call again without it")

// walk begins at a place; cursor is where an earlier answer ended.
func (c *call) walk(at place, how walkHow, cursor string) (*walk, error) {
	w := &walk{c: c, how: how, report: c.progress(), longest: longest(append([]string{how.match}, how.exclude...))}
	if cursor != "" {
		raw, err := base64.RawURLEncoding.DecodeString(cursor)
		if err == nil {
			err = json.Unmarshal(raw, &w.after)
		}
		if err != nil || len(w.after) == 0 {
			return nil, &guard.Error{Kind: names.Invalid, Err: errWalkCursor}
		}
	}
	// Links of the path itself are followed once; below it none is.
	var err error
	if w.start, err = c.s.cfg.Tree.Follow(c.ctx, c.s.caller, at.Path, true); err != nil {
		return nil, err
	}
	if !w.start.IsRoot() {
		w.begin = len(w.start.Rel()) + 1
	}
	w.ahead.begin(c)
	if err = w.enter(&entry{path: w.start}); err != nil {
		w.close()
	}
	return w, err
}

// enter opens a directory, going on where the cursor says.
func (w *walk) enter(dir *entry) error {
	v := level{path: dir.path}
	var m *mark
	if d := len(w.levels); d < len(w.after) {
		m = &w.after[d]
		v.page, v.last = m.Page, m.Name
	}
	var err error
	if f := w.ahead.take(dir); f != nil {
		v.list, v.next, err = f.list, f.next, f.err
	} else {
		v.list, v.next, err = w.c.page(v.path, v.page, false, false)
	}
	if err != nil {
		return err
	}
	if w.how.ignores != nil {
		if err := w.how.ignores.enter(len(w.levels), v.path, v.list, v.page == "" && v.next == ""); err != nil {
			return err
		}
	}
	if m != nil {
		i := 0
		for i < len(v.list) && v.list[i].name <= m.Name {
			i++
		}
		// The directory the earlier answer was in is gone into again.
		down := len(w.levels)+1 < len(w.after) && i > 0 && v.list[i-1].name == m.Name
		inner := entry{}
		if down {
			inner = v.list[i-1]
		}
		v.list = v.list[i:]
		w.levels = append(w.levels, v)
		if down {
			return w.down(&inner)
		}
		w.after = nil
		return nil
	}
	w.levels = append(w.levels, v)
	return nil
}

// below reports whether directories of the innermost one are gone into.
func (w *walk) below() bool { return w.how.depth == 0 || len(w.levels) < w.how.depth }

// leaves reports whether a name of a level is left out.
func (w *walk) leaves(level int, e *entry) bool {
	return w.how.ignores != nil && w.how.ignores.ignored(level, e) || matchesAny(w.how.exclude, w.rel(e))
}

// rel is the path of a name below the start.
func (w *walk) rel(e *entry) string { return e.path.Rel()[w.begin:] }

// down enters an entry that is a directory; one that cannot be read, or is none
// any more, is passed over.
func (w *walk) down(e *entry) error {
	if !w.below() {
		w.after = nil
		return nil
	}
	err := w.enter(e)
	if err == nil {
		return nil
	}
	w.after = nil
	return w.c.passOver(w.start, err)
}

// passOver is nil for an error that is about one name of a tree, without which the
// call goes on. One that all the rest of the tree will meet ends it: what it has by
// then would pass for the whole.
func (c *call) passOver(start guard.Path, err error) error {
	var ge *guard.Error
	if !errors.As(err, &ge) || c.ctx.Err() != nil {
		return err
	}
	switch ge.Kind { //nolint:exhaustive // the others are about the name
	case names.Rate, names.Timeout:
		return err
	case names.Revoked, names.NoConsent, names.Suspended, names.Unavailable:
		// Of a root nested there, or of the tree's own?
		_, _, err = c.s.cfg.Tree.Stat(c.ctx, c.s.caller, start)
		return err
	}
	return nil
}

// next returns the next name that is not left out; ok is false at the end. rel is
// its path below the start.
func (w *walk) next() (e entry, rel string, ok bool, err error) {
	w.ahead.pass()
	for len(w.levels) > 0 {
		if err := w.c.ctx.Err(); err != nil {
			return e, "", false, err
		}
		if w.seen++; w.seen%256 == 0 {
			w.report(w.seen)
		}
		v := &w.levels[len(w.levels)-1]
		if len(v.list) == 0 {
			if v.next == "" {
				w.levels = w.levels[:len(w.levels)-1]
				continue
			}
			v.page = v.next
			if v.list, v.next, err = w.c.page(v.path, v.page, false, false); err != nil {
				return e, "", false, err
			}
			continue
		}
		e = v.list[0]
		v.list, v.asked, v.last = v.list[1:], max(0, v.asked-1), e.name
		if rel := w.rel(&e); len(rel) > w.longest {
			return e, "", false, invalid("arguments: the patterns are too much to be compared with a path of %d bytes: "+
				"write fewer of them or fewer braces, or search less deep", len(rel))
		}
		if w.leaves(len(w.levels)-1, &e) {
			continue
		}
		w.ahead.passing = e.ahead
		if e.isDir() {
			w.lookAhead()
		}
		return e, w.rel(&e), true, nil
	}
	return e, "", false, nil
}

// cursor is where the walk stands.
func (w *walk) cursor() string {
	marks := make([]mark, len(w.levels))
	for i := range w.levels {
		marks[i] = mark{w.levels[i].page, w.levels[i].last}
	}
	raw, _ := json.Marshal(marks) // strings: cannot fail
	return base64.RawURLEncoding.EncodeToString(raw)
}

type searchArgs struct {
	Path    string   `json:"path"`
	Pattern *string  `json:"pattern"`
	Exclude []string `json:"excludePatterns"`
	Cursor  string   `json:"cursor"`
}

func (c *call) searchFiles() (*result, error) {
	var a searchArgs
	if err := c.args(&a); err != nil {
		return nil, err
	}
	if a.Pattern == nil {
		return nil, c.missing("pattern")
	}
	match, err := c.pattern("pattern", *a.Pattern)
	if err != nil {
		return nil, err
	}
	exclude, err := c.patterns("excludePatterns", a.Exclude)
	if err != nil {
		return nil, err
	}
	at, err := c.place("path", a.Path)
	if err != nil {
		return nil, err
	}
	w, err := c.walk(at, walkHow{exclude: exclude, match: match}, a.Cursor)
	if err != nil {
		return nil, err
	}
	defer w.close()
	var b strings.Builder
	base := c.s.shown(at, w.levels[0].path)
	for {
		e, rel, ok, err := w.next()
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		if pattern.Glob(match).Match(rel) {
			if b.Len() > 0 {
				b.WriteByte('\n')
			}
			b.WriteString(shownName(base + "/" + rel))
		}
		if e.isDir() {
			if err := w.down(&e); err != nil {
				return nil, err
			}
		}
		if b.Len() >= c.s.cfg.Answer {
			return &result{text: b.String(), note: goOn(w.cursor())}, nil
		}
	}
	if b.Len() == 0 {
		return &result{text: "No matches found"}, nil
	}
	return &result{text: b.String()}, nil
}
