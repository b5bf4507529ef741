package tools

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
	"github.com/rootsfs/rootsfs/vfs"
)

// maxPrefetch is how many directories a walk lists ahead. If the answer ends before the walk
// reaches them, these pages were read in vain.
const maxPrefetch = 4

// walk visits a tree depth first, the names of each page of a directory in order. It holds a page
// of each directory from the start down to the present one, and of up to maxPrefetch directories
// ahead: the walk's memory grows with the depth of the tree, not with the tree's size. The walk
// follows no links below its start, so it does not leave the tree, even if names are exchanged
// meanwhile.
type walk struct {
	c      *call // a copy of the call, whose context ends with the walk
	cancel context.CancelFunc
	opts   walkOptions
	start  guard.Path
	prefix int // length of the start's path with the slash after it; 0: the start is a root
	levels []level
	// maxPath is the length, in bytes, of the longest path that may be compared with all the
	// patterns: a comparison cannot be interrupted.
	maxPath     int
	seen        int64       // names seen, and also further pages read and directories left
	report      func(int64) // reports seen to the client
	current     visit       // the name that visits has yielded last
	prefetched  int         // directories that are listed, or being listed, and not entered
	prefetching sync.WaitGroup
	listings    chan func() listing // what the goroutines that list ahead do next; nil: there are none
}

// walkOptions select the names that a walk leaves out. Everything below such a name is left
// out, too.
type walkOptions struct {
	depth   int // levels that the walk goes down; 0: no limit
	exclude []pattern.Glob
	ignores *ignores     // nil: nothing is ignored
	match   pattern.Glob // what the caller compares each path with; "": nothing
}

// level is a directory that the walk has entered and not left.
type level struct {
	path  guard.Path
	list  []entry // the rest of the page
	ahead int     // how many entries of list lookAhead has checked
	page  string  // the cursor of the page
	next  string  // the cursor of the next page; "": there is none
	last  string  // the name visited last
}

// mark is a level in a cursor.
type mark struct {
	Page string `json:"p,omitempty"`
	Name string `json:"n"`
}

// visit is a name that a walk comes to.
type visit struct {
	entry
	rel   string // its path below the start
	depth int    // of the directory it is in; the start has 0
}

// listing is the first page of a directory.
type listing struct {
	list []entry
	next string
	err  error
}

// walk begins a walk at a path. cursor is where an earlier answer ended.
func (c *call) walk(p guard.Path, opts walkOptions, cursor string) (*walk, error) {
	own := *c
	w := &walk{c: &own, opts: opts, report: c.progress(), maxPath: maxPath(append([]pattern.Glob{opts.match}, opts.exclude...))}
	own.ctx, w.cancel = context.WithCancel(c.ctx)
	var resume []mark
	if cursor != "" {
		raw, err := base64.RawURLEncoding.DecodeString(cursor)
		if err != nil || json.Unmarshal(raw, &resume) != nil || len(resume) == 0 {
			return nil, invalid("arguments: cursor is not one of this answer; call again without it")
		}
	}
	// Links in the path itself are followed once. Links below it are not followed.
	var err error
	if w.start, err = c.s.cfg.Tree.Follow(c.ctx, c.s.caller, p, true); err != nil {
		return nil, err
	}
	if !w.start.IsRoot() {
		w.prefix = len(w.start.Rel()) + 1
	}
	if err = w.enter(&entry{path: w.start}, resume); err != nil {
		w.close()
	}
	return w, err
}

// close ends the prefetching.
func (w *walk) close() {
	w.cancel()
	if w.listings != nil {
		close(w.listings)
	}
	w.prefetching.Wait()
}

// visits yields the names that are not left out, and closes the walk. A visit is valid until the
// next one is yielded. A directory is entered before it is yielded, so that a cursor of that moment
// goes on inside it.
func (w *walk) visits() iter.Seq2[*visit, error] {
	return func(yield func(*visit, error) bool) {
		defer w.close()
		for {
			v, err := w.next()
			if v == nil && err == nil || !yield(v, err) || err != nil {
				return
			}
		}
	}
}

// next returns the next name, or nil at the end.
func (w *walk) next() (*visit, error) {
	for len(w.levels) > 0 {
		if err := w.c.ctx.Err(); err != nil {
			return nil, err
		}
		if w.seen++; w.seen%256 == 0 {
			w.report(w.seen)
		}
		depth := len(w.levels) - 1
		l := &w.levels[depth]
		if len(l.list) == 0 {
			if l.next == "" {
				w.levels = w.levels[:depth]
				continue
			}
			var err error
			l.page = l.next
			if l.list, l.next, err = w.c.page(l.path, vfs.ListOptions{Cursor: l.page, NoInfo: true}); err != nil {
				return nil, err
			}
			continue
		}
		v := &w.current
		v.entry, v.depth = l.list[0], depth
		v.rel = w.rel(&v.entry)
		l.list[0].prefetched = nil // else the page would keep the listing alive
		l.list, l.ahead, l.last = l.list[1:], max(0, l.ahead-1), v.name
		if len(v.rel) > w.maxPath {
			return nil, invalid("arguments: the patterns are too much to be compared with a path of %d bytes: "+
				"write fewer of them or fewer braces, or search less deep", len(v.rel))
		}
		if w.excludes(depth, &v.entry) {
			continue
		}
		return v, w.down(&v.entry, nil)
	}
	return nil, nil
}

// rel returns the path of a name below the start.
func (w *walk) rel(e *entry) string { return e.path.Rel()[w.prefix:] }

