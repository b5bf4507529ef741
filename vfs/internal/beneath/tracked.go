package beneath

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// A program may have a file of a staged root open while the file is copied up, or while the
// owner's apply brings it into the source. Then the name gets another file, with the same
// identity, and the open descriptor is moved to that file (dup3). A descriptor for writing is
// moved to the upper directory only, never back to the source, which programs must not change.

// trackedFile is a kept descriptor of a file of a staged root.
type trackedFile struct {
	st     *staged
	fd     int
	writes bool // the descriptor is open for writing
	// thawed is the frozen.generation in which the file was found not to be frozen.
	thawed atomic.Uint64
	// st.swaps guards the fields below. isLower is also read without it.
	rel     string         // the path at which the file of the source was seen
	id      rules.Identity // of the file itself, not the one that the stage shows
	isLower atomic.Bool    // fd refers to the source's file
	gone    atomic.Bool    // the file of the source has lost the name in the stage
}

// isWritable reports whether open flags allow writing.
func isWritable(flags int) bool {
	return flags&unix.O_PATH == 0 && flags&unix.O_ACCMODE != unix.O_RDONLY
}

// track tracks a descriptor of the source's file that was seen at a path. If the file was copied
// meanwhile, the descriptor is moved at once. The error is ESTALE if the path does not show the
// file any more. On every error, track closes fd.
func (st *staged) track(fd int, ownID rules.Identity, rel string) (Handle, error) {
	f := &trackedFile{st: st, fd: fd, rel: rel}
	st.swaps.Lock()
	defer st.swaps.Unlock()
	now, err := st.openUpper(rel)
	if err == unix.ENOENT && !st.isHidden(rel) { //nolint:errorlint // bare errno
		f.isLower.Store(true)
		st.addLocked(f, ownID)
		return Handle{fd: fd, tracked: f}, nil
	}
	if err != nil {
		_ = unix.Close(fd)
		return Handle{}, unix.ESTALE
	}
	defer unix.Close(now)
	up, err := stat(now)
	if err == nil && st.ids.id(up.ID()).Ino != ownID.Ino {
		err = unix.ESTALE
	}
	if err == nil {
		err = f.moveTo(now)
	}
	if err != nil {
		_ = unix.Close(fd)
		return Handle{}, err
	}
	st.addLocked(f, up.ID())
	return Handle{fd: fd, tracked: f}, nil
}

// anyTime, as the argument lowered of trackUpper, accepts a file without a name.
const anyTime = ^uint64(0)

// trackUpper tracks a descriptor of a file of the upper directory. lowered is staged.lowered as it
// was before the file's name was resolved. The error is ESTALE, and fd is closed, if the owner's
// apply has dropped files since, and this file has no name any more. With anyTime, the file may
// have none.
func (st *staged) trackUpper(fd int, ownID rules.Identity, writes bool, lowered uint64) (Handle, error) {
	st.swaps.Lock()
	defer st.swaps.Unlock()
	if lowered != anyTime && lowered != st.lowered.Load() {
		info, err := stat(fd)
		if err == nil && st.links(&info) == 0 {
			err = unix.ESTALE
		}
		if err != nil {
			_ = unix.Close(fd)
			return Handle{}, err
		}
	}
	f := &trackedFile{st: st, fd: fd, writes: writes}
	st.addLocked(f, ownID)
	return Handle{fd: fd, tracked: f}, nil
}

// addLocked records which file the descriptor refers to. The caller holds st.swaps.
func (st *staged) addLocked(f *trackedFile, id rules.Identity) {
	f.id = id
	st.tracked[id] = append(st.tracked[id], f)
}

// swapUp moves the descriptors of a file of the source to its copy. fd is a reference to the
// copy. If the copy cannot be opened for a descriptor, the descriptor becomes a reference: its
// program gets errors, not contents that are out of date. The caller holds st.swaps.
func (st *staged) swapUp(low, up rules.Identity, fd int) {
	list := st.tracked[low]
	delete(st.tracked, low)
	for _, f := range list {
		if f.moveTo(fd) != nil {
			_ = unix.Dup3(fd, f.fd, unix.O_CLOEXEC)
		}
		f.isLower.Store(false)
		st.addLocked(f, up)
	}
}

