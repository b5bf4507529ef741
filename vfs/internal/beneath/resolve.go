package beneath

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

const (
	// chunk bounds one openat2: PATH_MAX is 4096 with the NUL, and one call
	// with a 5,020-byte path was measured to fail with ENAMETOOLONG.
	chunk = 4000
	// maxRetries bounds the repetition of an openat2 that lost a race with a
	// rename (EAGAIN). filepath-securejoin uses the same number: an attacker
	// who wins 128 times in a row is denied service, nothing more.
	maxRetries = 128
)

// Dir is an open directory of a root (O_PATH), and the domain it lies in: the
// epoch of the innermost nested root crossed on the way, 0 for none.
type Dir struct {
	FD     int
	Domain uint64
	owned  bool
	across bool // names that lead to other file systems may be followed
	// id is the directory's identity where nested roots have to be noticed,
	// so that single files are; zero: not known yet.
	id guard.Identity
}

// In is a directory that somebody else keeps open, of the lease's root. Without
// a lease (a bare Dir) no other file system is entered from it.
func In(l *guard.Lease, fd int) Dir { return Dir{FD: fd, across: l.OtherFileSystems()} }

// resolve are the flags to open one name of the directory with.
func (d Dir) resolve() uint64 {
	if d.across {
		return stayBeneath
	}
	return stayBeneath | unix.RESOLVE_NO_XDEV
}

// Close closes the descriptor, unless it is the root's own.
func (d Dir) Close() {
	if d.owned {
		_ = unix.Close(d.FD)
	}
}

// Keep makes the descriptor the caller's, to close when it likes. On an error d
// is closed.
func Keep(d Dir) (int, error) {
	if d.owned {
		return d.FD, Hold(d.FD)
	}
	return Dup(d)
}

// OpenDir resolves a directory of the lease's root.
func OpenDir(l *guard.Lease, rel string) (Dir, error) {
	if rel == "" {
		if l.File() != "" {
			return Dir{}, unix.ENOTDIR
		}
		return In(l, l.Dir()), nil
	}
	if l.File() != "" {
		return Dir{}, unix.ENOTDIR
	}
	return walk(l, rel, unix.O_DIRECTORY)
}

// Parent resolves the directory that holds p's last element, and judges the
// name. A root's own path has no parent, except that of a single-file root,
// whose parent is the root's descriptor.
func Parent(l *guard.Lease, p guard.Path) (Dir, string, error) {
	if p.IsRoot() {
		if f := l.File(); f != "" {
			return In(l, l.Dir()), f, nil
		}
		return Dir{}, "", &guard.Error{Kind: names.Invalid, Err: unix.EBUSY}
	}
	dir, base := p.Split()
	d, err := OpenDir(l, dir.Rel())
	if err != nil {
		return Dir{}, "", err
	}
	if err = l.Judge(dir.Rel(), base); err == nil {
		err = Enter(l, &d, base)
	}
	if err != nil {
		d.Close()
		return Dir{}, "", err
	}
	return d, base, nil
}

// Enter shows the lease that an operation is about one name of d, which may be a
// nested single-file root: d is in that root's domain then.
func Enter(l *guard.Lease, d *Dir, name string) error {
	if !l.Fenced() || name == "" || l.File() != "" {
		return nil
	}
	entered, err := crossName(l, d, name)
	if entered != 0 {
		d.Domain = entered
	}
	return err
}

func crossName(l *guard.Lease, d *Dir, name string) (uint64, error) {
	if d.id == (guard.Identity{}) {
		info, err := Stat(d.FD)
		if err != nil {
			return 0, err
		}
		d.id = info.ID()
	}
	return l.CrossName(d.id, name)
}

// Node resolves p itself, whatever it is, without following it (O_PATH).
func Node(l *guard.Lease, p guard.Path) (Dir, error) {
	if p.IsRoot() {
		if f := l.File(); f != "" {
			fd, err := open(l.Dir(), f, unix.O_PATH|unix.O_NOFOLLOW, resolveFlags(l))
			return Dir{FD: fd, owned: true, across: l.OtherFileSystems()}, err
		}
		return In(l, l.Dir()), nil
	}
	if l.File() != "" {
		return Dir{}, unix.ENOTDIR
	}
	dir, base := p.Split()
	if err := l.Judge(dir.Rel(), base); err != nil {
		return Dir{}, err
	}
	return walk(l, p.Rel(), unix.O_NOFOLLOW)
}