// excludes reports whether a name in a directory of this depth is left out.
func (w *walk) excludes(depth int, e *entry) bool {
	return w.opts.ignores != nil && w.opts.ignores.isIgnored(depth, e) || matchesAny(w.opts.exclude, w.rel(e))
}

// enters reports whether the walk enters the subdirectories of a directory of this depth.
func (w *walk) enters(depth int) bool { return w.opts.depth == 0 || depth+1 < w.opts.depth }

// down enters an entry of the innermost directory, if the entry is a directory and the depth
// allows it. down skips a directory that cannot be read, or has gone (see skipUnreadable).
func (w *walk) down(e *entry, resume []mark) error {
	if !e.isDir() || !w.enters(len(w.levels)-1) {
		return nil
	}
	w.lookAhead()
	if err := w.enter(e, resume); err != nil {
		return w.c.skipUnreadable(w.start, w.rel(e), err)
	}
	return nil
}

// enter makes a directory the innermost one. If an earlier answer ended in the directory,
// resume has the marks of the levels from this one on.
func (w *walk) enter(dir *entry, resume []mark) error {
	l := level{path: dir.path}
	if len(resume) > 0 {
		l.page, l.last = resume[0].Page, resume[0].Name
	}
	var err error
	if dir.prefetched != nil {
		w.prefetched--
		first := dir.prefetched()
		l.list, l.next, err = first.list, first.next, first.err
	} else {
		l.list, l.next, err = w.c.page(l.path, vfs.ListOptions{Cursor: l.page, NoInfo: true})
	}
	if err == nil && w.opts.ignores != nil {
		err = w.opts.ignores.enter(len(w.levels), l.path, l.list, l.page == "" && l.next == "")
	}
	if err != nil {
		return err
	}
	i := 0
	for len(resume) > 0 && i < len(l.list) && l.list[i].name <= l.last {
		i++
	}
	seen := l.list[:i]
	l.list = l.list[i:]
	w.levels = append(w.levels, l)
	if len(resume) > 1 && i > 0 && seen[i-1].name == l.last {
		return w.down(&seen[i-1], resume[1:])
	}
	return nil
}

// skipUnreadable returns nil for an error about one name of a tree: the call goes on without the
// name, and the answer's note lists it unless it is missing. An error that the rest of the tree
// will meet, too, is returned and ends the call: otherwise a part of the answer would look like
// the whole.
func (c *call) skipUnreadable(start guard.Path, name string, err error) error {
	ge, ok := errors.AsType[*guard.Error](err)
	if !ok || c.ctx.Err() != nil {
		return err
	}
	switch ge.Kind.About() {
	case names.AboutMoment:
		return err
	case names.AboutRoot:
		// Is the ended root the tree's own, or one nested there?
		if _, _, err = c.s.cfg.Tree.Stat(c.ctx, c.s.caller, start); err != nil {
			return err
		}
	case names.AboutMissing: // it has gone since it was listed
		return nil
	case names.AboutName, names.AboutRequest:
	}
	c.unread.add(name)
	return nil
}

// maxUnread is how many names that could not be read an answer's note lists.
const maxUnread = 10

// unread are the names that a call passed over because they could not be read.
type unread struct {
	first []string // at most maxUnread
	count int
}

func (u *unread) add(name string) {
	if u.count++; len(u.first) < maxUnread {
		u.first = append(u.first, names.QuoteShort(name))
	}
}

// note returns a sentence about these names, and then the note next.
func (u *unread) note(next string) string {
	if u.count == 0 {
		return next
	}
	more := ""
	if n := u.count - len(u.first); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return strings.TrimSpace(fmt.Sprintf("Could not be read: %s%s. %s", strings.Join(u.first, ", "), more, next))
}

// lookAhead begins to list directories that the walk will enter later, up to maxPrefetch of them.
// It looks for them in the remaining entries of the levels, the innermost level first.
func (w *walk) lookAhead() {
	for depth := len(w.levels) - 1; depth >= 0; depth-- {
		l := &w.levels[depth]
		for ; l.ahead < len(l.list); l.ahead++ {
			if w.prefetched == maxPrefetch {
				return
			}
			e := &l.list[l.ahead]
			if e.isDir() && len(w.rel(e)) <= w.maxPath && !w.excludes(depth, e) {
				w.prefetch(e)
			}
		}
	}
}

// prefetch begins to list a directory. If the walk reaches the directory before the listing has
// begun, as on a busy machine, the walk lists it itself. Each directory is listed once.
func (w *walk) prefetch(e *entry) {
	p := e.path
	e.prefetched = sync.OnceValue(func() (l listing) {
		defer func() {
			if v := recover(); v != nil {
				l.err = w.c.s.recordPanic("listing ahead", v)
			}
		}()
		if l.err = w.c.ctx.Err(); l.err == nil {
			l.list, l.next, l.err = w.c.page(p, vfs.ListOptions{NoInfo: true})
		}
		return l
	})
	w.prefetched++
	if w.listings == nil {
		w.listings = make(chan func() listing, maxPrefetch)
		for range maxPrefetch {
			w.prefetching.Go(func() {
				for list := range w.listings {
					list()
				}
			})
		}
	}
	w.listings <- e.prefetched
}

// cursor returns the position of the walk, from which a later answer goes on.
func (w *walk) cursor() string {
	marks := make([]mark, len(w.levels))
	for i := range w.levels {
		marks[i] = mark{w.levels[i].page, w.levels[i].last}
	}
	raw, _ := json.Marshal(marks) // strings: cannot fail
	return base64.RawURLEncoding.EncodeToString(raw)
}
