// Package walk goes through directory trees within one admitted operation, and says
// which names and attributes the operation may see.
//
// # Promises
//
// A walk holds memory bounded by its depth, never by how many names a directory has:
// a position for each level, a descriptor for the innermost levels and for some of the others,
// and for the innermost levels also the names read in advance. Links are not followed, and other
// file systems are entered only if the grant allows it. A walk leaves a directory that was moved
// out of the root within about a thousand steps (verifyEvery, and the names of one reading).
//
// # Not promised
//
// Names that are added or removed during a walk may be seen or not.
package walk

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

const (
	// MaxDepth bounds how deep a walk goes; deeper directories are seen, but not
	// entered. It bounds cursors and memory.
	MaxDepth = 1 << 14
	// MaxPath bounds the path below the start, in bytes, in the same way.
	MaxPath = 512 << 10
	// nearLevels is how many of the innermost levels keep their descriptor and the names read
	// in advance. Of the other levels each farLevels-th keeps its descriptor, so that climbing
	// opens each level again only once.
	nearLevels = 32
	farLevels  = 128
	// verifyEvery is the number of steps after which the next reading of names first looks the
	// innermost directory up again from the root: a descriptor keeps serving a directory that was
	// moved out. A reading of names counts as readSteps.
	verifyEvery = 256
	readSteps   = 4
	bufSize     = 16 << 10
)

// bufs keeps buffers for reuse: most walks read one small directory.
var bufs = sync.Pool{New: func() any { return new([bufSize]byte) }}

// Options say how a Walker walks. The zero value is for listing: it leaves out names
// that the operation may not see, does not enter directories that the operation may not read,
// and passes over directories that cannot be read.
type Options struct {
	// Keep, unless nil, selects the names that the walk visits. The walker then judges no names
	// and no directories; the caller must do so. Keep is called with each name as soon as the
	// name has been read.
	Keep func(e *beneath.Entry) bool
	// Open, unless nil, opens subdirectories instead of the walker. A directory that
	// cannot be read, or opened again, is then an error.
	Open func(d beneath.Dir, name string) (beneath.Names, error)
	// While the path of a directory is shorter than VerifyBelow bytes, each reading of its
	// names first looks the directory up again from the root.
	VerifyBelow int
	// Refused are the nested roots that the operation may not enter, as far as is known.
	// They are remembered because the lease might permit a second attempt to enter one.
	Refused map[rules.Identity]error
}

// Walker goes through a directory tree depth first. It steps from directory to
// subdirectory by descriptor, so paths may be longer than PATH_MAX.
type Walker struct {
	ctx    context.Context
	l      *guard.Lease
	o      Options
	base   string // where the walk began, below the root
	levels []level
	path   []byte         // of the innermost level, below base
	rel    string         // of the innermost level, below the root; "" when not made yet
	buf    *[bufSize]byte // for getdents
	steps  int            // since a directory was last verified
}

// level is one directory of the path from the start to the innermost directory.
type level struct {
	dir     beneath.Names // if dir is closed, reopen opens it again
	pathLen int           // of Walker.path up to and including this level
	off     int64
	names   []beneath.Entry // read in advance; the first is the next name of the walk
	seek    bool            // dir has to seek to off before it is read
	end     bool
}

// New returns a walker, which the caller must close.
func New(ctx context.Context, l *guard.Lease, o Options) *Walker {
	return &Walker{ctx: ctx, l: l, o: o, buf: bufs.Get().(*[bufSize]byte)}
}

// Start opens the directory that the walk begins at.
func (w *Walker) Start(rel string) error {
	dir, err := beneath.OpenDirNamesQuietly(w.l, rel)
	if err != nil {
		return err
	}
	w.StartAt(rel, dir)
	return nil
}

// StartAt begins the walk at the open directory dir, which lies at rel. The walker
// closes dir.
func (w *Walker) StartAt(rel string, dir beneath.Names) {
	w.base, w.rel = rel, rel
	w.levels = append(w.levels, level{dir: dir})
}

// Close ends the walk and closes its directories.
func (w *Walker) Close() {
	for i := range w.levels {
		w.levels[i].drop()
	}
	bufs.Put(w.buf)
	w.buf = nil
}

func (v *level) drop() {
	v.dir.Close()
	v.dir, v.names, v.seek = beneath.Names{}, nil, true
}

func (w *Walker) top() *level { return &w.levels[len(w.levels)-1] }

// Dir is the innermost directory, open until the next step.
func (w *Walker) Dir() beneath.Dir { return w.top().dir.Dir }

// Depth returns how many levels the walk has, from the start to the innermost directory, both
// included.
func (w *Walker) Depth() int { return len(w.levels) }

