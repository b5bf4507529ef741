package vfs

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/gate"
	"github.com/rootsfs/rootsfs/vfs/internal/walk"
)

// Limits of List.
const (
	// DefaultListLimit and MaxListLimit bound the entries of one page.
	DefaultListLimit = 1000
	MaxListLimit     = 10_000
	// maxPageBytes bounds the weight of the entries of one page: in a tree of thousands of
	// levels the paths are long.
	maxPageBytes = 2 << 20
	// maxPageScan bounds the names that are examined for one page, so that a pattern with few
	// matches does not hold the root for long.
	maxPageScan = 100_000
	// maxGlob bounds a pattern, in bytes.
	maxGlob = 1024
)

// ListOptions say what List lists. The zero value lists one level, without
// hidden names.
type ListOptions struct {
	Recursive bool
	// Hidden includes names that begin with a dot, and everything below them.
	Hidden bool
	// Glob, unless empty, selects the names to list: a doublestar pattern that is matched
	// against the path of a name below the listed directory ("**/*.go").
	Glob string
	// Depth is how many levels a recursive listing goes down: 1 lists only the directory's own
	// names, 0 is no limit. Levels below the 16,384th are never listed.
	Depth int
	// Limit is how many entries a page has at most: 0 stands for DefaultListLimit, and a number
	// above MaxListLimit for MaxListLimit. A page may have fewer entries, even none, and not be
	// the last.
	Limit int
	// Cursor is the Next of the page before. Recursive, Hidden, Glob, Depth, Follow and NoInfo
	// must be the same as for that page.
	Cursor string
	// Follow resolves links in the listed path. Links in directories are still listed as links.
	Follow bool
	// NoInfo is for callers that want names and types only: attributes of files and links are
	// not read if the directory has their types. Therefore NoInfo also lists a file on which
	// another file is mounted; without NoInfo such a file is left out.
	NoInfo bool
	// Weigh returns how many bytes an entry will take in the caller's answer. When the entries
	// of a page weigh 2 MiB together, the listing goes on in another page. nil: the length of
	// the path.
	Weigh func(e *Listed) int
	// Room, unless nil, is called before the page takes n more bytes of memory (some dozens of
	// KiB), for the page itself and for the weights of Weigh. The bytes are not given back. If
	// Room returns an error, the page ends early. If the page has no entry yet, List returns that
	// error.
	Room func(n int64) error
}

// Listed is one entry of a listing.
type Listed struct {
	Path guard.Path // below the path as it was given
	Name string
	// Info describes the link itself if the entry is a link. For a nested root that the caller
	// may not enter, it has only the type. With NoInfo it has only the type, too.
	Info Info
}

// Page is one part of a listing. Its strings share memory: a caller that keeps one of them for
// long must clone it.
type Page struct {
	Entries []Listed
	// Next is the cursor of the next page, "" after the last.
	Next string
}

// List returns a part of the names in a directory, or in the whole tree below it, depth first,
// each directory before its contents. For each page it passes the gate once and leaves one
// record. The record's count of bytes read is the number of entries.
//
// On file systems whose directory positions stay valid (ext4, xfs, btrfs, tmpfs) an entry that
// exists during the whole listing is returned exactly once, even if other names are added or
// removed meanwhile. Directories that cannot be read, or are nested roots closed to the caller,
// are listed and not entered. A directory that is a mount point is listed only if the grant allows
// other file systems. For a cursor that List has not made, or has made for another listing, the
// error is names.Invalid. Cursors are valid until the process or the root's lifetime ends.
func (t *Tree) List(ctx context.Context, c guard.Caller, p guard.Path, o ListOptions) (Page, error) {
	req := guard.Request{Caller: c, Op: names.OpOpendir, Path: p}
	return gate.Do(ctx, t.reg, req, nil, func(l *guard.Lease) (Page, int64, error) {
		if err := o.check(); err != nil {
			return Page{}, 0, err
		}
		ls := &listing{
			ctx: ctx, l: l, w: walk.New(ctx, l, walk.Options{}), o: o, shown: p, glob: newGlob(o.Glob),
			seal: seal{caller: c, path: p, epoch: l.Epoch(), o: o},
		}
		defer ls.w.Close()
		if err := ls.begin(); err != nil {
			return Page{}, 0, err
		}
		page, err := ls.run()
		return page, int64(len(page.Entries)), err
	})
}

