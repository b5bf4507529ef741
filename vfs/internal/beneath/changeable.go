package beneath

import (
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// Changeable is the descriptor of a file that an operation may change. Every call that changes
// a file or its attributes takes a Changeable. Only this package makes one: for a file that it
// has created, or that Dir.Change or Handle.Change allows to be changed. So a descriptor that must
// not be written through cannot be passed to such a call by mistake: that does not compile.
type Changeable struct {
	// fdPlusOne is the descriptor plus one, so that the zero Changeable refers to no file.
	fdPlusOne int
	// tracked is set for a descriptor in a staged root that may be kept between operations. named
	// is the stage if Dir.Change has made the Changeable for a file that programs see in a staged
	// root.
	tracked *trackedFile
	named   *staged
}

func changeable(fd int) Changeable { return Changeable{fdPlusOne: fd + 1} }

// change makes a system call that changes the file's attributes. In a staged root the owner's
// apply may put another file in the place of this one at any time. The error is then ESTALE,
// and no file is changed.
func (w Changeable) change(l *guard.Lease, call func() error) error {
	return w.whileCurrent(l, func() error { return change(l, call) })
}

// whileCurrent calls f. In a staged root it first thaws the file, and calls f while programs see
// the file and the file is not frozen (frozen.go). Like change, it returns ESTALE if another file
// has come into the place of this one.
func (w Changeable) whileCurrent(l *guard.Lease, f func() error) error {
	st := w.stage()
	if st == nil {
		return f()
	}
	for {
		if err := st.thaw(l, w); err != nil {
			return err
		}
		if done, err := st.onceThawed(w, f); done {
			return err
		}
	}
}

// onceThawed is one attempt of whileCurrent. done is false if the file was frozen meanwhile.
func (st *staged) onceThawed(w Changeable, f func() error) (done bool, err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := w.check(); err != nil {
		return true, err
	}
	if o, err := st.frozenFile(w, true); o != nil || err != nil {
		return err != nil, err
	}
	return true, f()
}

// check returns ESTALE if programs see another file in the place of this one. The caller holds
// the stage's mu.
func (w Changeable) check() error {
	if w.tracked != nil && w.tracked.isLower.Load() {
		return unix.ESTALE
	}
	if w.named == nil {
		return nil
	}
	info, err := stat(w.FD())
	if err == nil && w.named.links(&info) == 0 {
		err = unix.ESTALE
	}
	return err
}

// FD is the descriptor, for calls that change nothing; -1 for the zero Changeable.
func (w Changeable) FD() int { return w.fdPlusOne - 1 }

// Handle returns the descriptor as a Handle, which may be kept between operations.
func (w Changeable) Handle() Handle { return Handle{fd: w.FD(), tracked: w.tracked} }

// Close closes the descriptor. On the zero Changeable it does nothing.
func (w Changeable) Close() {
	if w.fdPlusOne > 0 {
		h := w.Handle()
		h.Close()
	}
}

// Change allows changes to the file of d. In a staged root Change copies it up first, and d
// then refers to the copy.
func (d *Dir) Change(l *guard.Lease) (Changeable, error) {
	st := stageOf(l)
	switch {
	case st == nil || d.source:
		return changeable(d.fd), nil
	case d.union == nil:
		return Changeable{}, unix.EROFS // a file of the source, which a stage never changes
	}
	u := d.union
	if u.up != d.fd {
		if err := st.mayChange(u.rel, false); err != nil {
			return Changeable{}, err
		}
		if err := st.copyUp(l, u.rel, false); err != nil {
			return Changeable{}, err
		}
		fd, lower, err := st.open(u.rel, unix.O_PATH|unix.O_NOFOLLOW)
		if err == nil && lower {
			_ = unix.Close(fd)
			err = unix.ESTALE
		}
		if err != nil {
			return Changeable{}, err
		}
		d.Close()
		*d = Dir{fd: fd, owned: true, Domain: d.Domain, local: d.local, id: d.id, spelled: d.spelled,
			union: &union{st: st, rel: u.rel, up: fd, low: -1}}
	}
	return Changeable{fdPlusOne: d.fd + 1, named: st}, nil
}

// Handle is the descriptor of a file, open or a reference (O_PATH), that may be kept between
// operations.
type Handle struct {
	fd int
	// tracked is set if the file is one of a staged root.
	tracked *trackedFile
}

// FD is the descriptor, for calls that change nothing.
func (h *Handle) FD() int { return h.fd }

// Stat reads the attributes of the file. A file of the source that has lost its name in the
// stage has one link less.
func (h *Handle) Stat(l *guard.Lease) (Info, error) {
	info, err := Stat(l, h.fd)
	if !h.InPlace() && h.tracked.gone.Load() {
		info.Nlink -= min(info.Nlink, 1)
	}
	return info, err
}

// Change allows the file to be changed. A file of the source of a staged root is copied up
// first, and the descriptor then refers to the copy.
func (h *Handle) Change(l *guard.Lease) (Changeable, error) {
	if h.tracked != nil {
		if err := h.tracked.toUpper(l); err != nil {
			return Changeable{}, err
		}
	}
	return Changeable{fdPlusOne: h.fd + 1, tracked: h.tracked}, nil
}

// InPlace reports whether the file can be changed where it is, without being copied up.
func (h *Handle) InPlace() bool { return h.tracked == nil || !h.tracked.isLower.Load() }

// Sync writes the file to the disk, and in a staged root the records of the store. A file of
// the source has nothing to write.
func (h *Handle) Sync(l *guard.Lease, dataOnly bool) error {
	if !h.InPlace() {
		return stageOf(l).store.Sync()
	}
	return Fsync(l, changeable(h.fd), dataOnly)
}

// KeepOrClose checks that the handle may be kept between operations. If too few descriptors are
// left, it closes the handle and returns ENFILE.
func (h *Handle) KeepOrClose() error {
	if int64(h.fd) < descriptors.keptLimit.Load() {
		return nil
	}
	descriptors.scarce.Store(true)
	h.Close()
	return unix.ENFILE
}

// Close closes the descriptor.
func (h *Handle) Close() {
	isLower := !h.InPlace()
	if h.tracked != nil {
		h.tracked.untrack()
	}
	_ = unix.Close(h.fd)
	if isLower && AtStep != nil {
		_ = AtStep("closed")
	}
}

// Open opens the file of d once more, for reading; see Reopen.
func (d Dir) Open(flags int) (Handle, error) {
	fd, err := Reopen(d.fd, flags)
	if err != nil {
		return Handle{fd: fd}, err
	}
	ownID, err := d.ownID(fd)
	if err != nil {
		_ = unix.Close(fd)
		return Handle{}, err
	}
	return d.handle(fd, ownID, isWritable(flags))
}

// ownID returns the identity that d's file has on its file system. fd is a descriptor of the file.
// Without a stage ownID returns zero.
func (d Dir) ownID(fd int) (rules.Identity, error) {
	if d.union == nil {
		return rules.Identity{}, nil
	}
	info, err := stat(fd)
	return info.ID(), err
}

// handle returns a descriptor of d's file as a Handle. ownID is the identity that the file has on
// its file system.
func (d Dir) handle(fd int, ownID rules.Identity, writes bool) (Handle, error) {
	switch {
	case d.union == nil:
		return Handle{fd: fd}, nil
	case d.union.up != d.fd:
		return d.union.st.track(fd, ownID, d.union.rel)
	}
	return d.union.st.trackUpper(fd, ownID, writes, anyTime)
}

// Reopen opens the file once more, see the function Reopen. For writing, a file of the source
// of a staged root is copied up first.
func (h *Handle) Reopen(l *guard.Lease, flags int) (Handle, error) {
	if h.tracked == nil {
		fd, err := Reopen(h.fd, flags)
		return Handle{fd: fd}, err
	}
	for range copyTries {
		if isWritable(flags) {
			if _, err := h.Change(l); err != nil {
				return Handle{}, err
			}
		}
		if again, err := h.tracked.reopen(flags); err != unix.ESTALE { //nolint:errorlint // bare errno
			return again, err
		}
	}
	return Handle{}, unix.ESTALE
}

// reopen opens the file once more. If flags allow writing and the file is the source's, the error
// is ESTALE.
func (f *trackedFile) reopen(flags int) (Handle, error) {
	st := f.st
	st.swaps.Lock()
	defer st.swaps.Unlock()
	if isWritable(flags) && f.isLower.Load() {
		return Handle{}, unix.ESTALE
	}
	fd, err := Reopen(f.fd, flags)
	if err != nil {
		return Handle{}, err
	}
	again := &trackedFile{st: st, fd: fd, writes: isWritable(flags), rel: f.rel}
	again.isLower.Store(f.isLower.Load())
	again.gone.Store(f.gone.Load())
	st.addLocked(again, f.id)
	return Handle{fd: fd, tracked: again}, nil
}