// Path returns the path of the innermost directory below the start. It is valid until the next
// step.
func (w *Walker) Path() []byte { return w.path }

// Base returns the path of the start below the root.
func (w *Walker) Base() string { return w.base }

// Ahead returns how many names of the innermost directory are read in advance.
func (w *Walker) Ahead() int { return len(w.top().names) }

// Rel returns the path of the innermost directory below the root.
func (w *Walker) Rel() string {
	if w.rel == "" {
		w.rel = w.below(w.path)
	}
	return w.rel
}

func (w *Walker) below(path []byte) string {
	switch {
	case len(path) == 0:
		return w.base
	case w.base == "":
		return string(path)
	}
	return w.base + "/" + string(path)
}

// Next returns the next name of the walk, or nil at the end of the walk. At the end of a
// directory, Next goes on in the directory above. Next returns the same name until Take.
func (w *Walker) Next() (*beneath.Entry, error) {
	for {
		e, ok, err := w.Peek()
		if ok || err != nil {
			return e, err
		}
		if up, err := w.Leave(); !up || err != nil {
			return nil, err
		}
	}
}

// Peek returns the next name of the innermost directory; ok is false at its end.
// A directory that was removed, was moved or cannot be read counts as ended, unless Options.Open
// is set: Peek then returns the error. The name is a part of a larger string: a caller that keeps
// the name for long must clone it.
func (w *Walker) Peek() (e *beneath.Entry, ok bool, err error) {
	if w.steps++; w.steps%64 == 0 {
		if err := w.l.Life().Ended(w.ctx); err != nil {
			return nil, false, err
		}
	}
	v := w.top()
	for len(v.names) == 0 {
		if v.end {
			return nil, false, nil
		}
		if err := w.read(); err != nil {
			if w.o.Open != nil || !Passable(err) {
				return nil, false, err
			}
			v.end = true
			w.verifyNext()
		}
	}
	return &v.names[0], true, nil
}

// read fetches more names of the innermost directory, which is open.
func (w *Walker) read() error {
	v := w.top()
	w.steps += readSteps
	if w.steps >= verifyEvery || len(w.Rel()) < w.o.VerifyBelow {
		w.steps = 0
		if err := StillThere(w.l, w.Rel(), v.dir.Stat); err != nil {
			if errors.Is(err, ErrRemoved) {
				err = unix.ENOENT
			}
			return err
		}
	}
	if v.seek {
		if err := v.dir.SeekTo(v.off); err != nil {
			return err
		}
		v.seek = false
	}
	list, more, err := v.dir.Read(w.buf[:], true, w.keeps)
	if err != nil {
		return err
	}
	v.names, v.end = list, !more
	return nil
}

// keeps reports whether the walk visits a name of the innermost directory.
func (w *Walker) keeps(e *beneath.Entry) bool {
	switch {
	case e.Name == "." || e.Name == "..": // a file system may put them anywhere among the others
		return false
	case w.o.Keep != nil:
		return w.o.Keep(e)
	}
	return Shown(w.l, w.Rel(), w.Dir(), e)
}

// verifyNext makes the walker verify the levels above before it uses more of their names: the
// innermost directory could not be read. If it was moved, the directories above it may have been
// moved, too.
func (w *Walker) verifyNext() {
	w.steps = verifyEvery
	for i := range w.levels {
		if v := &w.levels[i]; len(v.names) > 0 {
			v.names, v.seek = nil, true
		}
	}
}

// Take consumes the name that Peek returned.
func (w *Walker) Take() {
	v := w.top()
	v.off = int64(v.names[0].Off)
	v.names = v.names[1:]
}

// Restart reads the innermost directory again from its beginning.
func (w *Walker) Restart() {
	v := w.top()
	v.off, v.names, v.seek, v.end = 0, nil, true, false
}

// Enter goes into the subdirectory called name of the innermost directory. ok is false if Enter
// stays where it is: the name is not a directory any more, is unreadable, on another file system,
// closed to the operation, or too deep.
func (w *Walker) Enter(name string) (ok bool, err error) {
	if name == "." || name == ".." || len(name) > names.NameMax || len(w.levels) >= MaxDepth || len(w.path)+1+len(name) > MaxPath {
		return false, nil
	}
	if err := w.Open(name); err != nil {
		if Passable(err) {
			err = nil
		}
		return false, err
	}
	return true, nil
}

// Open is Enter without bounds of depth and path. It returns the error that keeps the walk out.
func (w *Walker) Open(name string) error {
	dir, err := w.open(w.Rel(), w.top(), name)
	if err == nil {
		w.push(name, dir)
	}
	return err
}

