package draft

import (
	"bytes"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Scope says which paths are meant: each of its paths, with everything below it. An empty Scope
// means all paths.
type Scope []string

// NewScope returns the scope of paths, without those that lie below another one.
func NewScope(paths []string) Scope {
	var out Scope
	for _, p := range slices.Sorted(slices.Values(paths)) {
		if p == "" {
			return nil
		}
		if len(out) == 0 || !out.Has(p) {
			out = append(out, p)
		}
	}
	return out
}

// Has reports whether a path is one of the scope's, or lies below one.
func (s Scope) Has(rel string) bool {
	return len(s) == 0 || slices.ContainsFunc(s, func(p string) bool { return isAt(rel, p) })
}

// Touches reports whether the scope has the path rel, or a path below rel.
func (s Scope) Touches(rel string) bool {
	return s.Has(rel) || slices.ContainsFunc(s, func(p string) bool { return rel == "" || isAt(p, rel) })
}

// namesIn returns the names in a directory that the scope touches. If the scope touches all names,
// namesIn returns no list, and isAll is set.
func (s Scope) namesIn(rel string) (list []string, isAll bool) {
	if s.Has(rel) {
		return nil, true
	}
	for _, p := range s {
		if rel == "" || strings.HasPrefix(p, rel+"/") {
			name, _, _ := strings.Cut(strings.TrimPrefix(p[len(rel):], "/"), "/")
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return slices.Compact(list), false
}

// isAt reports whether a path is top, or lies below it.
func isAt(rel, top string) bool {
	return strings.HasPrefix(rel, top) && (len(rel) == len(top) || rel[len(top)] == '/')
}

// SetScope sets Paths.
func (c *Checkpoint) SetScope(in Scope) {
	c.Paths = nil
	for _, p := range in {
		c.Paths = append(c.Paths, []byte(p))
	}
}

// Scope returns Paths.
func (c *Checkpoint) Scope() (in Scope) {
	for _, p := range c.Paths {
		in = append(in, string(p))
	}
	return in
}

// SameScope reports whether two checkpoints are of the same paths.
func (c *Checkpoint) SameScope(other *Checkpoint) bool {
	return slices.EqualFunc(c.Paths, other.Paths, bytes.Equal)
}

// Walk calls f for every file and directory below the top of the upper that a scope touches, each
// directory before its contents. It also enters directories whose mode keeps their owner out.
func (s *Store) Walk(in Scope, f func(rel string, st *unix.Stat_t)) error {
	return s.walk(upperName, walker{opens: true, visit: f, scope: in})
}

// walkUpper calls f for every file and directory below the top of the upper.
func (s *Store) walkUpper(f func(rel string, st *unix.Stat_t)) error {
	return s.walk(upperName, walker{visit: f})
}

func (s *Store) walk(name string, w walker) error {
	w.top = filepath.Join(s.dir, name)
	top, err := w.reopen("")
	if err != nil {
		return &os.PathError{Op: "open", Path: w.top, Err: err}
	}
	d := walkedDir{File: top}
	defer d.close()
	return w.walk("", &d)
}

// walker walks a tree. It follows no link, and holds at most three directories open at a time,
// because programs can nest directories deeper than a process may have descriptors. The depth of a
// directory does not change how many system calls the walk makes for it, unless a directory is
// moved meanwhile.
type walker struct {
	top   string
	visit func(rel string, st *unix.Stat_t)
	scope Scope
	// removes makes the walk remove each file and directory that it has visited.
	removes bool
	// opens makes the walk enter directories whose mode keeps their owner out: it changes the
	// mode for that time, which programs may see.
	opens bool
}

// walkedDir is a directory of a walk. File is nil while the walk is below the directory. It stays
// nil if the walk does not find the directory again, because a program has moved or removed it.
type walkedDir struct {
	*os.File
	dev, ino uint64
}

func (d *walkedDir) close() {
	if d.File != nil {
		d.File.Close()
		d.File = nil
	}
}

type entry struct {
	name string
	st   unix.Stat_t
}

func (w *walker) walk(rel string, d *walkedDir) error {
	list, err := w.read(rel, d)
	for i := range list {
		e := &list[i]
		at := path.Join(rel, e.name)
		isDir := e.st.Mode&unix.S_IFMT == unix.S_IFDIR
		w.visit(at, &e.st)
		if isDir && d.File != nil {
			err = errors.Join(err, w.enter(at, d, e))
		}
		if w.removes && d.File != nil {
			flags := 0
			if isDir {
				flags = unix.AT_REMOVEDIR
			}
			err = errors.Join(err, unix.Unlinkat(int(d.Fd()), e.name, flags))
		}
	}
	return err
}

// enter walks the subdirectory e of parent. It closes parent meanwhile, and opens it again.
func (w *walker) enter(rel string, parent *walkedDir, e *entry) error {
	mode := e.st.Mode & 0o7777
	needsChmod := w.opens && mode&0o700 != 0o700 && os.Geteuid() != 0
	if needsChmod {
		if err := chmodIn(int(parent.Fd()), e.name, mode|0o700); err != nil {
			return ignoreGone(err)
		}
	}
	sub, err := openIn(int(parent.Fd()), e.name)
	if err != nil {
		return ignoreGone(err)
	}
	d := walkedDir{File: sub, dev: e.st.Dev, ino: e.st.Ino}
	parent.close()
	err = w.walk(rel, &d)
	defer d.close()
	above, _ := splitPath(rel)
	err = errors.Join(err, w.reopenParent(above, d.File, parent))
	if needsChmod && !w.removes && d.File != nil {
		err = errors.Join(err, unix.Fchmod(int(d.Fd()), mode))
	}
	return err
}

// reopenParent reopens the directory d. It tries the ".." of d's open subdirectory sub first, if
// sub is not nil, and then d's path rel. If neither leads to d any more, d stays closed.
func (w *walker) reopenParent(rel string, sub *os.File, d *walkedDir) error {
	if sub != nil {
		if f, err := openIn(int(sub.Fd()), ".."); err == nil && d.adopt(f) {
			return nil
		}
	}
	f, err := w.reopen(rel)
	if err == nil {
		_ = d.adopt(f)
	}
	return ignoreGone(err)
}

// adopt sets File to f if f is the directory d; otherwise it closes f, and reports false.
func (d *walkedDir) adopt(f *os.File) bool {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) == nil && st.Ino == d.ino && st.Dev == d.dev {
		d.File = f
		return true
	}
	f.Close()
	return false
}

// reopen opens a directory by its path below the top.
func (w *walker) reopen(rel string) (*os.File, error) {
	f, err := openIn(unix.AT_FDCWD, w.top)
	if err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(rel, "/") {
		if name == "" {
			continue
		}
		next, err := openIn(int(f.Fd()), name)
		f.Close()
		if err != nil {
			return nil, err
		}
		f = next
	}
	return f, nil
}

// openIn opens a directory for reading. Programs see its access time, and they have not asked for
// the reading, so the time stays as it is where the kernel allows that.
func openIn(dir int, name string) (*os.File, error) {
	flags := unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(dir, name, flags|unix.O_NOATIME, 0)
	if err == unix.EPERM { //nolint:errorlint // bare errno
		fd, err = unix.Openat(dir, name, flags, 0)
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// chmodIn changes the mode of a directory, and follows no link.
func chmodIn(dir int, name string, mode uint32) error {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), mode)
}

// ignoreGone returns nil if the error says that a directory was removed or replaced meanwhile.
func ignoreGone(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil
	}
	return err
}

// read returns the names in a directory that the scope touches, with their attributes. It sets d's
// identity.
func (w *walker) read(rel string, d *walkedDir) ([]entry, error) {
	var st unix.Stat_t
	err := unix.Fstat(int(d.Fd()), &st)
	d.dev, d.ino = st.Dev, st.Ino
	names, isAll := w.scope.namesIn(rel)
	if isAll {
		var readErr error
		names, readErr = d.Readdirnames(-1)
		err = errors.Join(err, readErr)
	}
	entries := make([]entry, 0, len(names))
	for _, name := range names {
		statErr := unix.Fstatat(int(d.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if statErr == nil {
			entries = append(entries, entry{name, st})
		} else if !errors.Is(statErr, unix.ENOENT) {
			err = errors.Join(err, statErr)
		}
	}
	return entries, err
}
