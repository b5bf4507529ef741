package beneath

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// Programs see a directory of a staged root as the union of two directories: the one at the
// same path in the upper directory of the store, which has the programs' changes, and the one
// in the source, which is the lower one. A name of the upper directory hides that of the
// source. A name of the source is also hidden by a whiteout, a record in the store, at the name
// or at a directory above it.
//
// A look-up reads the upper directory first, and checks for whiteouts after that. A change
// records the whiteout before it removes the name from the upper directory. So a look-up finds
// the name or the whiteout at each moment. The store knows which names the upper directory can
// have, so most look-ups open one side only.

// union is a directory or file of a staged root.
type union struct {
	st  *staged
	rel string // its path below the root
	// up and low are open descriptors of the two sides, -1 where none is open.
	up, low int
	extra   []int // descriptors to be closed that are not the Dir's own
}

// close closes the union's descriptors, but not that of its Dir.
func (u *union) close() {
	if len(u.extra) == 0 {
		return // also because operations share the union of the root's top
	}
	for _, fd := range u.extra {
		_ = unix.Close(fd)
	}
	u.extra = nil
}

// splitRel splits a path into its directory and its last element.
func splitRel(rel string) (parent, base string) {
	i := strings.LastIndexByte(rel, '/')
	return rel[:max(i, 0)], rel[i+1:]
}

// isRaised reports whether the upper directory has the directory rel.
func (st *staged) isRaised(rel string) bool {
	upper, _, _ := st.store.Locate(rel)
	return upper == rel
}

// isHidden reports whether a whiteout hides the source's file at a path.
func (st *staged) isHidden(rel string) bool {
	_, hidden, _ := st.store.Locate(rel)
	return hidden
}

// openLong opens a path, which may be longer than one call can resolve.
func openLong(top int, rel string, flags uint64) (int, error) {
	part, rest := cut(rel)
	if rest == "" {
		return open(top, part, flags, stayBeneath|unix.RESOLVE_NO_XDEV)
	}
	fd, err := open(top, part, unix.O_PATH|unix.O_DIRECTORY, stayBeneath|unix.RESOLVE_NO_XDEV)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fd)
	return openLong(fd, rest, flags)
}

// enter opens a path below the directory, with the flags of openat2(2). next is the union at that
// path, and fd is its open side.
func (u *union) enter(part string, flags uint64) (fd int, next *union, err error) {
	next = &union{st: u.st, rel: join(u.rel, part), up: -1, low: -1}
	fd, lower, err := u.st.open(next.rel, flags)
	switch {
	case err != nil:
		return -1, nil, err
	case lower:
		next.low = fd
	default:
		next.up = fd
	}
	return fd, next, nil
}

// open opens the file that programs see at a path. lower reports whether it is the source's.
func (st *staged) open(rel string, flags uint64) (fd int, lower bool, err error) {
	upper, hidden, mayHave := st.store.Locate(rel)
	if mayHave {
		if fd, err = openLong(st.up, rel, flags); err != unix.ENOENT { //nolint:errorlint // bare errno
			return fd, false, err
		}
		hidden = st.isHidden(rel)
	}
	if hidden {
		return -1, false, unix.ENOENT
	}
	fd, err = openLong(st.fd, rel, flags)
	if err == unix.ENOTDIR || err == unix.ELOOP { //nolint:errorlint // bare errnos
		// The upper directory may have a directory where the source has another file.
		dir, derr := st.openLowerDir(upper)
		if derr != nil {
			return -1, true, unix.ENOENT
		}
		_ = unix.Close(dir)
	}
	return fd, true, err
}

// openLowerDir opens a directory of the source, whether it is hidden or not.
func (st *staged) openLowerDir(rel string) (int, error) {
	if rel == "" {
		return unix.FcntlInt(uintptr(st.fd), unix.F_DUPFD_CLOEXEC, 0)
	}
	return openLong(st.fd, rel, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW)
}

// upDir returns the directory's descriptor in the upper directory, -1 if it is not there.
func (u *union) upDir() int {
	if u.up >= 0 || !u.st.isRaised(u.rel) {
		return u.up
	}
	fd, err := openLong(u.st.up, u.rel, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return -1
	}
	u.up, u.extra = fd, append(u.extra, fd)
	return fd
}

// lowDir returns the directory's descriptor in the source, -1 if the source has none or it is
// hidden.
func (u *union) lowDir() int {
	if u.st.isHidden(u.rel) {
		return -1
	}
	if u.low >= 0 {
		return u.low
	}
	fd, err := u.st.openLowerDir(u.rel)
	if err != nil {
		return -1
	}
	u.low, u.extra = fd, append(u.extra, fd)
	return fd
}

// locate reports whether the upper directory may have a name, and whether a whiteout hides the
// source's file.
func (u *union) locate(name string) (mayHave, isHidden bool) {
	_, isHidden, mayHave = u.st.store.Locate(join(u.rel, name))
	return mayHave, isHidden
}