// check refuses options that make no sense, and fills in the limits.
func (o *ListOptions) check() error {
	invalid := func(format string, args ...any) error {
		return &guard.Error{Kind: names.Invalid, Err: fmt.Errorf(format, args...)}
	}
	switch {
	case o.Limit < 0:
		return invalid("the limit of a page is negative")
	case o.Depth < 0:
		return invalid("the depth of a listing is negative")
	case len(o.Glob) > maxGlob:
		return invalid("the pattern is longer than %d bytes", maxGlob)
	}
	if err := pattern.Glob(o.Glob).Check(); err != nil {
		return invalid("%s %w; the syntax is * ? [a-z] {a,b} **", names.QuoteShort(o.Glob), err)
	}
	if o.Limit == 0 {
		o.Limit = DefaultListLimit
	}
	o.Limit = min(o.Limit, MaxListLimit)
	if !o.Recursive {
		o.Depth = 1
	}
	return nil
}

// listing is the state of a List call, which makes one page.
type listing struct {
	ctx     context.Context
	l       *guard.Lease
	w       *walk.Walker
	o       ListOptions
	shown   guard.Path // the listed path, as the caller wrote it
	glob    glob
	seal    seal
	page    Page
	next    Listed          // the name that is being examined
	text    strings.Builder // holds paths of the page
	weight  int             // of the entries of the page, see ListOptions.Weigh
	scanned int             // names examined
	textCap int64           // bytes allocated for paths
	granted int64           // bytes that Room has granted
}

// maxPathAlloc bounds the bytes for paths that are allocated at a time. A path that needs more
// gets what it needs.
const maxPathAlloc = 16 << 10

func (ls *listing) begin() error {
	if err := ls.start(); err != nil {
		return err
	}
	ls.seal.base = ls.w.Base()
	if ls.o.Cursor == "" {
		return nil
	}
	elems, offs, err := ls.seal.decode(ls.o.Cursor)
	if err != nil {
		return err
	}
	return ls.w.Resume(elems, offs)
}

func (ls *listing) start() error {
	if !ls.o.Follow {
		return ls.w.Start(ls.shown.Rel())
	}
	return doFollowed(ls.ctx, ls.l, ls.shown, true, func(q guard.Path) error { return ls.w.Start(q.Rel()) })
}

func (ls *listing) run() (Page, error) {
	for {
		e, err := ls.w.Next()
		if err != nil {
			return Page{}, err
		}
		if e == nil {
			return ls.page, nil
		}
		full, err := ls.consider(e)
		if err != nil {
			return Page{}, err
		}
		if full {
			ls.page.Next = ls.seal.encode(ls.w.Position())
			return ls.page, nil
		}
	}
}

// consider adds one name to the page, or skips it, and enters it if it is a directory to list.
// full means that the name belongs to the next page.
func (ls *listing) consider(e *Entry) (full bool, err error) {
	w, name, typ := ls.w, e.Name, e.Type
	if ls.scanned++; ls.scanned > maxPageScan {
		return true, nil
	}
	if !ls.o.Hidden && strings.HasPrefix(name, ".") || len(name) > names.NameMax {
		w.Take()
		return false, nil
	}
	enter := typ == 0 || typ == unix.S_IFDIR
	if enter = enter && (ls.o.Depth == 0 || w.Depth() < ls.o.Depth); enter || ls.glob.pattern != "" {
		rel := ls.rel(name)
		if len(rel) > ls.glob.longest {
			return false, ls.glob.tooLong(len(rel))
		}
		enter = enter && ls.glob.below(rel)
		if !ls.glob.match(rel) {
			w.Take()
			if enter {
				_, err = w.Enter(name)
			}
			return false, err
		}
	}
	ok, err := ls.look(name, typ)
	if err != nil {
		return false, err
	}
	if !ok {
		w.Take()
		return false, nil
	}
	weight := len(ls.next.Path.Rel())
	if ls.o.Weigh != nil {
		weight = ls.o.Weigh(&ls.next)
	}
	n := len(ls.page.Entries)
	if n >= ls.o.Limit || n > 0 && ls.weight+weight > maxPageBytes {
		return true, nil
	}
	size := cap(ls.page.Entries)
	if n == size {
		size = min(ls.o.Limit, max(n+1, w.Ahead(), 2*n)) // w.Ahead: the names that are read already
	}
	if err := ls.room(size, weight); err != nil && n == 0 {
		return false, err
	} else if err != nil {
		return true, nil
	}
	ls.weight += weight
	ls.page.Entries = slices.Grow(ls.page.Entries, size-n)
	w.Take()
	ls.page.Entries = append(ls.page.Entries, ls.next)
	if enter && ls.next.Info.IsDir() {
		_, err = w.Enter(name)
	}
	return false, err
}

// rel returns the path of a name in the innermost directory, relative to the listed directory.
func (ls *listing) rel(name string) string {
	if len(ls.w.Path()) == 0 {
		return name
	}
	return string(ls.w.Path()) + "/" + name
}

// roomStep is the smallest number of bytes that Room is asked for: small pages ask once.
const roomStep = 32 << 10

var listedSize = int64(reflect.TypeFor[Listed]().Size())

