package vfs

import (
	"context"
	"errors"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// walker goes through a directory tree depth first, within one admitted
// operation. What it holds is bounded by the depth, never by how many names a
// directory has: a position per level, and of the innermost levels also a
// descriptor and the names read in advance.
//
// It steps from directory to subdirectory by descriptor, so paths may be longer
// than PATH_MAX; each name is judged, links and other file systems are not
// entered, and every so often it makes sure that where it stands still lies
// beneath the root.
type walker struct {
	ctx context.Context
	l   *guard.Lease
	// base is where the walk began, below the root.
	base   string
	levels []level
	path   []byte         // of the innermost level, below base
	rel    string         // of the innermost level, below the root; "" when not made yet
	buf    *[walkBuf]byte // for getdents
	steps  int            // since the innermost place was verified
	// refused are the nested roots the caller may not enter. A lease asked
	// twice might not refuse twice.
	refused map[guard.Identity]error
	// all: nothing is judged or left out, because the caller judges otherwise.
	all bool
	// subdir, unless nil, opens subdirectories in another way. Where one cannot be
	// opened again, climbing then fails.
	subdir func(dirfd int, name string) (int, error)
	// verifyPath is up to what length of path each reading of a directory first
	// verifies its place.
	verifyPath int
}

// level is one directory on the way down.
type level struct {
	fd      int // -1: closed, opened again when it is needed
	pathLen int // of walker.path up to and including this level
	off     int64
	names   []Entry // read in advance; the next is the first
	seek    bool    // fd does not stand at off
	end     bool
}

const (
	// maxListDepth bounds how deep a walk goes; deeper directories are listed
	// but not entered. It bounds cursors and memory.
	maxListDepth = 1 << 14
	// maxListPath bounds the path below the start, in bytes, likewise.
	maxListPath = 512 << 10
	// nearLevels is how many of the innermost levels keep their descriptor
	// and the names read in advance; of the others each farLevels-th keeps
	// its descriptor, so that climbing opens each level again once.
	nearLevels = 32
	farLevels  = 128
	// verifyEvery is how many steps may pass before the innermost place is
	// looked up again from the root: a descriptor keeps serving a directory
	// that was moved out.
	verifyEvery = 256
	walkBuf     = 16 << 10
)

// walkBufs are used again: most walks read one small directory.
var walkBufs = sync.Pool{New: func() any { return new([walkBuf]byte) }}

func newWalker(ctx context.Context, l *guard.Lease, base string) *walker {
	return &walker{ctx: ctx, l: l, base: base, buf: walkBufs.Get().(*[walkBuf]byte)}
}

// start opens the directory the walk begins at.
func (w *walker) start() error {
	fd, err := beneath.OpenDirNames(w.l, w.base)
	if err != nil {
		return err
	}
	w.levels = append(w.levels, level{fd: fd})
	return nil
}

// close closes what is open; the walk is over.
func (w *walker) close() {
	for i := range w.levels {
		w.levels[i].drop()
	}
	walkBufs.Put(w.buf)
	w.buf = nil
}

func (v *level) drop() {
	if v.fd >= 0 {
		beneath.Close(v.fd)
	}
	v.fd, v.names, v.seek = -1, nil, true
}

func (w *walker) top() *level { return &w.levels[len(w.levels)-1] }

// dir is the innermost directory, below the root.
func (w *walker) dir() string {
	if w.rel == "" {
		w.rel = w.below(w.path)
	}
	return w.rel
}

func (w *walker) below(path []byte) string {
	switch {
	case len(path) == 0:
		return w.base
	case w.base == "":
		return string(path)
	}
	return w.base + "/" + string(path)
}

// peek returns the next name of the innermost directory; ok is false at its end.
// A directory that was removed, or has gone from its place, ends. The name is a
// part of a larger string: who keeps it for long clones it.
func (w *walker) peek() (e *Entry, ok bool, err error) {
	if w.steps++; w.steps%64 == 0 {
		if err := ended(w.ctx, w.l); err != nil {
			return nil, false, err
		}
	}
	v := w.top()
	for len(v.names) == 0 {
		if v.end {
			return nil, false, nil
		}
		if err := w.read(); err != nil {
			if !passable(err) {
				return nil, false, err
			}
			v.end = true
			w.doubt()
		}
	}
	return &v.names[0], true, nil
}

// read fetches more names of the innermost directory, which is open.
func (w *walker) read() error {
	v := w.top()
	if w.steps >= verifyEvery || len(w.dir()) < w.verifyPath {
		w.steps = 0
		if err := stillThere(w.l, w.here(), v.fd); err != nil {
			if errors.Is(err, errRemoved) {
				err = unix.ENOENT
			}
			return err
		}
	}
	if v.seek {
		if err := beneath.SeekDir(v.fd, v.off); err != nil {
			return err
		}
		v.seek = false
	}
	n, err := beneath.Getdents(v.fd, w.buf[:])
	if err != nil {
		return err
	}
	v.end = n == 0
	// The dot names may come anywhere.
	text := w.buf[:n]
	keep := func(e *Entry) bool { return w.all || listed(w.l, w.dir(), e) }
	v.names = slices.DeleteFunc(beneath.ParseDirents(text, string(text), keep), func(e Entry) bool { return e.Name == "." || e.Name == ".." })
	return nil
}

// doubt makes the levels above be verified before anything more of them is used:
// what took the innermost one from its place may have taken them too.
func (w *walker) doubt() {
	w.steps = verifyEvery
	for i := range w.levels {
		if v := &w.levels[i]; len(v.names) > 0 {
			v.names, v.seek = nil, true
		}
	}
}

func (w *walker) here() At {
	p, _ := guard.NewPath("", w.dir()) // its elements came from the kernel
	return At{Path: p}
}

// take consumes the name that peek returned.
func (w *walker) take() {
	v := w.top()
	v.off = int64(v.names[0].Off)
	v.names = v.names[1:]
}

// enter goes into the subdirectory called name of the innermost directory. ok is
// false if it is not to be entered: not a directory any more, unreadable, on
// another file system, fenced off, or too deep.
func (w *walker) enter(name string) (ok bool, err error) {
	if name == "." || name == ".." || len(name) > names.MaxElement || len(w.levels) >= maxListDepth || len(w.path)+1+len(name) > maxListPath {
		return false, nil
	}
	fd, err := w.open(w.dir(), w.top().fd, name)
	if err != nil {
		if passable(err) {
			err = nil
		}
		return false, err
	}
	w.push(name, fd)
	return true, nil
}

// open opens a subdirectory of dir, whose descriptor is dirfd.
func (w *walker) open(dir string, dirfd int, name string) (int, error) {
	if w.subdir != nil {
		return w.subdir(dirfd, name)
	}
	if !w.all {
		if err := w.l.JudgeAs(guard.ToRead, dir, name, pattern.Dir); err != nil {
			return -1, err
		}
	}
	fd, err := beneath.OpenSubdir(w.l, dirfd, name)
	if err != nil || !w.l.HasNested() {
		return fd, err
	}
	info, err := beneath.Stat(fd)
	if err == nil {
		err = w.cross(&info)
	}
	if err != nil {
		beneath.Close(fd)
		return -1, err
	}
	return fd, nil
}

// cross asks whether a name of the innermost directory is a nested root that
// the caller may not enter.
func (w *walker) cross(info *Info) error {
	if err := w.refused[info.ID()]; err != nil {
		return err
	}
	_, err := beneath.CrossChild(w.l, info)
	if err != nil {
		if w.refused == nil {
			w.refused = map[guard.Identity]error{}
		}
		w.refused[info.ID()] = err
	}
	return err
}

func (w *walker) push(name string, fd int) {
	if len(w.path) > 0 {
		w.path = append(w.path, '/')
	}
	w.path = append(w.path, name...)
	w.levels = append(w.levels, level{fd: fd, pathLen: len(w.path)})
	w.rel = ""
	if i := len(w.levels) - 1 - nearLevels; i > 0 {
		w.forget(i)
	}
}

// forget lets go of what a far level holds, and at each farLevels-th also of
// what climbing has opened again between it and the last such one.
func (w *walker) forget(i int) {
	if i%farLevels != 0 {
		w.levels[i].drop()
		return
	}
	w.levels[i].names, w.levels[i].seek = nil, true
	for j := i - farLevels + 1; j > 0 && j < i; j++ {
		w.levels[j].drop()
	}
}

// resume goes down from the start to where an earlier walk stopped: offs holds a
// position for the start and for each of the names below it. Levels that are
// gone are left out.
func (w *walker) resume(elems []string, offs []int64) error {
	w.levels[0].off, w.levels[0].seek = offs[0], true
	for i, name := range elems {
		ok, err := w.enter(name)
		if err != nil || !ok {
			return err
		}
		w.top().off, w.top().seek = offs[i+1], true
	}
	return nil
}

// leave goes back to the directory above; ok is false at the start. Levels that
// have gone from their place meanwhile are left too.
func (w *walker) leave() (ok bool, err error) {
	if len(w.levels) == 1 {
		return false, nil
	}
	w.pop()
	return true, w.reopen()
}

func (w *walker) pop() {
	w.top().drop()
	w.levels = w.levels[:len(w.levels)-1]
	w.path = w.path[:w.top().pathLen]
	w.rel = ""
}

// reopen makes sure that the innermost level is open, stepping down from the
// last one that is.
func (w *walker) reopen() error {
	i := len(w.levels) - 1
	for w.levels[i].fd < 0 {
		i--
	}
	for ; i < len(w.levels)-1; i++ {
		fd, err := w.open(w.below(w.path[:w.levels[i].pathLen]), w.levels[i].fd, w.name(i+1))
		if err != nil && (w.subdir != nil || !passable(err)) {
			return err
		}
		if err != nil {
			for len(w.levels) > i+1 {
				w.pop()
			}
			return nil
		}
		w.levels[i+1].fd = fd
	}
	return nil
}

// name is the name of a level in the one above it.
func (w *walker) name(i int) string {
	from := w.levels[i-1].pathLen
	if from > 0 {
		from++ // the slash
	}
	return string(w.path[from:w.levels[i].pathLen])
}

// passable are the errors on which a walk goes on without the directory.
func passable(err error) bool {
	var e *guard.Error
	if errors.As(err, &e) {
		return e.Kind.Refusal() || e.Kind == names.Unavailable
	}
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP),
		errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.ESTALE), errors.Is(err, unix.EXDEV):
		return true
	}
	return false
}
