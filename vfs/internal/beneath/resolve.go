package beneath

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
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
	local  bool // the source cannot hang; what is mounted in it can
	// id is the directory's identity where nested roots have to be noticed,
	// so that single files are; zero: not known yet.
	id guard.Identity
	// spelled is the path below the root as the source spells it, where that
	// differs from what was asked for.
	spelled string
}

// Rel is the directory's path below the root, for judging names in it; asked is
// what it was resolved by.
func (d Dir) Rel(asked string) string {
	if d.spelled != "" {
		return d.spelled
	}
	return asked
}

// In is a directory that somebody else keeps open, of the lease's root. Without
// a lease (a bare Dir) no other file system is entered from it.
func In(l *guard.Lease, fd int) Dir {
	return Dir{FD: fd, across: l.OtherFileSystems(), local: !l.Remote()}
}

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

// Reference takes a reference to one name of a directory, whatever it is and without
// following it, to be kept.
func Reference(d Dir, name string) (int, Info, error) {
	fd, err := open(d.FD, name, unix.O_PATH|unix.O_NOFOLLOW, d.resolve())
	if err == nil {
		err = Hold(fd)
	}
	if err != nil {
		return -1, Info{}, err
	}
	info, err := Stat(fd)
	if err != nil {
		_ = unix.Close(fd)
	}
	return fd, info, err
}

// OpenDir resolves a directory of the lease's root, and judges it and those above.
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
	if err := l.JudgeDir(rel); err != nil {
		return Dir{}, err
	}
	return walk(l, rel, unix.O_DIRECTORY)
}

// Parent resolves the directory that holds p's last element, and judges the
// name for what the operation does. A root's own path has no parent, except that
// of a single-file root, whose parent is the root's descriptor.
func Parent(l *guard.Lease, p guard.Path) (Dir, string, error) {
	return ParentFor(l, p, l.Access())
}

// ParentFor is Parent for another access than that of the operation.
func ParentFor(l *guard.Lease, p guard.Path, a guard.Access) (Dir, string, error) {
	if p.IsRoot() {
		if f := l.File(); f != "" {
			return In(l, l.Dir()), f, nil
		}
		return Dir{}, "", &guard.Error{Kind: names.Invalid, Err: unix.EBUSY}
	}
	d, base, err := parentUnjudged(l, p)
	if err != nil {
		return Dir{}, "", err
	}
	dir, _ := p.Split()
	if err := Judge(l, d, dir.Rel(), base, a); err != nil {
		d.Close()
		return Dir{}, "", err
	}
	return d, base, nil
}

// parentUnjudged is Parent for who judges the name otherwise.
func parentUnjudged(l *guard.Lease, p guard.Path) (Dir, string, error) {
	if p.IsRoot() {
		return Parent(l, p)
	}
	dir, base := p.Split()
	d, err := OpenDir(l, dir.Rel())
	if err != nil {
		return Dir{}, "", err
	}
	if err := Enter(l, &d, base); err != nil {
		d.Close()
		return Dir{}, "", err
	}
	return d, base, nil
}

// Judge judges a name of an open directory, resolved by rel, for an access: as it
// is written, and where the source may take it for another as that.
func Judge(l *guard.Lease, d Dir, rel, name string, a guard.Access) error {
	if !l.Patterned() {
		return nil
	}
	if err := l.JudgeAs(a, d.Rel(rel), name, pattern.Unknown); err != nil || !l.Spells(name) {
		return err
	}
	real, err := spelledIn(d, name)
	for _, r := range real {
		if err == nil {
			err = l.JudgeAs(a, d.Rel(rel), r, pattern.Unknown)
		}
	}
	return err
}