// room calls ListOptions.Room for the memory of a page of so many entries: for the entries,
// for the paths so far, and, if there is a Weigh, for the weights of the entries so far and
// of the next one.
func (ls *listing) room(entries, weight int) error {
	need := ls.textCap + int64(entries)*listedSize
	if ls.o.Weigh != nil {
		need += int64(ls.weight + weight)
	}
	if ls.o.Room == nil || need <= ls.granted {
		return nil
	}
	step := max(need-ls.granted, roomStep)
	if err := ls.o.Room(step); err != nil {
		return err
	}
	ls.granted += step
	return nil
}

// look makes the next entry from a name. ok is false if the name has vanished or may not be
// seen. typ is the type in the directory entry.
func (ls *listing) look(name string, typ uint32) (ok bool, err error) {
	e := &ls.next
	if ok, err = ls.info(&e.Info, name, typ); err != nil || !ok {
		return false, err
	}
	rel := ls.shownPath(name)
	if e.Path, err = guard.NewPath(ls.shown.Root, rel); err != nil {
		return false, nil
	}
	e.Name = rel[len(rel)-len(name):]
	return true, nil
}

// shownPath returns the path of a name in the innermost directory, below the path as the caller
// wrote it.
func (ls *listing) shownPath(name string) string {
	top, n := ls.shown.Rel(), len(ls.shown.Rel())+len(ls.w.Path())+len(name)+2 // two slashes
	if b := &ls.text; b.Cap()-b.Len() < n {
		*b = strings.Builder{} // the strings of the old one stay valid
		b.Grow(max(n, min(n*ls.w.Ahead(), maxPathAlloc)))
		ls.textCap += int64(b.Cap())
	}
	from := ls.text.Len()
	if top != "" {
		ls.text.WriteString(top)
		ls.text.WriteByte('/')
	}
	if len(ls.w.Path()) > 0 {
		ls.text.Write(ls.w.Path())
		ls.text.WriteByte('/')
	}
	ls.text.WriteString(name)
	return ls.text.String()[from:]
}

// info reads the attributes for the entry of a name. ok is false if the name has gone, or may
// not be seen.
func (ls *listing) info(to *Info, name string, typ uint32) (ok bool, err error) {
	l := ls.l
	// A directory is examined even with NoInfo: it may be a mount point, or gone. If roots are
	// nested, a file's identity may matter.
	if ls.o.NoInfo && (typ == unix.S_IFREG || typ == unix.S_IFLNK) && !l.HasNested() {
		*to = Info{Mode: typ}
		return true, nil
	}
	if *to, err = beneath.StatIn(ls.w.Dir(), name); err != nil {
		if err == unix.EACCES && typ != 0 { //nolint:errorlint // bare errno: a directory that may be read and not searched
			*to = Info{Mode: typ}
			return true, nil
		}
		if walk.Passable(err) {
			err = nil
		}
		return false, err
	}
	if walk.Visible(l, to) != nil {
		return false, nil
	}
	_, err = beneath.CrossEntry(l, ls.w.Dir(), name, to)
	if ls.o.NoInfo || err != nil || ls.w.Cross(to) != nil {
		*to = Info{Mode: to.Type()}
	}
	return true, nil
}

// glob is a pattern, taken apart so that subtrees in which nothing can match
// need not be walked.
type glob struct {
	pattern pattern.Glob
	// lead are the leading elements that each match exactly one element of a path. whole: there
	// are no other elements.
	lead  []pattern.Glob
	whole bool
	// longest is the length, in bytes, of the longest path that may be compared with pattern.
	longest int
}

func newGlob(text string) glob {
	g := glob{pattern: pattern.Glob(text), longest: pattern.Glob(text).MaxPath()}
	if text == "" || strings.ContainsAny(text, `{[\`) {
		return g // an element may hold a slash: no subtree is skipped
	}
	g.whole = true
	for elem := range strings.SplitSeq(text, "/") {
		if strings.Contains(elem, "**") {
			g.whole = false
			break
		}
		g.lead = append(g.lead, pattern.Glob(elem))
	}
	return g
}

func (g *glob) tooLong(path int) error {
	return &guard.Error{Kind: names.Invalid, Err: fmt.Errorf(
		"the pattern is too much to be compared with a path of %d bytes: write fewer braces, or list less deep", path)}
}

func (g *glob) match(rel string) bool {
	return g.pattern == "" || g.pattern.Match(rel)
}

// below reports whether anything below the directory rel may match.
func (g *glob) below(rel string) bool {
	if g.lead == nil && !g.whole {
		return true
	}
	i := 0
	for elem := range strings.SplitSeq(rel, "/") {
		if i == len(g.lead) {
			return !g.whole
		}
		if !g.lead[i].Match(elem) {
			return false
		}
		i++
	}
	return i < len(g.lead) || !g.whole
}
