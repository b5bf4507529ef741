package watch

import (
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/walk"
)

// watchedDir is a directory that one watch watches. Its path never changes: a directory
// that is renamed becomes another watchedDir. The fields before unwatched are fixed when it is
// made, the others belong to the watch's goroutine.
type watchedDir struct {
	w      *Watch
	src    *SourceWatcher
	parent *watchedDir // nil: the watch begins here
	name   string      // in parent, or the root-relative path if there is no parent
	only   string      // the one name of interest, "" for all
	id     rules.Identity
	wd     int32

	unwatched bool
	room      int64 // one unit for the directory, and one for each further namesEach names
	// known has the hashes of the names that the receiver knows. They distinguish a replacement
	// from a creation. The deletion of an unknown name is not reported.
	known map[uint64]struct{}
	kids  map[string]*watchedDir
}

// namesEach is how many known names take as much room as a directory. So a watch of a directory
// with a million names takes more room than a watch of an empty one.
const namesEach = 1000

// rel is the path below the root.
func (d *watchedDir) rel() string {
	var elems []string
	for ; d.parent != nil; d = d.parent {
		elems = append(elems, d.name)
	}
	if d.name != "" {
		elems = append(elems, d.name)
	}
	slices.Reverse(elems)
	return strings.Join(elems, "/")
}

// path returns the path of a name in d; ok is false for a name that no path can have.
func (d *watchedDir) path(name string) (p guard.Path, ok bool) {
	if d.only != "" {
		return d.w.path, true
	}
	p, err := guard.NewPath(d.w.path.Root, strings.TrimPrefix(d.rel()+"/"+name, "/"))
	return p, err == nil
}

func (d *watchedDir) depth() (n int) {
	for ; d.parent != nil; d = d.parent {
		n++
	}
	return n
}

func (d *watchedDir) hash(name string) uint64 { return maphash.String(d.w.h.seed, name) }

func (d *watchedDir) knows(name string) bool {
	_, ok := d.known[d.hash(name)]
	return ok
}

// record makes name known, so that its deletion is reported. It returns an error if there
// is no room. The room stays taken when names are forgotten, as the memory of the map does.
func (d *watchedDir) record(name string) *LimitError {
	if d.known == nil {
		d.known = map[uint64]struct{}{}
	}
	if int64(len(d.known)) >= d.room*namesEach {
		if err := d.w.acquireRoom(); err != nil {
			return err
		}
		d.room++
	}
	d.known[d.hash(name)] = struct{}{}
	return nil
}

// forget makes name unknown, and reports whether it was known.
func (d *watchedDir) forget(name string) bool {
	h := d.hash(name)
	_, ok := d.known[h]
	delete(d.known, h)
	return ok
}

func (d *watchedDir) adopt(name string, kid *watchedDir) {
	if d.kids == nil {
		d.kids = map[string]*watchedDir{}
	}
	d.kids[name] = kid
}

// unwatch stops watching d and all directories below it. Their room becomes spare. If d is nil,
// unwatch does nothing.
func (d *watchedDir) unwatch() {
	if d == nil {
		return
	}
	todo := []*watchedDir{d}
	for len(todo) > 0 {
		d := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if d.unwatched {
			continue
		}
		d.unwatched = true
		d.w.spare.Add(d.room)
		d.src.Unwatch(d.wd, d)
		for _, kid := range d.kids {
			todo = append(todo, kid)
		}
	}
}

// setup is a newly watched tree. The goroutine of the operation makes it, and the watch's
// goroutine takes it over.
type setup struct {
	base       *watchedDir
	incomplete bool // there was no room for a part of the tree
	epoch      uint64
	dead       <-chan struct{}
}

// drop undoes a setup that no caller needs any more.
func (w *Watch) drop(s *setup) {
	if s != nil {
		s.base.unwatch()
	}
	w.returnSpare()
}

// setUp watches the path of the watch, and the directories below it if the watch is
// recursive. old is the directory that was watched before, or nil. If old is not nil, setUp
// accepts that there is room for a part only, and that a file does not exist.
func (w *Watch) setUp(ctx context.Context, l *guard.Lease, old *watchedDir) (*setup, error) {
	sc := &scan{w: w, l: l, refused: map[rules.Identity]error{}}
	base, err := sc.watchPath(ctx, old != nil && old.only != "")
	if err == nil && sc.full != nil && (base == nil || old == nil) {
		err = &guard.Error{Kind: names.Quota, Err: sc.full}
	}
	if err == nil && base == nil {
		err = unix.EACCES
	}
	s := &setup{base: base, incomplete: sc.full != nil, epoch: l.Epoch(), dead: l.Hold().Dead()}
	if err != nil {
		w.drop(s)
		return nil, err
	}
	return s, nil
}

// scan looks at directories within one operation.
type scan struct {
	w       *Watch
	l       *guard.Lease
	refused map[rules.Identity]error
	full    *LimitError // why no further directory can be watched; nil: there is room
	found   *[]string   // gathers the paths that a walk finds, unless nil
}

func (s *scan) walker(ctx context.Context) *walk.Walker {
	return walk.New(ctx, s.l, walk.Options{Refused: s.refused})
}

// watchPath watches the path of the watch. If wasFile is set, it watches the path as a file, even
// if the file does not exist.
func (s *scan) watchPath(ctx context.Context, wasFile bool) (*watchedDir, error) {
	isFile := wasFile
	if !wasFile {
		n, err := beneath.Node(s.l, s.w.path, s.l.Judge().Access())
		if err != nil {
			return nil, err
		}
		info, err := n.Stat(s.l)
		n.Close()
		if err != nil {
			return nil, err
		}
		if err := walk.Visible(s.l, &info); err != nil {
			return nil, err
		}
		isFile = !info.IsDir()
	}
	if isFile {
		return s.watchFile()
	}
	wk := s.walker(ctx)
	defer wk.Close()
	if err := wk.Start(s.w.path.Rel()); err != nil {
		return nil, err
	}
	base, err := s.watch(wk.Dir(), &watchedDir{name: s.w.path.Rel()})
	if base == nil {
		return nil, err
	}
	return base, s.watchBelow(wk, base)
}