// stayBeneath are the flags of every resolution.
const stayBeneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_SYMLINKS

func resolveFlags(l *guard.Lease) uint64 { return Dir{across: l.OtherFileSystems()}.resolve() }

// walk resolves rel from the root's descriptor, in chunks below PATH_MAX, or
// element by element where nested roots have to be noticed.
func walk(l *guard.Lease, rel string, last uint64) (Dir, error) {
	if l.Fenced() {
		return walkFenced(l, rel, last)
	}
	return walkFrom(In(l, l.Dir()), rel, last)
}

// walkFrom is walk from a directory that the caller keeps open.
func walkFrom(d Dir, rel string, last uint64) (Dir, error) {
	for {
		part, rest := cut(rel)
		flags := uint64(unix.O_DIRECTORY)
		if rest == "" {
			flags = last
		}
		fd, err := open(d.FD, part, unix.O_PATH|flags, d.resolve())
		d.Close()
		if err != nil {
			return Dir{}, err
		}
		d = Dir{FD: fd, owned: true, across: d.across}
		if rest == "" {
			return d, nil
		}
		rel = rest
	}
}

// cut takes the longest leading part of rel that one openat2 can resolve.
func cut(rel string) (part, rest string) {
	if len(rel) <= chunk {
		return rel, ""
	}
	i := strings.LastIndexByte(rel[:chunk+1], '/')
	return rel[:i], rel[i+1:]
}

func walkFenced(l *guard.Lease, rel string, last uint64) (Dir, error) {
	d := In(l, l.Dir())
	d.id = l.RootID()
	for {
		elem, rest, more := strings.Cut(rel, "/")
		flags := uint64(unix.O_DIRECTORY)
		if !more {
			flags = last
		}
		if err := Enter(l, &d, elem); err != nil {
			d.Close()
			return Dir{}, err
		}
		fd, err := open(d.FD, elem, unix.O_PATH|flags, d.resolve())
		d.Close()
		if err != nil {
			return Dir{}, err
		}
		d = Dir{FD: fd, Domain: d.Domain, owned: true, across: d.across}
		if err := cross(l, &d); err != nil {
			d.Close()
			return Dir{}, err
		}
		if !more {
			return d, nil
		}
		rel = rest
	}
}

func cross(l *guard.Lease, d *Dir) error {
	info, err := Stat(d.FD)
	if err != nil {
		return err
	}
	d.id = info.ID()
	entered, err := l.Cross(d.id)
	if entered != 0 {
		d.Domain = entered
	}
	return err
}

// CrossEntry shows one name of a directory to the lease if there are nested
// roots, for operations that take the name without opening it. It returns the
// domain the name would enter, 0 for d's own.
func CrossEntry(l *guard.Lease, d Dir, name string, info *Info) (uint64, error) {
	if !l.Fenced() || l.File() != "" {
		return 0, nil
	}
	if domain, err := crossName(l, &d, name); domain != 0 || err != nil {
		return domain, err
	}
	return CrossChild(l, info)
}

// CrossChild is CrossEntry for directories, where single files do not matter.
func CrossChild(l *guard.Lease, info *Info) (uint64, error) {
	if !l.Fenced() || !info.IsDir() {
		return 0, nil
	}
	return l.Cross(info.ID())
}

// open is openat2 with the flags every call here needs.
func open(dirfd int, path string, flags, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: resolve}
	return openHow(dirfd, path, &how)
}

func openHow(dirfd int, path string, how *unix.OpenHow) (int, error) {
	for range maxRetries {
		fd, err := unix.Openat2(dirfd, path, how)
		switch err {
		case unix.EINTR, unix.EAGAIN:
			continue
		case unix.EXDEV:
			// Elements are clean and links are not followed, so only a
			// mount point can lead out.
			return -1, &guard.Error{Kind: names.Escaped}
		}
		if err != nil {
			return -1, err
		}
		return pass(fd)
	}
	return -1, unix.EAGAIN
}
