package beneath

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
)

// The mode that a program gives a file can also keep out the owner of the stage, if the owner is an
// ordinary user. The owner's operations then add the permission to the mode for a moment. If this
// process is killed meanwhile, the permission stays.

// Readable calls f while this process may read the stage's file or directory d, to open it or to
// read its attributes. If the mode must be changed for that, programs can change no file of the stage
// meanwhile, so f must be short.
func (s Stage) Readable(l *guard.Lease, d Dir, info *Info, f func() error) error {
	uid := unix.Geteuid()
	if info.Mode&0o400 != 0 || uid == 0 || int(info.UID) != uid || !info.IsRegular() && !info.IsDir() {
		return f()
	}
	st := s.st
	st.mu.Lock() // keeps programs from changing the attributes
	defer st.mu.Unlock()
	st.frozen.writes.Lock() // keeps programs from changing the contents
	defer st.frozen.writes.Unlock()
	return st.withBits(l, d.fd, 0o400, f)
}

// withAccess calls f, which does something in a directory of the upper directory. If f fails because
// the mode of the directory keeps its owner out, as in Go's module cache, withAccess calls f again
// while the mode has the owner's permissions. The caller holds st.mu.
func (st *staged) withAccess(l *guard.Lease, dir int, f func() error) error {
	err := f()
	if err != unix.EACCES || unix.Geteuid() == 0 { //nolint:errorlint // bare errno
		return err
	}
	return st.withBits(l, dir, 0o700, f)
}

// withBits calls f while the mode of a file has the bits. The caller holds st.mu.
func (st *staged) withBits(l *guard.Lease, fd int, bits uint32, f func() error) error {
	was, err := stat(fd)
	if err != nil {
		return err
	}
	if was.Mode&bits == bits {
		return f()
	}
	if err := Chmod(l, changeable(fd), was.Mode&0o7777|bits); err != nil {
		return err
	}
	err = f()
	if back := Chmod(l, changeable(fd), was.Mode&0o7777); back != nil && err == nil {
		err = back
	}
	if now, statErr := stat(fd); statErr == nil {
		st.noteAccess(&was, &now)
	}
	return err
}

// ctimes are the ctimes of a file before and after changes of its mode by withBits, with no other
// change in between.
type ctimes struct{ first, last int64 }

// noteAccess records that withBits has changed the ctime of a file, see isUnchanged.
func (st *staged) noteAccess(was, now *Info) {
	t, ok := st.accesses[was.ID()]
	if !ok || t.last != nanos(was.Ctime) {
		t.first = nanos(was.Ctime)
	}
	t.last = nanos(now.Ctime)
	st.accesses[was.ID()] = t
}

// IsUnchanged reports whether now and then describe the same file of the stage in the same state.
func (s Stage) IsUnchanged(now, then *Info) bool {
	s.st.mu.Lock()
	defer s.st.mu.Unlock()
	return s.st.isUnchanged(now, then)
}

// isUnchanged reports whether now and then describe the same file, and only withBits has changed
// the file's ctime in between.
func (st *staged) isUnchanged(now, then *Info) bool {
	if now.ID() != then.ID() || now.Ctime == then.Ctime {
		return now.ID() == then.ID()
	}
	t, ok := st.accesses[now.ID()]
	at := nanos(then.Ctime)
	return ok && nanos(now.Ctime) == t.last && t.first <= at && at <= t.last
}

// reach opens a file of the upper directory, also in directories whose mode keeps their owner out.
// The caller holds st.mu.
func (st *staged) reach(rel string, flags uint64) (int, error) {
	fd, err := openLong(st.up, rel, flags)
	if err != unix.EACCES || unix.Geteuid() == 0 { //nolint:errorlint // bare errno
		return fd, err
	}
	dir, err := unix.FcntlInt(uintptr(st.up), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	for {
		part, rest, isDir := strings.Cut(rel, "/")
		how := flags
		if isDir {
			how = unix.O_PATH | unix.O_DIRECTORY
		}
		next := -1
		err := st.withAccess(nil, dir, func() (err error) {
			next, err = open(dir, part, how, stayBeneath|unix.RESOLVE_NO_XDEV)
			return err
		})
		_ = unix.Close(dir)
		if err != nil && next >= 0 {
			_ = unix.Close(next)
		}
		if err != nil || !isDir {
			return next, err
		}
		dir, rel = next, rest
	}
}

// Upper resolves a path in the upper directory, without the source. It follows no link. With
// isDir, it resolves only directories. Nothing can be changed through the result, which the caller
// must close.
func (s Stage) Upper(rel string, isDir bool) (Dir, error) {
	d, err := Dir{fd: s.st.up, local: true}.Below(rel, isDir)
	if err != unix.EACCES { //nolint:errorlint // bare errno
		return d, err
	}
	flags := uint64(unix.O_PATH | unix.O_NOFOLLOW)
	if isDir {
		flags = unix.O_PATH | unix.O_DIRECTORY
	}
	s.st.mu.Lock()
	defer s.st.mu.Unlock()
	fd, err := s.st.reach(rel, flags)
	if err != nil {
		return Dir{}, err
	}
	return Dir{fd: fd, owned: true, local: true}, nil
}
