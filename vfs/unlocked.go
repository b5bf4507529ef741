package vfs

import (
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// Locks are advisory, so a rename, a removal or a replacement goes through
// whoever has locked the file. For peers they count: what somebody works on under
// a lock is not taken away or exchanged meanwhile.

// whileUnlocked runs f while nobody else holds a lock on the file of that name,
// or returns Locked. Meanwhile it holds the lock of flock(2) itself. Only regular
// files have locks that matter here; of one that we may neither read nor write
// nobody can tell, and f is run.
func whileUnlocked(l *guard.Lease, d beneath.Dir, base string, old *Info, f func() error) error {
	if !old.IsRegular() {
		return f()
	}
	fd, info, err := beneath.OpenFile(d, base, unix.O_RDONLY)
	if err == unix.EACCES { //nolint:errorlint // bare errno
		if fd, info, err = beneath.OpenFile(d, base, unix.O_WRONLY); err == unix.EACCES { //nolint:errorlint // bare errno
			return f()
		}
	}
	if err != nil {
		return err
	}
	defer beneath.Close(fd)
	if info.ID() != old.ID() {
		return &guard.Error{Kind: names.Conflict}
	}
	if err := claim(l, fd); err != nil {
		return err
	}
	return f()
}

func nothing() error { return nil }

// unlinkUnlocked has remove remove a name that is no directory and, as far as its
// directory told, of this type, unless its file is locked.
func unlinkUnlocked(l *guard.Lease, d beneath.Dir, name string, typ uint32, remove func() error) error {
	if typ != unix.S_IFREG {
		return remove()
	}
	info, err := beneath.StatIn(d, name)
	if err != nil {
		return err
	}
	return whileUnlocked(l, d, name, &info, remove)
}

// claim takes the whole-file lock of flock(2) on an open file, for as long as it
// is open, and checks that nobody holds a lock of fcntl(2). File systems without
// locks have nobody holding any.
func claim(l *guard.Lease, fd int) error {
	if lk, err := beneath.OFDConflict(fd, unix.F_WRLCK, 0, 0); err == nil && lk.Type != unix.F_UNLCK {
		return &guard.Error{Kind: names.Locked}
	}
	if err := beneath.Flock(l, fd, unix.LOCK_EX); err == unix.EAGAIN { //nolint:errorlint // bare errno
		return &guard.Error{Kind: names.Locked}
	}
	return nil
}