// Enter shows the lease that an operation is about one name of d, which may be a
// nested single-file root: d is in that root's domain then.
func Enter(l *guard.Lease, d *Dir, name string) error {
	if !l.HasNested() || name == "" || l.File() != "" {
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
	return l.EnterNestedName(d.id, name)
}

// Node resolves p itself, whatever it is, without following it (O_PATH), and
// judges it for what the operation does.
func Node(l *guard.Lease, p guard.Path) (Dir, error) { return NodeFor(l, p, l.Access()) }

// NodeFor is Node for another access than that of the operation.
func NodeFor(l *guard.Lease, p guard.Path, a guard.Access) (Dir, error) {
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
	if !l.Patterned() {
		return walk(l, p.Rel(), unix.O_NOFOLLOW)
	}
	dir, base := p.Split()
	if err := l.JudgeDir(dir.Rel()); err != nil {
		return Dir{}, err
	}
	if !spells(l, p.Rel()) {
		if err := l.JudgeAs(a, dir.Rel(), base, pattern.Unknown); err != nil {
			return Dir{}, err
		}
		return walk(l, p.Rel(), unix.O_NOFOLLOW)
	}
	d, err := OpenDir(l, dir.Rel())
	if err != nil {
		return d, err
	}
	if err := Judge(l, d, dir.Rel(), base, a); err != nil {
		d.Close()
		return Dir{}, err
	}
	d.Close()
	return walk(l, p.Rel(), unix.O_NOFOLLOW)
}

// spells reports whether a name of the path may be another spelling.
func spells(l *guard.Lease, rel string) bool {
	if !l.Patterned() {
		return false
	}
	for elem := range strings.SplitSeq(rel, "/") {
		if l.Spells(elem) {
			return true
		}
	}
	return false
}

// stayBeneath are the flags of every resolution.
const stayBeneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_SYMLINKS

func resolveFlags(l *guard.Lease) uint64 { return Dir{across: l.OtherFileSystems()}.resolve() }

// walk resolves rel from the root's descriptor, in chunks below PATH_MAX, or
// element by element where nested roots, or other spellings of names, have to be
// noticed.
func walk(l *guard.Lease, rel string, last uint64) (Dir, error) {
	if l.HasNested() || spells(l, rel) {
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
		d = Dir{FD: fd, owned: true, across: d.across, local: d.local}
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
	for at := ""; ; {
		elem, rest, more := strings.Cut(rel, "/")
		flags := uint64(unix.O_DIRECTORY)
		if !more {
			flags = last
		}
		err := Enter(l, &d, elem)
		if err == nil {
			at, err = spelling(l, d, at, elem, more || last&unix.O_DIRECTORY != 0)
		}
		if err != nil {
			d.Close()
			return Dir{}, err
		}
		fd, err := open(d.FD, elem, unix.O_PATH|flags, d.resolve())
		d.Close()
		if err != nil {
			return Dir{}, err
		}
		d = Dir{FD: fd, Domain: d.Domain, owned: true, across: d.across, local: d.local, spelled: at}
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

// spelling adds a name to the path of d as the source spells it, and judges what
// is entered.
func spelling(l *guard.Lease, d Dir, at, name string, enter bool) (string, error) {
	asked := join(at, name)
	if !l.Spells(name) {
		return asked, nil
	}
	real, err := spelledIn(d, name)
	for _, r := range real {
		asked = join(at, r)
		if err == nil && enter {
			err = l.JudgeDir(asked)
		}
	}
	return asked, err
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

func cross(l *guard.Lease, d *Dir) error {
	info, err := Stat(d.FD)
	if err != nil {
		return err
	}
	d.id = info.ID()
	entered, err := l.EnterNested(d.id)
	if entered != 0 {
		d.Domain = entered
	}
	return err
}

// CrossEntry shows one name of a directory to the lease if there are nested
// roots, for operations that take the name without opening it. It returns the
// domain the name would enter, 0 for d's own.
func CrossEntry(l *guard.Lease, d Dir, name string, info *Info) (uint64, error) {
	if !l.HasNested() || l.File() != "" {
		return 0, nil
	}
	if domain, err := crossName(l, &d, name); domain != 0 || err != nil {
		return domain, err
	}
	return CrossChild(l, info)
}

// CrossChild is CrossEntry for directories, where single files do not matter.
func CrossChild(l *guard.Lease, info *Info) (uint64, error) {
	if !l.HasNested() || !info.IsDir() {
		return 0, nil
	}
	return l.EnterNested(info.ID())
}

// changing are the flags of open(2) with which it changes the source.
const changing = unix.O_CREAT | unix.O_TRUNC | unix.O_TMPFILE&^unix.O_DIRECTORY

// open is openat2 with the flags every call here needs, without those that change
// the source.
func open(dirfd int, path string, flags, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: flags&^changing | unix.O_CLOEXEC, Resolve: resolve}
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