// openName opens one name of the directory. lower reports whether it is the source's.
func (u *union) openName(name string, flags uint64) (fd int, lower bool, err error) {
	const resolve = stayBeneath | unix.RESOLVE_NO_XDEV
	mayHave, hidden := u.locate(name)
	if mayHave && u.up >= 0 {
		if fd, err = open(u.up, name, flags, resolve); err != unix.ENOENT { //nolint:errorlint // bare errno
			return fd, false, err
		}
		_, hidden = u.locate(name)
		mayHave = false
	}
	switch {
	case mayHave, !hidden && u.low < 0:
		return u.st.open(join(u.rel, name), flags) // the side's directory is not open
	case hidden:
		return -1, false, unix.ENOENT
	}
	fd, err = open(u.low, name, flags, resolve)
	return fd, true, err
}

// side is the file that one side has at a name.
type side struct {
	exists bool
	info   Info // with the file's own identity
}

// look describes the files that both sides have at a name. A hidden file of the source counts
// as none.
func (u *union) look(name string) (up, low side, err error) {
	mayHave, hidden := u.locate(name)
	if mayHave {
		if dir := u.upDir(); dir >= 0 {
			if up, err = lookAt(dir, name); err != nil {
				return up, low, err
			}
		}
		_, hidden = u.locate(name)
	}
	if hidden {
		return up, low, nil
	}
	if dir := u.lowDir(); dir >= 0 {
		low, err = lookAt(dir, name)
	}
	return up, low, err
}

func lookAt(dir int, name string) (side, error) {
	info, err := StatIn(Dir{fd: dir, local: true}, name)
	if err == unix.ENOENT { //nolint:errorlint // bare errno
		return side{}, nil
	}
	return side{err == nil, info}, err
}

// statIn returns the attributes of the file that programs see at a name. d is the directory
// itself.
func (u *union) statIn(d Dir, name string) (info Info, err error) {
	d.union = nil
	mayHave, hidden := u.locate(name)
	if d.fd = u.up; mayHave && u.up >= 0 {
		info, err = StatIn(d, name)
		if err == nil {
			u.st.show(&info)
		}
		if err != unix.ENOENT { //nolint:errorlint // bare errno
			return info, err
		}
		_, hidden = u.locate(name)
		mayHave = false
	}
	switch d.fd = u.low; {
	case hidden && !mayHave:
		return Info{}, unix.ENOENT
	case mayHave || u.low < 0:
		var fd int
		if fd, _, err = u.st.open(join(u.rel, name), unix.O_PATH|unix.O_NOFOLLOW); err == nil {
			info, err = stat(fd)
			_ = unix.Close(fd)
		}
	default:
		info, err = StatIn(d, name)
	}
	if err == nil {
		u.st.show(&info)
	}
	return info, err
}

// stageOf returns the stage of the lease's root, nil if the root is not staged.
func stageOf(l *guard.Lease) *staged {
	if l == nil {
		return nil
	}
	st, _ := l.Source().(*staged)
	return st
}

// openFile is OpenFile in a staged root. For writing, a file of the source is copied up first;
// without its contents if emptied is not nil, see OpenToEmpty.
func (u *union) openFile(l *guard.Lease, d Dir, base string, flags int, emptied *rules.Identity) (Handle, Info, error) {
	for range copyTries {
		h, info, err := u.openFileOnce(l, d, base, flags, emptied)
		if err != unix.ESTALE || emptied != nil { //nolint:errorlint // bare errno
			return h, info, err
		}
	}
	return Handle{}, Info{}, unix.ESTALE
}

func (u *union) openFileOnce(l *guard.Lease, d Dir, base string, flags int, emptied *rules.Identity) (Handle, Info, error) {
	before, err := StatIn(d, base)
	if err == nil {
		err = openable(&before)
	}
	if err == nil && emptied != nil && *emptied != (rules.Identity{}) && before.ID() != *emptied {
		err = unix.ESTALE
	}
	rel, writes := join(u.rel, base), flags&unix.O_ACCMODE != unix.O_RDONLY || emptied != nil
	if err == nil && writes {
		err = u.st.mayChange(rel, true)
	}
	if err == nil && writes {
		err = u.st.copyUp(l, rel, emptied != nil)
	}
	if err != nil {
		return Handle{}, Info{}, err
	}
	lowered := u.st.lowered.Load()
	fd, lower, err := u.openName(base, uint64(flags|unix.O_NOFOLLOW|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_LARGEFILE))
	if err != nil {
		return Handle{}, Info{}, err
	}
	info, err := stat(fd)
	ownID := info.ID()
	u.st.show(&info)
	if err == nil && (info.ID() != before.ID() || lower && writes) {
		err = unix.ESTALE
	}
	if err != nil {
		_ = unix.Close(fd)
		return Handle{}, Info{}, err
	}
	if err := atStep("opened"); err != nil {
		_ = unix.Close(fd)
		return Handle{}, Info{}, err
	}
	var h Handle
	if lower {
		h, err = u.st.track(fd, ownID, rel)
	} else {
		h, err = u.st.trackUpper(fd, ownID, isWritable(flags), lowered)
	}
	return h, info, err
}