// swapDown moves the descriptors of a file of the upper directory, none of them for writing, to
// the file of the source that replaces it at a path. fd is a reference to that file. If it
// cannot be opened for a descriptor, the descriptor stays: the contents are the same. The
// caller holds st.mu and st.swaps.
func (st *staged) swapDown(up, low rules.Identity, fd int, rel string) {
	list := st.tracked[up]
	delete(st.tracked, up)
	for _, f := range list {
		if f.moveTo(fd) != nil {
			st.addLocked(f, up)
			continue
		}
		f.rel = rel
		f.gone.Store(false)
		f.isLower.Store(true)
		st.addLocked(f, low)
	}
}

// isWritten reports whether a file can be written through a descriptor that is tracked. The
// caller holds st.swaps.
func (st *staged) isWritten(id rules.Identity) bool {
	for _, f := range st.tracked[id] {
		if f.writes {
			return true
		}
	}
	return false
}

// openUpper opens the file that the upper directory has at a path. It makes no system call if the
// upper directory cannot have a file there.
func (st *staged) openUpper(rel string) (int, error) {
	if _, _, mayHave := st.store.Locate(rel); !mayHave {
		return -1, unix.ENOENT
	}
	return openLong(st.up, rel, unix.O_PATH|unix.O_NOFOLLOW)
}

// setGone records whether the source's file at a path has lost its name in the stage.
func (st *staged) setGone(id rules.Identity, rel string, isGone bool) {
	st.swaps.Lock()
	defer st.swaps.Unlock()
	for _, f := range st.tracked[id] {
		if f.rel == rel {
			f.gone.Store(isGone)
		}
	}
}

// moveTo makes the descriptor refer to another file. to is a reference to that file.
func (f *trackedFile) moveTo(to int) error {
	flags, err := unix.FcntlInt(uintptr(f.fd), unix.F_GETFL, 0)
	if err != nil {
		return err
	}
	if flags&unix.O_PATH != 0 {
		return unix.Dup3(to, f.fd, unix.O_CLOEXEC)
	}
	fd, err := Reopen(to, flags&^unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Dup3(fd, f.fd, unix.O_CLOEXEC)
}

// untrack ends the tracking. It waits for a swap that is under way. Otherwise the swap could
// hit another file that gets the descriptor's number after the close.
func (f *trackedFile) untrack() {
	st := f.st
	st.swaps.Lock()
	defer st.swaps.Unlock()
	list := st.tracked[f.id]
	for i, other := range list {
		if other == f {
			list[i] = list[len(list)-1]
			list = list[:len(list)-1]
			break
		}
	}
	if len(list) == 0 {
		delete(st.tracked, f.id)
		return
	}
	st.tracked[f.id] = list
}

// toUpper copies a file of the source up, so that the descriptor refers to the copy. A file that
// has lost its name gets a copy without a name.
func (f *trackedFile) toUpper(l *guard.Lease) error {
	if !f.isLower.Load() {
		return nil
	}
	st := f.st
	st.swaps.Lock()
	rel, id := f.rel, f.id
	st.swaps.Unlock()
	fd, lower, err := st.open(rel, unix.O_PATH|unix.O_NOFOLLOW)
	if err == nil {
		info, serr := stat(fd)
		_ = unix.Close(fd)
		if serr == nil && lower && info.ID() == id {
			if err := st.mayChange(rel, false); err != nil {
				return err
			}
			if err := st.copyUp(l, rel, false); err != nil {
				return err
			}
		}
	}
	if !f.isLower.Load() {
		return nil
	}
	return f.copyNameless(l)
}

func (f *trackedFile) copyNameless(l *guard.Lease) error {
	st := f.st
	info, err := stat(f.fd)
	if err != nil {
		return err
	}
	if !info.IsRegular() {
		return unix.EROFS
	}
	c := &upCopy{st: st, l: l, name: st.tempName()}
	defer c.drop()
	if err := c.prepareFile(f.fd, &info, false); err != nil {
		return err
	}
	fd, err := open(st.tmp, c.name, unix.O_PATH|unix.O_NOFOLLOW, stayBeneath)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	up, err := stat(fd)
	if err != nil {
		return err
	}
	st.swaps.Lock()
	defer st.swaps.Unlock()
	if !f.isLower.Load() {
		return nil
	}
	if f.id != info.ID() {
		return unix.ESTALE
	}
	st.ids.recordCopy(up.ID(), f.id)
	st.swapUp(f.id, up.ID(), fd)
	return nil
}
