package vfs

import (
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/walk"
)

// hubDir is a watched directory of one watch. It never changes its place: one
// that is renamed is another hubDir. Its first fields are fixed when it is made,
// the others belong to the watch's goroutine.
type hubDir struct {
	w      *Watch
	src    *SourceWatcher
	parent *hubDir // nil: where the watch begins
	name   string  // of the root-relative path of the beginning, if there is no parent
	only   string  // the one name of interest, "" for all
	id     guard.Identity
	wd     int32

	dead bool
	// known are the hashes of the names that the receiver knows of, so that
	// a replacement can be told from a creation, and the end of what was
	// never reported is not reported either.
	known map[uint64]struct{}
	more  int64 // room taken for them, see namesEach
	kids  map[string]*hubDir
}

// namesEach is how many known names are counted as one directory more: a watch of a
// directory with a million names is not to cost what one of an empty one does.
const namesEach = 1000

func (d *hubDir) rel() string {
	if d.parent == nil {
		return d.name
	}
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

func (d *hubDir) depth() (n int) {
	for ; d.parent != nil; d = d.parent {
		n++
	}
	return n
}

func (d *hubDir) hash(name string) uint64 { return maphash.String(d.w.h.seed, name) }

func (d *hubDir) knows(name string) bool {
	_, ok := d.known[d.hash(name)]
	return ok
}

// learn makes a name known, if there is room for it, which take makes.
func (d *hubDir) learn(name string, take func() bool) bool {
	if d.known == nil {
		d.known = map[uint64]struct{}{}
	}
	if int64(len(d.known)) >= (d.more+1)*namesEach {
		if !take() {
			return false
		}
		d.more++
	}
	d.known[d.hash(name)] = struct{}{}
	return true
}

func (d *hubDir) unlearn(name string) { delete(d.known, d.hash(name)) }

func (d *hubDir) adopt(name string, kid *hubDir) {
	if d.kids == nil {
		d.kids = map[string]*hubDir{}
	}
	d.kids[name] = kid
}

// lose ends the watching of what lies below a name that has gone.
func (d *hubDir) lose(name string) {
	if kid := d.kids[name]; kid != nil {
		kid.kill()
		delete(d.kids, name)
	}
}

// kill ends the watching of d, if there is one, and of all below it, and gives back
// their room.
func (d *hubDir) kill() {
	if d == nil {
		return
	}
	w, n := d.w, int64(0)
	todo := []*hubDir{d}
	for len(todo) > 0 {
		d := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if d.dead {
			continue
		}
		d.dead = true
		n += 1 + d.more
		d.src.Unwatch(d.wd, d)
		for _, kid := range d.kids {
			todo = append(todo, kid)
		}
	}
	w.h.room.add(w.c.Subject, -n)
}

// size is how much room what is watched from d on down takes.
func (d *hubDir) size() (n int64) {
	if d == nil || d.dead {
		return 0
	}
	n = 1 + d.more
	for _, kid := range d.kids {
		n += kid.size()
	}
	return n
}

// setup is a freshly watched tree, made by an operation; a lease's goroutine
// makes it and the watch's adopts it.
type setup struct {
	base  *hubDir
	part  bool // the rest of it found no room
	epoch uint64
	dead  <-chan struct{}
}

// drop undoes a setup that came too late.
func (w *Watch) drop(s *setup) {
	if s != nil {
		s.base.kill()
	}
}

// setUp watches the path, and the directories below it if asked to. again says
// that it was watched before: then a part will do if there are not enough
// watches, and a file that is watched need not be there; file says that it is one.
// spare is how much room that watch has: it keeps it.
func (w *Watch) setUp(ctx context.Context, l *guard.Lease, again, file bool, spare int64) (*setup, error) {
	s := &setup{epoch: l.Epoch(), dead: l.Hold().Dead()}
	sc := &scan{w: w, l: l, old: spare, spare: spare, refused: map[guard.Identity]error{}}
	err := w.setUpOne(ctx, s, sc, again && file)
	if err == nil && sc.full != nil && (s.base == nil || !again) {
		err = &guard.Error{Kind: names.Quota, Err: sc.full}
	}
	if err == nil && s.base == nil {
		err = unix.EACCES
	}
	if err != nil {
		w.drop(s)
		return nil, err
	}
	s.part = sc.full != nil
	return s, nil
}

func (w *Watch) setUpOne(ctx context.Context, s *setup, sc *scan, file bool) (err error) {
	if !file {
		n, err := beneath.Node(sc.l, w.path)
		if err != nil {
			return err
		}
		info, err := beneath.Stat(n.FD)
		n.Close()
		if err != nil {
			return err
		}
		if err := walk.Visible(sc.l, &info); err != nil {
			return err
		}
		file = !info.IsDir()
	}
	if file {
		s.base, err = sc.file()
		return err
	}
	wk := sc.walker(ctx)
	defer wk.Close()
	if err := wk.Start(w.path.Rel()); err != nil {
		return err
	}
	s.base, err = sc.tree(wk, nil, w.path.Rel())
	return err
}

// scan is the looking at directories within one operation.
type scan struct {
	w       *Watch
	l       *guard.Lease
	refused map[guard.Identity]error
	old     int64       // room of the tree that this one replaces
	spare   int64       // of that, what this one has not taken over
	full    *LimitError // why no more can be watched; nil: they can
	report  bool        // paths are gathered
	paths   []string
	over    bool // there were too many of them
}

func (s *scan) walker(ctx context.Context) *walk.Walker {
	return walk.New(ctx, s.l, walk.Options{Refused: s.refused})
}

// watch begins to watch an open directory; nil without an error means that it
// cannot be watched for want of watches or of permission.
func (s *scan) watch(fd int, d *hubDir) (*hubDir, error) {
	info, err := beneath.Stat(fd)
	if err != nil {
		return nil, err
	}
	if !s.take() {
		return nil, nil
	}
	d.w, d.src, d.id = s.w, s.w.h.source(s.l), info.ID()
	if d.wd, err = d.src.add(beneath.Dir{FD: fd}, d); err == nil {
		return d, nil
	}
	s.w.h.room.add(s.w.c.Subject, -1)
	switch {
	case errors.Is(err, unix.ENOSPC):
		s.full = &LimitError{What: "directories can be watched: the user's inotify watches are used up (fs.inotify.max_user_watches)", Limit: d.src.count.Load()}
		return nil, nil
	case errors.Is(err, ErrNoInstances):
		return nil, &guard.Error{Kind: names.Quota, Err: err}
	case walk.Passable(err):
		return nil, nil
	}
	return nil, err
}

// take makes room for one directory, or for namesEach names.
func (s *scan) take() bool {
	room, subject := &s.w.h.room, s.w.c.Subject
	if s.spare > 0 {
		s.spare--
		room.add(subject, 1)
		return true
	}
	limit, ok := room.take(subject, s.old)
	if !ok {
		s.full = &LimitError{What: "directories, or thousands of names in them, can be watched by one server at present", Limit: limit}
	}
	return ok
}

// file watches the one name the path is, in the directory above it.
func (s *scan) file() (*hubDir, error) {
	d, base, err := beneath.Parent(s.l, s.w.path)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	dir, _ := s.w.path.Split()
	h, err := s.watch(d.FD, &hubDir{name: dir.Rel(), only: base})
	if h == nil {
		return nil, err
	}
	if now := s.see(d.FD, dir.Rel(), base); now.exists && !now.hidden {
		h.learn(base, s.take)
	}
	return h, nil
}

// tree watches the directory the walker stands in, called name in parent, and
// what lies below it. The watch comes before the look: what appears in between
// is seen by either. It returns nil if the directory itself could not be watched.
func (s *scan) tree(wk *walk.Walker, parent *hubDir, name string) (base *hubDir, err error) {
	floor := wk.Depth()
	base, err = s.watch(wk.FD(), &hubDir{parent: parent, name: name})
	if base == nil {
		return nil, err
	}
	done := false
	defer func() {
		if !done {
			base.kill()
			base = nil
		}
	}()
	prefix := len(wk.Path()) // what is above need not be gathered
	at := []*hubDir{base}
	for wk.Depth() >= floor {
		e, ok, err := wk.Peek()
		if err != nil {
			return base, err
		}
		if !ok {
			if wk.Depth() == floor {
				break
			}
			if _, err := wk.Leave(); err != nil {
				return base, err
			}
			continue
		}
		// Leaving may have left more than one level.
		at = at[:wk.Depth()-floor+1]
		name, typ := e.Name, s.typeOf(wk, e)
		wk.Take()
		d := at[len(at)-1]
		if typ == 0 {
			continue
		}
		d.learn(name, s.take)
		s.gather(wk, prefix, name)
		if typ != unix.S_IFDIR || !s.w.o.Recursive {
			continue
		}
		kid, err := s.enter(wk, d, name)
		if err != nil {
			return base, err
		}
		if kid != nil {
			at = append(at, kid)
		}
	}
	done = true
	return base, nil
}

// enter goes into a subdirectory and watches it; nil means that it does not.
func (s *scan) enter(wk *walk.Walker, d *hubDir, name string) (*hubDir, error) {
	if s.full != nil {
		return nil, nil
	}
	ok, err := wk.Enter(name)
	if err != nil || !ok {
		return nil, err
	}
	name = strings.Clone(name) // it is kept
	kid, err := s.watch(wk.FD(), &hubDir{parent: d, name: name})
	if err != nil {
		return nil, err
	}
	if kid == nil {
		_, err := wk.Leave()
		return nil, err
	}
	// A name that is renamed while its directory is read may come twice.
	d.kids[name].kill()
	d.adopt(name, kid)
	return kid, nil
}

// typeOf is the type of a name that may be reported, 0 of one that may not.
func (s *scan) typeOf(wk *walk.Walker, e *Entry) uint32 {
	if len(e.Name) > names.MaxElement || strings.HasPrefix(e.Name, TempPrefix) || s.l.Judge(wk.Rel(), e.Name) != nil {
		return 0
	}
	fd, info := wk.FD(), Info{Mode: e.Type} // special files were left out
	if e.Type == 0 {
		var err error
		if info, err = beneath.StatAt(s.l, fd, e.Name); err != nil || walk.Visible(s.l, &info) != nil {
			return 0
		}
	}
	if s.fenced(fd, e.Name, &info) {
		return 0
	}
	return info.Type()
}

func (s *scan) gather(wk *walk.Walker, prefix int, name string) {
	if !s.report {
		return
	}
	if len(s.paths) >= maxRaw {
		s.over = true
		return
	}
	rel := strings.TrimPrefix(string(wk.Path()[prefix:]), "/")
	if rel != "" {
		rel += "/"
	}
	s.paths = append(s.paths, rel+name)
}