// watchFile watches a path that is a file, through the directory above it.
func (s *scan) watchFile() (*watchedDir, error) {
	d, base, err := beneath.Parent(s.l, s.w.path, s.l.Judge().Access())
	if err != nil {
		return nil, err
	}
	defer d.Close()
	dir, _ := s.w.path.Split()
	h, err := s.watch(d, &watchedDir{name: dir.Rel(), only: base})
	if h == nil {
		return nil, err
	}
	var now observation
	if s.look(d, dir.Rel(), base, &now); now.exists && !now.hidden {
		s.full = h.record(base)
	}
	return h, nil
}

// watch begins to watch an open directory; nil without an error means that it cannot be
// watched: there is no room, or the error is one that a walk passes over (walk.Passable).
func (s *scan) watch(dir beneath.Dir, d *watchedDir) (*watchedDir, error) {
	info, err := dir.Stat(s.l)
	if err != nil {
		return nil, err
	}
	if full := s.w.acquireRoom(); full != nil {
		s.full = full
		return nil, nil
	}
	d.w, d.src, d.id, d.room = s.w, s.w.h.source(s.l), info.ID(), 1
	if d.wd, err = s.watchAs(dir, info.ID(), d); err == nil {
		return d, nil
	}
	s.w.spare.Add(1)
	switch {
	case errors.Is(err, ErrNoWatches):
		watched, _ := d.src.Counts()
		s.full = &LimitError{What: "directories can be watched: the user's inotify watches are used up (fs.inotify.max_user_watches)", Limit: watched}
		return nil, nil
	case errors.Is(err, ErrNoInstances):
		return nil, &guard.Error{Kind: names.Quota, Err: err}
	case walk.Passable(err):
		return nil, nil
	}
	return nil, err
}

// watchAs watches an open directory, whose identity is id.
func (s *scan) watchAs(dir beneath.Dir, id rules.Identity, d *watchedDir) (int32, error) {
	if _, staged := beneath.StageOf(s.l); !staged {
		return d.src.watchOpen(dir.FD(), d)
	}
	rel := dir.StagedPath()
	return d.src.watchDir(s.l, rel, d, func() (beneath.Dir, error) { return openAs(s.l, rel, id) })
}

// watchBelow records the names below base, which the walker has entered, and watches the
// directories. base is watched already, so a name that appears meanwhile is found by the walk,
// reported by inotify, or both. After an error base is not watched any more.
func (s *scan) watchBelow(wk *walk.Walker, base *watchedDir) (err error) {
	defer func() {
		if err != nil {
			base.unwatch()
		}
	}()
	floor, prefix := wk.Depth(), len(wk.Path())
	at := []*watchedDir{base} // of the walker's levels
	for wk.Depth() >= floor {
		at = at[:wk.Depth()-floor+1] // Leave may have left more than one level
		e, ok, err := wk.Peek()
		if err != nil {
			return err
		}
		if !ok {
			if wk.Depth() == floor {
				return nil
			}
			if _, err := wk.Leave(); err != nil {
				return err
			}
			continue
		}
		name := e.Name
		shown, isDir := s.shows(wk, e)
		wk.Take()
		if !shown {
			continue
		}
		d := at[len(at)-1]
		if full := d.record(name); full != nil {
			s.full = full
		}
		if s.found != nil && len(*s.found) < maxPending {
			*s.found = append(*s.found, strings.TrimPrefix(string(wk.Path()[prefix:])+"/"+name, "/"))
		}
		if !isDir || !s.w.o.Recursive {
			continue
		}
		kid, err := s.enter(wk, d, name)
		if err != nil {
			return err
		}
		if kid != nil {
			d.kids[name].unwatch() // a name that is renamed meanwhile may come twice
			d.adopt(kid.name, kid)
			at = append(at, kid)
		}
	}
	return nil
}

// enter goes into a subdirectory of d and watches it. If it cannot enter or cannot watch the
// subdirectory, it returns nil, nil, and the walk stays in d. After an error the walk may be in d or in
// the subdirectory.
func (s *scan) enter(wk *walk.Walker, d *watchedDir, name string) (*watchedDir, error) {
	if s.full != nil {
		return nil, nil
	}
	ok, err := wk.Enter(name)
	if err != nil || !ok {
		return nil, err
	}
	// The walker's names are parts of larger strings.
	kid, err := s.watch(wk.Dir(), &watchedDir{parent: d, name: strings.Clone(name)})
	if kid == nil && err == nil {
		_, err = wk.Leave()
	}
	return kid, err
}

// shows reports whether a name may be reported, and whether it is a directory's.
func (s *scan) shows(wk *walk.Walker, e *beneath.Entry) (shown, isDir bool) {
	switch {
	case len(e.Name) > names.NameMax || strings.HasPrefix(e.Name, beneath.TempPrefix):
		return false, false
	case e.Type == 0:
		var o observation
		isDir = s.look(wk.Dir(), wk.Rel(), e.Name, &o)
		return o.exists && !o.hidden, isDir
	}
	// The walker leaves special files out.
	isDir = e.Type == unix.S_IFDIR
	return s.l.Judge().Name(wk.Rel(), e.Name) == nil && !s.isClosed(wk.Dir(), e.Name, &beneath.Info{Mode: e.Type}), isDir
}