// open opens a subdirectory of the level v, which lies at rel.
func (w *Walker) open(rel string, v *level, name string) (beneath.Names, error) {
	if w.o.Open != nil {
		return w.o.Open(v.dir.Dir, name)
	}
	if w.o.Keep == nil {
		if err := w.l.Judge().As(rules.ToRead, rel, name, pattern.Dir); err != nil {
			return beneath.Names{}, err
		}
	}
	dir, err := v.dir.OpenSubdir(name)
	if err != nil || !w.l.HasNested() {
		return dir, err
	}
	info, err := dir.Stat(w.l)
	if err == nil {
		err = w.Cross(&info)
	}
	if err != nil {
		dir.Close()
		return beneath.Names{}, err
	}
	return dir, nil
}

// Cross refuses a nested root that the operation may not enter.
func (w *Walker) Cross(info *beneath.Info) error {
	if err := w.o.Refused[info.ID()]; err != nil {
		return err
	}
	_, err := beneath.CrossChild(w.l, info)
	if err != nil {
		if w.o.Refused == nil {
			w.o.Refused = map[rules.Identity]error{}
		}
		w.o.Refused[info.ID()] = err
	}
	return err
}

func (w *Walker) push(name string, dir beneath.Names) {
	if len(w.path) > 0 {
		w.path = append(w.path, '/')
	}
	w.path = append(w.path, name...)
	w.levels = append(w.levels, level{dir: dir, pathLen: len(w.path)})
	w.rel = ""
	if i := len(w.levels) - 1 - nearLevels; i > 0 {
		w.forget(i)
	}
}

// forget drops the names that a far level has read, and closes it, unless it is a farLevels-th
// level. Such a level stays open; forget then closes the levels between it and the previous
// farLevels-th level, because climbing may have opened them again.
func (w *Walker) forget(i int) {
	if i%farLevels != 0 {
		w.levels[i].drop()
		return
	}
	w.levels[i].names, w.levels[i].seek = nil, true
	for j := i - farLevels + 1; j > 0 && j < i; j++ {
		w.levels[j].drop()
	}
}

// Position returns the path of the innermost directory below the start, and the positions in
// the start and in each directory below it, the innermost last.
func (w *Walker) Position() (path []byte, offs []int64) {
	offs = make([]int64, len(w.levels))
	for i := range w.levels {
		offs[i] = w.levels[i].off
	}
	return w.path, offs
}

// Resume goes down from the start to the directory where an earlier walk stopped. elems are the
// elements of the path, and offs the positions, that Position returned. If Enter cannot enter a
// directory of the path, Resume stops above that directory.
func (w *Walker) Resume(elems []string, offs []int64) error {
	w.levels[0].off, w.levels[0].seek = offs[0], true
	for i, name := range elems {
		ok, err := w.Enter(name)
		if err != nil || !ok {
			return err
		}
		w.top().off, w.top().seek = offs[i+1], true
	}
	return nil
}

// Leave goes back to the directory above; ok is false at the start. Leave also leaves the levels
// above that it cannot open again, unless Options.Open is set.
func (w *Walker) Leave() (ok bool, err error) {
	if len(w.levels) == 1 {
		return false, nil
	}
	w.pop()
	return true, w.reopen()
}

func (w *Walker) pop() {
	w.top().drop()
	w.levels = w.levels[:len(w.levels)-1]
	w.path = w.path[:w.top().pathLen]
	w.rel = ""
}

// reopen opens the innermost level if it is closed. It steps down from the last level that is
// open, and leaves the levels that cannot be opened.
func (w *Walker) reopen() error {
	i := len(w.levels) - 1
	for !w.levels[i].dir.IsOpen() {
		i--
	}
	for ; i < len(w.levels)-1; i++ {
		dir, err := w.open(w.below(w.path[:w.levels[i].pathLen]), &w.levels[i], w.name(i+1))
		if err != nil && (w.o.Open != nil || !Passable(err)) {
			return err
		}
		if err != nil {
			for len(w.levels) > i+1 {
				w.pop()
			}
			return nil
		}
		w.levels[i+1].dir = dir
	}
	return nil
}

// Name returns the name of the innermost directory in the one above it, "" at the start.
func (w *Walker) Name() string {
	if len(w.levels) == 1 {
		return ""
	}
	return w.name(len(w.levels) - 1)
}

// name returns the name of a level in the one above it.
func (w *Walker) name(i int) string {
	from := w.levels[i-1].pathLen
	if from > 0 {
		from++ // the slash
	}
	return string(w.path[from:w.levels[i].pathLen])
}
