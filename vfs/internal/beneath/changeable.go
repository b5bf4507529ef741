package beneath

import (
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
)

// Changeable is the descriptor of a file that an operation may change. Every call that changes
// a file or its attributes takes a Changeable. Only this package makes one: for a file that it
// has created, or that Change or Handle.Change allows to be changed. So a descriptor that must
// not be written through cannot be passed to such a call by mistake: that does not compile.
type Changeable struct {
	// next is the descriptor plus one, so that the zero Changeable refers to no file.
	next int
}

func changeable(fd int) Changeable { return Changeable{fd + 1} }

// FD is the descriptor, for calls that change nothing; -1 for the zero Changeable.
func (w Changeable) FD() int { return w.next - 1 }

// Handle makes the descriptor one that is kept.
func (w Changeable) Handle() Handle { return Handle{fd: w.FD()} }

// Close closes the descriptor. On the zero Changeable it does nothing.
func (w Changeable) Close() {
	if w.next > 0 {
		_ = unix.Close(w.FD())
	}
}

// Change allows what d refers to to be changed. In a staged root it is copied up first, and d
// refers to the copy.
func (d *Dir) Change(l *guard.Lease) (Changeable, error) {
	st := stageOf(l)
	switch {
	case st == nil || d.source:
		return changeable(d.fd), nil
	case d.union == nil:
		return Changeable{}, unix.EROFS // the source's, which a stage never changes
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
	return changeable(d.fd), nil
}

// Handle is the descriptor of a file, open or a reference (O_PATH), that may be kept between
// operations.
type Handle struct {
	fd int
	// lower is set if the file is the source's of a staged root.
	lower *lowerFile
}

// FD is the descriptor, for calls that change nothing.
func (h *Handle) FD() int { return h.fd }

// Stat reads the attributes of the file. One of the source's that has lost its name in a stage
// has a link less.
func (h *Handle) Stat(l *guard.Lease) (Info, error) {
	info, err := Stat(l, h.fd)
	if h.lower != nil && h.lower.gone.Load() && !h.lower.moved.Load() {
		info.Nlink -= min(info.Nlink, 1)
	}
	return info, err
}

// Change allows the file to be changed. A file of the source of a staged root is copied up
// first, and the descriptor then refers to the copy.
func (h *Handle) Change(l *guard.Lease) (Changeable, error) {
	if h.lower != nil {
		if err := h.lower.toUpper(l); err != nil {
			return Changeable{}, err
		}
	}
	return changeable(h.fd), nil
}

// InPlace reports whether the file can be changed where it is, without a copy.
func (h *Handle) InPlace() bool { return h.lower == nil || h.lower.moved.Load() }

// Sync writes the file to the disk, and in a staged root the records of the store. A file of
// the source has nothing to write.
func (h *Handle) Sync(l *guard.Lease, dataOnly bool) error {
	if !h.InPlace() {
		return stageOf(l).store.Sync()
	}
	return Fsync(l, changeable(h.fd), dataOnly)
}

// Hold says whether the handle may be kept; if not, it is closed.
func (h *Handle) Hold() error {
	if int64(h.fd) < descriptors.kept.Load() {
		return nil
	}
	descriptors.scarce.Store(true)
	h.Close()
	return unix.ENFILE
}

// Close closes the descriptor.
func (h *Handle) Close() {
	if h.lower != nil {
		h.lower.untrack()
	}
	_ = unix.Close(h.fd)
	if h.lower != nil && AtStep != nil {
		_ = AtStep("closed")
	}
}

// Open opens what d refers to once more, for reading; see Reopen.
func (d Dir) Open(flags int) (Handle, error) {
	fd, err := Reopen(d.fd, flags)
	return d.handle(fd, err)
}

// handle makes a descriptor of what d refers to one that is kept.
func (d Dir) handle(fd int, err error) (Handle, error) {
	if err == nil && d.union != nil && d.union.up != d.fd {
		return d.union.st.track(fd, d.union.rel)
	}
	return Handle{fd: fd}, err
}

// Reopen opens the file once more, see the function Reopen. For writing, a file of the source
// of a staged root is copied up first.
func (h *Handle) Reopen(l *guard.Lease, flags int) (Handle, error) {
	if flags&unix.O_ACCMODE != unix.O_RDONLY {
		if _, err := h.Change(l); err != nil {
			return Handle{}, err
		}
	}
	if h.InPlace() {
		fd, err := Reopen(h.fd, flags)
		return Handle{fd: fd}, err
	}
	st := h.lower.st
	st.swaps.Lock()
	defer st.swaps.Unlock()
	fd, err := Reopen(h.fd, flags)
	if err != nil || h.lower.moved.Load() {
		return Handle{fd: fd}, err
	}
	f := &lowerFile{st: st, fd: fd, rel: h.lower.rel, id: h.lower.id}
	st.tracked[f.id] = append(st.tracked[f.id], f)
	return Handle{fd: fd, lower: f}, nil
}
